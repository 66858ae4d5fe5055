"""Blue/green upgrades that follow an UpgradePolicy: promotion by its user, and the bake of the replaced cluster; ADR 28."""

from collections.abc import Callable
from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SECRET, SERVICE, UPGRADE_POLICY
from common.upgrade.outbound import OutboundRequest
from common.upgrade.webhook import Answer
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config
from support.builders.upgrade_policy import a_policy, a_signing_key
from support.fakes.prometheus import vector
from support.fakes.webhook import replies, silent
from support.simulator.simulator import Simulator, a_running_simulator

FOLLOWS: Json = {labels.UPGRADE_POLICY: "careful"}
BLUE = a_cluster_config(image="rayproject/ray:2.52.0")
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")


async def an_upgrade(spec: Json, **annotations: str) -> tuple[Simulator, str]:
    """Return a service just after a change of its spec, with its pending cluster, and the cluster that serves."""
    sim = await a_running_simulator(config=BLUE)
    blue = sim.active
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    sim.apply(config=GREEN, annotations={**FOLLOWS, **annotations})
    await sim.until(lambda: bool(sim.pending) or sim.active != blue, seconds=20)
    return sim, blue


def annotate(sim: Simulator, **annotations: Any) -> None:
    meta = sim.service["metadata"]
    sim.kube.put(
        RAY_SERVICE,
        {
            **sim.service,
            "metadata": {**meta, "annotations": {**meta["annotations"], **annotations}},
        },
    )


ASKING: Json = {
    "gates": [{"webhook": {"url": "https://checks.example.com/a"}}],
    "preview": {"service": True},
}


async def an_asking_upgrade(
    answer: Callable[[OutboundRequest], Answer], **fields: Any
) -> tuple[Simulator, str]:
    """Return a service just after a change of its spec, with a policy that asks a webhook, and the cluster that serves."""
    sim = await a_running_simulator(config=BLUE)
    blue = sim.active
    sim.kube.put(SECRET, a_signing_key(NAMESPACE))
    sim.servers.answer = answer
    sim.kube.put(UPGRADE_POLICY, a_policy(spec={**ASKING, **fields}, namespace=NAMESPACE))
    sim.apply(config=GREEN, annotations=FOLLOWS)
    return sim, blue


async def test_a_webhook_is_asked_once_before_all_traffic_moves() -> None:
    sim, blue = await an_asking_upgrade(lambda _: replies("Pass"))
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    (question,) = sim.servers.questions
    assert (question["strategy"], question["weight"], question["activeCluster"]) == (
        "BlueGreen",
        0,
        blue,
    )
    assert question["addresses"]["pending"] == f"{sim.active}-head-svc.{NAMESPACE}.svc:8000"


@pytest.mark.parametrize("is_theirs", [True, False])
async def test_a_webhook_gets_the_address_of_a_preview_service_of_ours_alone(
    *, is_theirs: bool
) -> None:
    sim = await a_running_simulator(config=BLUE)
    blue, name = sim.active, f"{NAME}-preview-svc"
    if is_theirs:
        job = {"kind": "Job", "name": "other", "uid": "u", "controller": True}
        spec: Json = {"selector": {"app": "elsewhere"}, "ports": [{"name": "serve", "port": 8000}]}
        meta: Json = {"name": name, "ownerReferences": [job]}
        sim.kube.put(SERVICE, {"metadata": meta, "spec": spec})
    sim.kube.put(SECRET, a_signing_key(NAMESPACE))
    sim.servers.answer = lambda _: replies("Pass")
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=ASKING, namespace=NAMESPACE))
    sim.apply(config=GREEN, annotations=FOLLOWS)
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    ours = {} if is_theirs else {"preview": f"{name}.{NAMESPACE}.svc:8000"}
    for question in sim.servers.questions:
        assert {k: v for k, v in question["addresses"].items() if k == "preview"} == ours


def waits(_request: OutboundRequest) -> Answer:
    return replies("Wait", "tests run")


@pytest.mark.parametrize("answer", [waits, silent])
async def test_the_traffic_stays_without_a_decision_and_a_restart_asks_again(
    answer: Callable[[OutboundRequest], Answer],
) -> None:
    sim, blue = await an_asking_upgrade(answer)
    await sim.run(60)
    assert (sim.selected(), sim.active) == (blue, blue)
    sim.restart()
    await sim.run(10)
    assert sim.selected() == blue
    assert len({each["id"] for each in sim.servers.questions}) == 1
    sim.servers.answer = lambda _: replies("Pass")
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)


async def test_a_webhook_that_fails_ends_the_upgrade_and_the_service_stays_also_after_a_restart() -> (
    None
):
    sim, blue = await an_asking_upgrade(lambda _: replies("Fail", "wrong answers"))
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"))
    assert "webhook: checks.example.com answered Fail: wrong answers" in sim.message(
        "UpgradeAborted"
    )
    sim.restart()
    await sim.run(60)
    assert (sim.active, sim.pending, sim.selected()) == (blue, "", blue)
    assert len(sim.servers.asked) == 1


async def test_the_next_spec_is_asked_about_after_a_failure() -> None:
    sim, blue = await an_asking_upgrade(lambda _: replies("Fail"))
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"))
    sim.servers.answer = lambda _: replies("Pass")
    sim.apply(config=a_cluster_config(image="rayproject/ray:2.54.0"), annotations=FOLLOWS)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
    assert len(sim.servers.asked) == 2


async def test_a_webhook_that_fails_pauses_the_upgrade_where_the_policy_asks_for_it() -> None:
    sim, blue = await an_asking_upgrade(lambda _: replies("Fail"), onFailure="Pause")
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "GateFailed"))
    await sim.run(30)
    assert sim.selected() == blue
    annotate(sim, **{labels.PROMOTE: "true"})
    await sim.until(lambda: sim.is_complete() and sim.active != blue)


QUERYING: Json = {
    "gates": [
        {
            "prometheus": {"address": "http://prom.example.com", "query": "a{b='$pendingCluster'}"},
            "max": "0.5",
        }
    ]
}


async def test_a_query_is_put_before_all_traffic_moves() -> None:
    sim, blue = await an_asking_upgrade(lambda _: vector(), **QUERYING)
    await sim.run(60)
    assert (sim.selected(), sim.active) == (blue, blue)
    assert 3 <= len(sim.servers.asked) <= 5
    assert f"a%7Bb%3D%27{sim.pending}%27%7D" in sim.servers.asked[-1].url
    sim.servers.answer = lambda _: vector("0.5")
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)


async def test_a_query_beyond_its_limit_ends_the_upgrade_by_three_values() -> None:
    sim, blue = await an_asking_upgrade(lambda _: vector("0.6"), **QUERYING)
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=100)
    assert len(sim.servers.asked) == 3
    assert "prometheus: 0.6, at most 0.5 allowed, 3 times one after another" in sim.message(
        "UpgradeAborted"
    )
    await sim.run(60)
    assert (sim.active, sim.selected(), len(sim.servers.asked)) == (blue, blue, 3)


async def test_without_automatic_promotion_a_ready_cluster_waits_for_its_user() -> None:
    sim, blue = await an_upgrade({"autoPromote": False}, **{labels.PROGRESS_DEADLINE: "15s"})
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    sim.restart()
    await sim.run(30)
    assert sim.selected() == blue
    assert sim.condition("UpgradeStalled")[0] != "True"
    green = sim.pending
    annotate(sim, **{labels.APPROVED_STEP: f"{green}/100"})
    await sim.until(lambda: sim.is_complete() and sim.active == green)


async def test_promote_needs_no_approval() -> None:
    sim, _ = await an_upgrade({"autoPromote": False})
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    green = sim.pending
    annotate(sim, **{labels.PROMOTE: "true"})
    await sim.until(lambda: sim.is_complete() and sim.active == green)


async def test_the_replaced_cluster_stays_whole_for_the_bake_and_is_deleted_after_it() -> None:
    sim, blue = await an_upgrade({"bake": "5m"})
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    await sim.run(280)
    assert blue in sim.clusters
    annotations = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, blue)]["metadata"]["annotations"]
    assert labels.DELETE_AFTER not in annotations
    await sim.until(lambda: blue not in sim.clusters, seconds=200)


async def test_a_revert_during_the_bake_rolls_back_to_the_replaced_cluster() -> None:
    sim, blue = await an_upgrade({"bake": "5m"})
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    green = sim.active
    await sim.run(30)
    began = sim.clock.monotonic()
    sim.apply(config=BLUE, annotations=FOLLOWS)
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=20)
    assert sim.clock.monotonic() - began < 5
    assert set(sim.clusters) <= {blue, green}
    creations = [each for each in sim.kube.requests if str(each).startswith("create RayCluster")]
    assert len(creations) == 2
    await sim.until(lambda: green not in sim.clusters, seconds=400)


async def test_a_revert_after_the_replaced_cluster_is_deleted_builds_a_new_cluster() -> None:
    sim, blue = await an_upgrade({"bake": "10s"})
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    await sim.until(lambda: blue not in sim.clusters, seconds=100)
    sim.apply(config=BLUE, annotations=FOLLOWS)
    await sim.run(1)
    await sim.until(sim.is_complete)
    assert sim.active != blue


async def test_without_a_bake_the_replaced_cluster_gets_its_deadline_at_once() -> None:
    sim, blue = await an_upgrade({})
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    await sim.run(2)
    annotations = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, blue)]["metadata"]["annotations"]
    assert labels.DELETE_AFTER in annotations


async def test_all_traffic_moves_after_the_warm_up() -> None:
    sim, blue = await an_upgrade({"warmUp": {"requests": 12, "path": "/warm"}})
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    assert {path for _, path in sim.serve.requests} == {"/warm"}
    assert len(sim.serve.requests) == 12
    assert not any(pod.startswith(blue) for pod, _ in sim.serve.requests)


async def test_a_failed_warm_up_ends_the_upgrade_and_it_is_not_tried_again() -> None:
    sim = await a_running_simulator(config=BLUE)
    blue = sim.active
    sim.serve.refuses_after = 3
    sim.kube.put(UPGRADE_POLICY, a_policy(spec={"warmUp": {"requests": 12}}, namespace=NAMESPACE))
    sim.apply(config=GREEN, annotations=FOLLOWS)
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"))
    sent = len(sim.serve.requests)
    sim.restart()
    await sim.run(60)
    assert (sim.active, sim.pending) == (blue, "")
    assert len(sim.serve.requests) == sent == 4
    assert "request 4 of the warm-up was not answered" in sim.message("UpgradeAborted")


# --- gates by requests --------------------------------------------------------------------------------------------------

ERRORS: Json = {"metric": "errorRate", "max": "1%", "minRequests": 40}
WARMED: Json = {"warmUp": {"requests": 40}, "gates": [ERRORS]}
PREVIEWED: Json = {"preview": {"service": True}, "gates": [ERRORS]}


def preview(sim: Simulator, requests: int, *, failed: int = 0) -> None:
    """Let users of the preview Service send requests."""
    head = sim.serve.head(f"{sim.pending}-head-svc")
    head.answered += requests
    head.failed += failed


async def test_the_requests_of_the_warm_up_decide_a_gate_before_all_traffic_moves() -> None:
    sim, blue = await an_upgrade(WARMED)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    assert len(sim.serve.requests) == 40


async def test_without_enough_requests_no_traffic_moves_and_the_cause_is_reported_until_users_of_the_preview_come() -> (
    None
):
    sim, blue = await an_upgrade(PREVIEWED)
    await sim.run(60)
    assert (sim.active, sim.selected()) == (blue, blue)
    assert (
        "the gates errorRate are not decided yet; no traffic moves until they are"
        in sim.message("UpgradeInProgress")
    )
    assert sim.condition("UpgradeAborted")[0] != "True"
    preview(sim, 39)
    await sim.run(20)
    assert sim.selected() == blue
    sim.restart()
    preview(sim, 1)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=30)


async def test_requests_that_fail_end_the_upgrade_before_any_user_of_the_service_has_one() -> None:
    sim, blue = await an_upgrade(PREVIEWED)
    await sim.run(20)
    preview(sim, 100, failed=30)
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=30)
    assert "errorRate: 30 of 100 requests failed (30%), at most 1% allowed" in sim.message(
        "UpgradeAborted"
    )
    await sim.run(60)
    assert (sim.active, sim.pending, sim.selected()) == (blue, "", blue)


async def test_a_gate_that_compares_needs_requests_of_the_active_cluster_in_the_same_time() -> None:
    compared: Json = {
        **WARMED,
        "gates": [{"metric": "errorRate", "maxIncrease": "50%", "minRequests": 40}],
    }
    sim = await a_running_simulator(config=BLUE)
    blue = sim.active
    old = sim.serve.head(f"{blue}-head-svc")
    old.answered = 1000
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=compared, namespace=NAMESPACE))
    sim.apply(config=GREEN, annotations=FOLLOWS)
    await sim.run(60)
    assert sim.selected() == blue
    old.answered += 40
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=30)


async def test_the_deadline_ends_an_upgrade_without_requests() -> None:
    deadline = {labels.PROGRESS_DEADLINE: "60s", labels.ON_DEADLINE: "Rollback"}
    sim, blue = await an_upgrade(PREVIEWED, **deadline)
    await sim.until(
        lambda: sim.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded"), seconds=150
    )
    assert "the gates errorRate are not decided yet" in sim.message("UpgradeAborted")
    assert sim.selected() == blue


async def test_a_metric_of_a_cluster_that_gets_no_request_before_the_switch_decides_nothing() -> (
    None
):
    sim, blue = await an_upgrade({"gates": [ERRORS]})
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)


async def test_promote_needs_no_requests() -> None:
    sim, _ = await an_upgrade(PREVIEWED)
    await sim.run(20)
    green = sim.pending
    annotate(sim, **{labels.PROMOTE: "true"})
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)
