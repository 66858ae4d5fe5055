"""Clusters with proxies on few nodes, or at another port: an upgrade waits for no pod that is never Ready."""

from collections.abc import Mapping

import pytest

from common.api.opaque import Json
from common.kube.resources import POD
from scenario.service_reconciler.harness import Harness
from scenario.service_reconciler.surroundings import READY
from scenario.upgrade.harness import GREEN, Pair, a_running_pair
from support.builders.ray_service import (
    NAMESPACE,
    a_cluster_config,
    a_group,
    a_serve_config,
    a_strategy,
)

STEPS = a_strategy(surge=100, step=50, interval=10)


def a_config(ports: Mapping[str, int], *, image: str = "ray:2.52.0") -> Json:
    """Return a cluster whose Ray containers declare these ports for Serve (`head`, `worker`)."""

    def template(name: str, port: int | None) -> Json:
        declared = [] if port is None else [{"name": "serve", "containerPort": port}]
        return {"spec": {"containers": [{"name": name, "image": image, "ports": declared}]}}

    head: Json = {"rayStartParams": {}, "template": template("ray-head", ports.get("head"))}
    group = a_group(template=template("ray-worker", ports.get("worker")))
    return a_cluster_config(group, headGroupSpec=head, enableInTreeAutoscaling=True)


HEAD_ONLY = "proxy_location: HeadOnly\n"
DISABLED = "proxy_location: Disabled\n"
AT_9000 = "http_options: {port: 9000}\n"


def serve(options: str, message: str = "v1") -> str:
    return options + a_serve_config(message=message)


def is_ready(harness: Harness | Pair, cluster: str, role: str) -> bool:
    pod = harness.kube.objects[(POD.kind, NAMESPACE, f"{cluster}-{role}")]
    return pod["status"]["conditions"] == READY


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        pytest.param(HEAD_ONLY, {}, id="HeadOnly"),
        pytest.param(DISABLED, {}, id="Disabled"),
        pytest.param(AT_9000, {"head": 9000}, id="workers declare no port"),
        pytest.param(AT_9000, {"head": 9000, "worker": 9000}, id="all declare the port"),
    ],
)
async def test_blue_green_ends(options: str, ports: dict[str, int]) -> None:
    harness = Harness()
    harness.apply(config=a_config(ports), serve=serve(options))
    await harness.until(lambda: harness.active and not harness.pending)
    await harness.run(5)
    blue = harness.active
    harness.apply(config=a_config(ports, image="ray:2.53.0"), serve=serve(options))
    await harness.until(lambda: harness.active not in {"", blue} and not harness.pending)
    is_offered = ports.get("worker") == 9000
    assert is_ready(harness, harness.active, "worker") == is_offered


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        pytest.param(HEAD_ONLY, {}, id="HeadOnly"),
        pytest.param(AT_9000, {"head": 9000}, id="workers declare no port"),
        pytest.param(AT_9000, {"head": 9000, "worker": 9000}, id="all declare the port"),
    ],
)
async def test_an_upgrade_in_steps_ends_and_goes_by_its_steps(
    options: str, ports: dict[str, int]
) -> None:
    harness = await a_running_pair(
        config=a_config(ports), serve=serve(options), upgradeStrategy=STEPS
    )
    blue = harness.active
    harness.apply(
        config=a_config(ports, image="ray:2.53.0"), serve=serve(options), upgradeStrategy=STEPS
    )
    await harness.until(lambda: harness.view.weights == (50, 50))
    await harness.run(5)
    assert harness.view.weights == (50, 50)
    await harness.until(lambda: harness.active not in {"", blue} and not harness.pending)


async def test_an_upgrade_in_steps_ends_without_a_proxy_and_says_that_no_request_arrives() -> None:
    harness = Pair()
    harness.apply(config=a_config({}), serve=serve(DISABLED), upgradeStrategy=STEPS)
    await harness.until(lambda: bool(harness.weights))
    blue = harness.active
    green = a_config({}, image="ray:2.53.0")
    harness.apply(config=green, serve=serve(DISABLED), upgradeStrategy=STEPS)
    await harness.until(lambda: harness.active not in {"", blue} and not harness.pending)
    await harness.run(10)
    assert harness.condition("Ready")[0] == "False"
    assert "proxy_location: Disabled" in harness.message("Ready")


async def test_the_plain_service_offers_the_heads_of_both_clusters() -> None:
    harness = Pair()
    harness.apply(serve=serve(HEAD_ONLY), upgradeStrategy={"type": "NewCluster"})
    await harness.until(harness.is_complete)
    harness.apply(serve=serve(HEAD_ONLY), upgradeStrategy=STEPS)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights))
    harness.apply(config=GREEN, serve=serve(HEAD_ONLY), upgradeStrategy=STEPS)
    await harness.until(lambda: harness.view.weights == (50, 50))
    await harness.run(5)
    for cluster in (harness.active, harness.pending):
        head = harness.kube.objects[(POD.kind, NAMESPACE, f"{cluster}-head")]
        assert "raybus.io/serves" in head["metadata"]["labels"]


@pytest.mark.parametrize(
    ("config", "options", "spec", "expected"),
    [
        pytest.param(
            a_config({}),
            AT_9000,
            {},
            "the head: Serve listens on port 9000 (http_options.port), and these pods are asked at "
            "port 8000: the Ray container needs a port named serve",
            id="no pod declares the port",
        ),
        pytest.param(
            a_config({}),
            HEAD_ONLY,
            {"excludeHeadPodFromServeSvc": True},
            "the only proxy is on the head (proxy_location: HeadOnly), and "
            "spec.excludeHeadPodFromServeSvc keeps requests from it",
            id="the head alone has a proxy and is excluded",
        ),
        pytest.param(
            a_config({}),
            DISABLED,
            {},
            "Serve has no proxy (proxy_location: Disabled), so no request reaches its applications "
            "by a Service or a route; set proxy_location to EveryNode or HeadOnly",
            id="there is no proxy",
        ),
    ],
)
async def test_what_keeps_all_requests_away_is_reported(
    config: Json, options: str, spec: Json, expected: str
) -> None:
    harness = Harness()
    harness.apply(config=config, serve=serve(options), **spec)
    await harness.run(20)
    notes = [note for _, reason, note in harness.kube.events() if reason == "NoServePort"]
    assert any(expected in note for note in notes), harness.reasons()
