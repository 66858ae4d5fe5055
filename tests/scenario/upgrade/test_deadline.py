"""An upgrade that does not progress: the cause is named, and what its user wants is done; `raybus.io/progress-deadline`."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER, UPGRADE_POLICY
from scenario.upgrade.test_controls import STEPS, V2, annotate, held, is_at_rest, messages
from support.builders.ray_service import a_serve_config, a_strategy
from support.builders.upgrade_policy import a_policy
from support.simulator.simulator import GREEN, RED, Simulator, a_running_pair

pytestmark = pytest.mark.long

Fault = Callable[[Simulator], None]
MISSING = a_serve_config(import_path="missing:app", message="v2")
HOUR = timedelta(hours=1)


def pods_that_wait(sim: Simulator, status: Json) -> None:
    """Let no new pod become ready, and give the reason."""
    sim.ray_clusters.holds_pods = True
    honest = sim.ray_clusters.move_on

    def move_on() -> None:
        honest()
        for pod in sim.kube.all(POD):
            if not pod.get("status") and sim.ray_clusters.holds_pods:
                sim.kube.set_status(POD, "default", pod["metadata"]["name"], status)

    sim.ray_clusters.move_on = move_on


def no_room(sim: Simulator) -> None:
    full = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    pods_that_wait(sim, {"phase": "Pending", "conditions": [full]})


def no_image(sim: Simulator) -> None:
    waiting: Json = {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}
    pods_that_wait(
        sim, {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": waiting}]}
    )


def no_quota(sim: Simulator) -> None:
    sim.ray_clusters.holds_pods = True
    honest = sim.ray_clusters.move_on

    def move_on() -> None:
        honest()
        name = sim.pending
        if (
            not name
            or (RAY_CLUSTER.kind, "default", name) not in sim.kube.objects
            or not sim.ray_clusters.holds_pods
        ):
            return
        condition = {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreateHeadPod",
            "message": 'pods "x" is forbidden: exceeded quota: gpus',
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
        sim.kube.set_status(RAY_CLUSTER, "default", name, {"conditions": [condition]})

    sim.ray_clusters.move_on = move_on


def no_gateway(sim: Simulator) -> None:
    sim.gateway.is_programmed = False
    sim.gateway.forget()


def no_application(_harness: Simulator) -> None:
    pass


def fix(sim: Simulator) -> None:
    """Take the fault away."""
    for pod in sim.kube.all(POD) if sim.ray_clusters.holds_pods else []:
        if pod["metadata"]["name"].startswith(sim.pending):
            sim.kube.set_status(POD, "default", pod["metadata"]["name"], {})
    if sim.ray_clusters.holds_pods:
        sim.kube.set_status(RAY_CLUSTER, "default", sim.pending, {})
    sim.ray_clusters.holds_pods = False
    sim.gateway.is_programmed = True
    sim.gateway.forget()


CAUSES = [
    pytest.param(
        "InsufficientCapacity", no_room, "cannot be placed on a node: 0/3 nodes are available"
    ),
    pytest.param("ImagePullFailed", no_image, "cannot be pulled"),
    pytest.param("QuotaExceeded", no_quota, "exceeded quota: gpus"),
    pytest.param("GatewayNotReady", no_gateway, "Gateway default/demo-gateway is not Programmed"),
    pytest.param("ApplicationNotReady", no_application, "application app is DEPLOY_FAILED"),
]


async def stalled(cause: str, fault: Fault, *, policy: str, seconds: float = 60) -> Simulator:
    """Return an upgrade that stood still until its deadline."""
    annotations = held(progress_deadline="20", on_deadline=policy)
    sim = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    fault(sim)
    serve = MISSING if cause == "ApplicationNotReady" else V2
    sim.apply(config=GREEN, serve=serve, upgradeStrategy=STEPS, annotations=annotations)
    await sim.until(lambda: "UpgradeStalled" in sim.reasons(), seconds=seconds)
    return sim


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES)
async def test_with_wait_the_cause_is_named_and_a_corrected_upgrade_continues(
    cause: str, fault: Fault, text: str
) -> None:
    sim = await stalled(cause, fault, policy="Wait")
    green = sim.pending
    assert sim.condition("UpgradeStalled") == ("True", cause)
    assert sim.message("UpgradeStalled").startswith(
        "No progress for 20s (raybus.io/progress-deadline): "
    )
    assert text in sim.message("UpgradeStalled")
    assert await is_at_rest(sim)
    fix(sim)
    if cause == "ApplicationNotReady":
        sim.apply(
            config=GREEN,
            serve=V2,
            upgradeStrategy=STEPS,
            annotations=held(progress_deadline="20", on_deadline="Wait"),
        )
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)
    assert (sim.condition("UpgradeStalled"), sim.reasons().count("UpgradeStalled")) == (("", ""), 1)


async def test_an_abort_ends_a_stall_and_the_spec_before_it_needs_no_cluster() -> None:
    sim = await stalled("ImagePullFailed", no_image, policy="Wait")
    blue = sim.active
    annotate(sim, progress_deadline="20", on_deadline="Wait", abort="true")
    await sim.until(sim.is_complete, seconds=60)
    assert sim.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert sim.condition("UpgradeStalled") == ("", "")
    sim.apply(upgradeStrategy=STEPS, annotations=held(progress_deadline="20", on_deadline="Wait"))
    await sim.run(30)
    assert (sim.active, sim.pending, sim.condition("UpgradeAborted")) == (blue, "", ("", ""))


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES)
async def test_with_rollback_the_service_returns_and_tries_no_more(
    cause: str, fault: Fault, text: str
) -> None:
    sim = await stalled(cause, fault, policy="Rollback")
    await sim.until(sim.is_complete, seconds=60)
    blue = sim.active
    assert sim.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded")
    assert text in sim.message("UpgradeAborted")
    await sim.run(70)
    sim.restart()
    assert (sim.clusters, sim.weights, await is_at_rest(sim)) == ([blue], {blue: 100}, True)
    assert messages(sim, blue) == {"v1"}
    assert (sim.reasons().count("UpgradeStalled"), sim.reasons().count("UpgradeAborted")) == (1, 1)


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES[:1] + CAUSES[3:4])
async def test_with_pause_nothing_moves_until_the_annotation_changes(
    cause: str, fault: Fault, text: str
) -> None:
    sim = await stalled(cause, fault, policy="Pause")
    green = sim.pending
    assert text in sim.message("UpgradeStalled")
    fix(sim)
    await sim.run(60)
    assert sim.condition("UpgradePaused") == ("True", "ProgressDeadlineExceeded")
    assert (sim.view.weights, sim.condition("UpgradeStalled")) == ((100, 0), ("True", cause))
    annotate(sim, progress_deadline="20", on_deadline="Wait")
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)


async def test_a_promotion_goes_on_after_a_pause_at_the_deadline() -> None:
    sim = await stalled("GatewayNotReady", no_gateway, policy="Pause")
    green = sim.pending
    fix(sim)
    annotate(sim, progress_deadline="20", on_deadline="Pause", promote="true")
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)


async def test_a_promotion_retries_what_was_rolled_back_and_the_deadline_is_only_reported() -> None:
    sim = await stalled("GatewayNotReady", no_gateway, policy="Rollback")
    await sim.until(sim.is_complete, seconds=60)
    blue = sim.active
    annotate(sim, progress_deadline="20", on_deadline="Rollback", promote="true")
    await sim.until(lambda: sim.condition("UpgradeStalled")[0] == "True", seconds=60)
    await sim.run(20)
    assert (sim.active, bool(sim.pending)) == (blue, True)
    fix(sim)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)


async def test_another_spec_is_tried_although_the_one_before_was_rolled_back() -> None:
    sim = await stalled("ApplicationNotReady", no_application, policy="Rollback")
    await sim.until(sim.is_complete, seconds=60)
    blue = sim.active
    sim.apply(
        config=RED,
        serve=V2,
        upgradeStrategy=STEPS,
        annotations=held(progress_deadline="20", on_deadline="Rollback"),
    )
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    assert sim.condition("UpgradeAborted") == ("", "")


async def test_an_interval_between_two_steps_is_no_stall() -> None:
    annotations = held(progress_deadline="10", on_deadline="Rollback")
    strategy = a_strategy(surge=50, step=50, interval=40)
    sim = await a_running_pair(upgradeStrategy=strategy, annotations=annotations)
    blue = sim.active
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=strategy, annotations=annotations)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=200)
    assert "UpgradeStalled" not in sim.reasons()


async def test_an_upgrade_that_stalls_half_way_rolls_back_as_far_as_it_came() -> None:
    annotations = held(progress_deadline="20", on_deadline="Rollback")
    sim = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    blue = sim.active
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await sim.until(lambda: sim.view.weights[1] == 50, seconds=60)
    sim.serve.head(f"{sim.pending}-head-svc").deploy_seconds = 10_000
    await sim.until(lambda: "UpgradeAborted" in sim.reasons(), seconds=60)
    assert sim.message("UpgradeAborted").count("replicas") + sim.message("UpgradeAborted").count(
        "DEPLOYING"
    )
    await sim.until(sim.is_complete, seconds=60)
    assert (sim.active, sim.weights) == (blue, {blue: 100})


async def test_a_stalled_upgrade_is_reconciled_ever_less_often() -> None:
    sim = await stalled("ApplicationNotReady", no_application, policy="Wait")
    await sim.run(240)
    gets, written = sim.serve.head(f"{sim.pending}-head-svc").gets, len(sim.writes.lines)
    await sim.run(100)
    assert sim.serve.head(f"{sim.pending}-head-svc").gets - gets <= 60, (
        "two services, each every 5 s"
    )
    assert len(sim.writes.lines) == written


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_is_no_deadline(hours: int) -> None:
    annotations = held(progress_deadline="60", on_deadline="Rollback")
    sim = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    sim.gateway.is_asleep = True
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await sim.run(20)
    sim.jump(hours * HOUR)
    await sim.run(30)
    assert (bool(sim.pending), "UpgradeStalled" in sim.reasons()) == (True, False)


async def test_a_restart_forgets_no_deadline() -> None:
    annotations = held(progress_deadline="30")
    sim = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    no_room(sim)
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    for _ in range(7):
        await sim.run(5)
        sim.restart()
    await sim.run(1)
    assert sim.condition("UpgradeStalled") == ("True", "InsufficientCapacity")


LONG_WAITS: Json = {
    "steps": [{"weight": 10}, {"weight": 50, "hold": "2h"}, {"weight": 100}],
    "bake": "2h",
}


async def test_a_hold_or_bake_that_has_not_begun_does_not_postpone_the_deadline() -> None:
    sim = await a_running_pair()
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=LONG_WAITS, namespace="default"))
    no_image(sim)
    annotations = {
        labels.UPGRADE_POLICY: "careful",
        labels.PROGRESS_DEADLINE: "60s",
        labels.ON_DEADLINE: "Rollback",
    }
    sim.apply(config=GREEN, annotations=annotations)
    await sim.until(lambda: sim.condition("UpgradeAborted")[0] == "True", seconds=90)


async def test_a_hold_of_the_present_step_does_not_count_against_the_deadline() -> None:
    sim = await a_running_pair()
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=LONG_WAITS, namespace="default"))
    annotations = {labels.UPGRADE_POLICY: "careful", labels.PROGRESS_DEADLINE: "20s"}
    sim.apply(config=GREEN, annotations=annotations)
    await sim.until(lambda: sim.weights.get(sim.pending) == 50)
    await sim.run(60)
    assert sim.condition("UpgradeStalled")[0] != "True"


async def test_the_time_of_a_mirror_does_not_count_against_the_deadline() -> None:
    sim = await a_running_pair()
    spec: Json = {
        "steps": [{"weight": 10}, {"weight": 100}],
        "mirror": {"percent": 50, "duration": "60s"},
    }
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace="default"))
    annotations = {labels.UPGRADE_POLICY: "careful", labels.PROGRESS_DEADLINE: "20s"}
    sim.apply(config=GREEN, annotations=annotations)
    await sim.run(50)
    assert sim.condition("UpgradeStalled")[0] != "True"
    await sim.until(lambda: sim.weights.get(sim.pending) == 10, seconds=30)
