"""Clusters with proxies on few nodes, or at another port: an upgrade waits for no pod that is never Ready."""

from collections.abc import Mapping

import pytest

from common.api.opaque import Json
from common.kube.resources import POD
from support.builders.ray_service import (
    NAMESPACE,
    a_cluster_config,
    a_group,
    a_serve_config,
    a_strategy,
)
from support.fakes.clusters import READY
from support.simulator.simulator import GREEN, Simulator, a_pair, a_running_pair
from support.tables import cases

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


def is_ready(sim: Simulator | Simulator, cluster: str, role: str) -> bool:
    pod = sim.kube.objects[(POD.kind, NAMESPACE, f"{cluster}-{role}")]
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
    sim = Simulator()
    sim.apply(config=a_config(ports), serve=serve(options))
    await sim.until(lambda: sim.active and not sim.pending)
    await sim.run(5)
    blue = sim.active
    sim.apply(config=a_config(ports, image="ray:2.53.0"), serve=serve(options))
    await sim.until(lambda: sim.active not in {"", blue} and not sim.pending)
    is_offered = ports.get("worker") == 9000
    assert is_ready(sim, sim.active, "worker") == is_offered


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
    sim = await a_running_pair(config=a_config(ports), serve=serve(options), upgradeStrategy=STEPS)
    blue = sim.active
    sim.apply(
        config=a_config(ports, image="ray:2.53.0"), serve=serve(options), upgradeStrategy=STEPS
    )
    await sim.until(lambda: sim.view.weights == (50, 50))
    await sim.run(5)
    assert sim.view.weights == (50, 50)
    await sim.until(lambda: sim.active not in {"", blue} and not sim.pending)


async def test_an_upgrade_in_steps_ends_without_a_proxy_and_says_that_no_request_arrives() -> None:
    sim = a_pair()
    sim.apply(config=a_config({}), serve=serve(DISABLED), upgradeStrategy=STEPS)
    await sim.until(lambda: bool(sim.weights))
    blue = sim.active
    green = a_config({}, image="ray:2.53.0")
    sim.apply(config=green, serve=serve(DISABLED), upgradeStrategy=STEPS)
    await sim.until(lambda: sim.active not in {"", blue} and not sim.pending)
    await sim.run(10)
    assert sim.condition("Ready")[0] == "False"
    assert "proxy_location: Disabled" in sim.message("Ready")


async def test_the_plain_service_offers_the_heads_of_both_clusters() -> None:
    sim = a_pair()
    sim.apply(serve=serve(HEAD_ONLY), upgradeStrategy={"type": "NewCluster"})
    await sim.until(sim.is_complete)
    sim.apply(serve=serve(HEAD_ONLY), upgradeStrategy=STEPS)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights))
    sim.apply(config=GREEN, serve=serve(HEAD_ONLY), upgradeStrategy=STEPS)
    await sim.until(lambda: sim.view.weights == (50, 50))
    await sim.run(5)
    for cluster in (sim.active, sim.pending):
        head = sim.kube.objects[(POD.kind, NAMESPACE, f"{cluster}-head")]
        assert "raybus.io/serves" in head["metadata"]["labels"]


@cases(
    ("config", "options", "spec", "expected"),
    {
        "no pod declares the port": (
            a_config({}),
            AT_9000,
            {},
            "the head: Serve listens on port 9000 (http_options.port), and these pods are asked at "
            "port 8000: the Ray container needs a port named serve",
        ),
        "the head alone has a proxy and is excluded": (
            a_config({}),
            HEAD_ONLY,
            {"excludeHeadPodFromServeSvc": True},
            "the only proxy is on the head (proxy_location: HeadOnly), and "
            "spec.excludeHeadPodFromServeSvc keeps requests from it",
        ),
        "there is no proxy": (
            a_config({}),
            DISABLED,
            {},
            "Serve has no proxy (proxy_location: Disabled), so no request reaches its applications "
            "by a Service or a route; set proxy_location to EveryNode or HeadOnly",
        ),
    },
)
async def test_what_keeps_all_requests_away_is_reported(
    config: Json, options: str, spec: Json, expected: str
) -> None:
    sim = Simulator()
    sim.apply(config=config, serve=serve(options), **spec)
    await sim.run(20)
    notes = [note for _, reason, note in sim.kube.events() if reason == "NoServePort"]
    assert any(expected in note for note in notes), sim.reasons()
