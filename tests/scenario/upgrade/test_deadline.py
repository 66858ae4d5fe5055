"""An upgrade that does not progress: the cause is named, and what its user wants is done; `raybus.io/progress-deadline`."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER, UPGRADE_POLICY
from scenario.upgrade.harness import GREEN, RED, Pair, a_running_pair
from scenario.upgrade.test_controls import STEPS, V2, annotate, held, is_at_rest, messages
from support.builders.ray_service import a_serve_config, a_strategy
from support.builders.upgrade_policy import a_policy

pytestmark = pytest.mark.long

Fault = Callable[[Pair], None]
MISSING = a_serve_config(import_path="missing:app", message="v2")
HOUR = timedelta(hours=1)


def pods_that_wait(harness: Pair, status: Json) -> None:
    """Let no new pod become ready, and give the reason."""
    harness.holds_pods = True
    honest = harness.clusters_move_on

    def move_on() -> None:
        honest()
        for pod in harness.kube.all(POD):
            if not pod.get("status") and harness.holds_pods:
                harness.kube.set_status(POD, "default", pod["metadata"]["name"], status)

    harness.clusters_move_on = move_on


def no_room(harness: Pair) -> None:
    full = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    pods_that_wait(harness, {"phase": "Pending", "conditions": [full]})


def no_image(harness: Pair) -> None:
    waiting: Json = {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}
    pods_that_wait(
        harness, {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": waiting}]}
    )


def no_quota(harness: Pair) -> None:
    harness.holds_pods = True
    honest = harness.clusters_move_on

    def move_on() -> None:
        honest()
        name = harness.pending
        if (
            not name
            or (RAY_CLUSTER.kind, "default", name) not in harness.kube.objects
            or not harness.holds_pods
        ):
            return
        condition = {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreateHeadPod",
            "message": 'pods "x" is forbidden: exceeded quota: gpus',
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
        harness.kube.set_status(RAY_CLUSTER, "default", name, {"conditions": [condition]})

    harness.clusters_move_on = move_on


def no_gateway(harness: Pair) -> None:
    harness.gateway.is_programmed = False
    harness.gateway.forget()


def no_application(_harness: Pair) -> None:
    pass


def fix(harness: Pair) -> None:
    """Take the fault away."""
    for pod in harness.kube.all(POD) if harness.holds_pods else []:
        if pod["metadata"]["name"].startswith(harness.pending):
            harness.kube.set_status(POD, "default", pod["metadata"]["name"], {})
    if harness.holds_pods:
        harness.kube.set_status(RAY_CLUSTER, "default", harness.pending, {})
    harness.holds_pods = False
    harness.gateway.is_programmed = True
    harness.gateway.forget()


CAUSES = [
    pytest.param(
        "InsufficientCapacity", no_room, "cannot be placed on a node: 0/3 nodes are available"
    ),
    pytest.param("ImagePullFailed", no_image, "cannot be pulled"),
    pytest.param("QuotaExceeded", no_quota, "exceeded quota: gpus"),
    pytest.param("GatewayNotReady", no_gateway, "Gateway default/demo-gateway is not Programmed"),
    pytest.param("ApplicationNotReady", no_application, "application app is DEPLOY_FAILED"),
]


async def stalled(cause: str, fault: Fault, *, policy: str, seconds: float = 60) -> Pair:
    """Return an upgrade that stood still until its deadline."""
    annotations = held(progress_deadline="20", on_deadline=policy)
    harness = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    fault(harness)
    serve = MISSING if cause == "ApplicationNotReady" else V2
    harness.apply(config=GREEN, serve=serve, upgradeStrategy=STEPS, annotations=annotations)
    await harness.until(lambda: "UpgradeStalled" in harness.reasons(), seconds=seconds)
    return harness


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES)
async def test_with_wait_the_cause_is_named_and_a_corrected_upgrade_continues(
    cause: str, fault: Fault, text: str
) -> None:
    harness = await stalled(cause, fault, policy="Wait")
    green = harness.pending
    assert harness.condition("UpgradeStalled") == ("True", cause)
    assert harness.message("UpgradeStalled").startswith(
        "No progress for 20s (raybus.io/progress-deadline): "
    )
    assert text in harness.message("UpgradeStalled")
    assert await is_at_rest(harness)
    fix(harness)
    if cause == "ApplicationNotReady":
        harness.apply(
            config=GREEN,
            serve=V2,
            upgradeStrategy=STEPS,
            annotations=held(progress_deadline="20", on_deadline="Wait"),
        )
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)
    assert (harness.condition("UpgradeStalled"), harness.reasons().count("UpgradeStalled")) == (
        ("", ""),
        1,
    )


async def test_an_abort_ends_a_stall_and_the_spec_before_it_needs_no_cluster() -> None:
    harness = await stalled("ImagePullFailed", no_image, policy="Wait")
    blue = harness.active
    annotate(harness, progress_deadline="20", on_deadline="Wait", abort="true")
    await harness.until(harness.is_complete, seconds=60)
    assert harness.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert harness.condition("UpgradeStalled") == ("", "")
    harness.apply(
        upgradeStrategy=STEPS, annotations=held(progress_deadline="20", on_deadline="Wait")
    )
    await harness.run(30)
    assert (harness.active, harness.pending, harness.condition("UpgradeAborted")) == (
        blue,
        "",
        ("", ""),
    )


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES)
async def test_with_rollback_the_service_returns_and_tries_no_more(
    cause: str, fault: Fault, text: str
) -> None:
    harness = await stalled(cause, fault, policy="Rollback")
    await harness.until(harness.is_complete, seconds=60)
    blue = harness.active
    assert harness.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded")
    assert text in harness.message("UpgradeAborted")
    await harness.run(70)
    harness.restart()
    assert (harness.clusters, harness.weights, await is_at_rest(harness)) == (
        [blue],
        {blue: 100},
        True,
    )
    assert messages(harness, blue) == {"v1"}
    assert (
        harness.reasons().count("UpgradeStalled"),
        harness.reasons().count("UpgradeAborted"),
    ) == (1, 1)


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES[:1] + CAUSES[3:4])
async def test_with_pause_nothing_moves_until_the_annotation_changes(
    cause: str, fault: Fault, text: str
) -> None:
    harness = await stalled(cause, fault, policy="Pause")
    green = harness.pending
    assert text in harness.message("UpgradeStalled")
    fix(harness)
    await harness.run(60)
    assert harness.condition("UpgradePaused") == ("True", "ProgressDeadlineExceeded")
    assert (harness.view.weights, harness.condition("UpgradeStalled")) == (
        (100, 0),
        ("True", cause),
    )
    annotate(harness, progress_deadline="20", on_deadline="Wait")
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)


async def test_a_promotion_goes_on_after_a_pause_at_the_deadline() -> None:
    harness = await stalled("GatewayNotReady", no_gateway, policy="Pause")
    green = harness.pending
    fix(harness)
    annotate(harness, progress_deadline="20", on_deadline="Pause", promote="true")
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)


async def test_a_promotion_retries_what_was_rolled_back_and_the_deadline_is_only_reported() -> None:
    harness = await stalled("GatewayNotReady", no_gateway, policy="Rollback")
    await harness.until(harness.is_complete, seconds=60)
    blue = harness.active
    annotate(harness, progress_deadline="20", on_deadline="Rollback", promote="true")
    await harness.until(lambda: harness.condition("UpgradeStalled")[0] == "True", seconds=60)
    await harness.run(20)
    assert (harness.active, bool(harness.pending)) == (blue, True)
    fix(harness)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)


async def test_another_spec_is_tried_although_the_one_before_was_rolled_back() -> None:
    harness = await stalled("ApplicationNotReady", no_application, policy="Rollback")
    await harness.until(harness.is_complete, seconds=60)
    blue = harness.active
    harness.apply(
        config=RED,
        serve=V2,
        upgradeStrategy=STEPS,
        annotations=held(progress_deadline="20", on_deadline="Rollback"),
    )
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    assert harness.condition("UpgradeAborted") == ("", "")


async def test_an_interval_between_two_steps_is_no_stall() -> None:
    annotations = held(progress_deadline="10", on_deadline="Rollback")
    strategy = a_strategy(surge=50, step=50, interval=40)
    harness = await a_running_pair(upgradeStrategy=strategy, annotations=annotations)
    blue = harness.active
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=strategy, annotations=annotations)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=200)
    assert "UpgradeStalled" not in harness.reasons()


async def test_an_upgrade_that_stalls_half_way_rolls_back_as_far_as_it_came() -> None:
    annotations = held(progress_deadline="20", on_deadline="Rollback")
    harness = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    blue = harness.active
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await harness.until(lambda: harness.view.weights[1] == 50, seconds=60)
    harness.serve.head(f"{harness.pending}-head-svc").deploy_seconds = 10_000
    await harness.until(lambda: "UpgradeAborted" in harness.reasons(), seconds=60)
    assert harness.message("UpgradeAborted").count("replicas") + harness.message(
        "UpgradeAborted"
    ).count("DEPLOYING")
    await harness.until(harness.is_complete, seconds=60)
    assert (harness.active, harness.weights) == (blue, {blue: 100})


async def test_a_stalled_upgrade_is_reconciled_ever_less_often() -> None:
    harness = await stalled("ApplicationNotReady", no_application, policy="Wait")
    await harness.run(240)
    gets, written = harness.serve.head(f"{harness.pending}-head-svc").gets, len(harness.written)
    await harness.run(100)
    assert harness.serve.head(f"{harness.pending}-head-svc").gets - gets <= 60, (
        "two services, each every 5 s"
    )
    assert len(harness.written) == written


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_is_no_deadline(hours: int) -> None:
    annotations = held(progress_deadline="60", on_deadline="Rollback")
    harness = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    harness.gateway.is_asleep = True
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await harness.run(20)
    harness.jump(hours * HOUR)
    await harness.run(30)
    assert (bool(harness.pending), "UpgradeStalled" in harness.reasons()) == (True, False)


async def test_a_restart_forgets_no_deadline() -> None:
    annotations = held(progress_deadline="30")
    harness = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    no_room(harness)
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    for _ in range(7):
        await harness.run(5)
        harness.restart()
    await harness.run(1)
    assert harness.condition("UpgradeStalled") == ("True", "InsufficientCapacity")


LONG_WAITS: Json = {
    "steps": [{"weight": 10}, {"weight": 50, "hold": "2h"}, {"weight": 100}],
    "bake": "2h",
}


async def test_a_hold_or_bake_that_has_not_begun_does_not_postpone_the_deadline() -> None:
    harness = await a_running_pair()
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=LONG_WAITS, namespace="default"))
    no_image(harness)
    annotations = {
        labels.UPGRADE_POLICY: "careful",
        labels.PROGRESS_DEADLINE: "60s",
        labels.ON_DEADLINE: "Rollback",
    }
    harness.apply(config=GREEN, annotations=annotations)
    await harness.until(lambda: harness.condition("UpgradeAborted")[0] == "True", seconds=90)


async def test_a_hold_of_the_present_step_does_not_count_against_the_deadline() -> None:
    harness = await a_running_pair()
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=LONG_WAITS, namespace="default"))
    annotations = {labels.UPGRADE_POLICY: "careful", labels.PROGRESS_DEADLINE: "20s"}
    harness.apply(config=GREEN, annotations=annotations)
    await harness.until(lambda: harness.weights.get(harness.pending) == 50)
    await harness.run(60)
    assert harness.condition("UpgradeStalled")[0] != "True"


async def test_the_time_of_a_mirror_does_not_count_against_the_deadline() -> None:
    harness = await a_running_pair()
    spec: Json = {
        "steps": [{"weight": 10}, {"weight": 100}],
        "mirror": {"percent": 50, "duration": "60s"},
    }
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace="default"))
    annotations = {labels.UPGRADE_POLICY: "careful", labels.PROGRESS_DEADLINE: "20s"}
    harness.apply(config=GREEN, annotations=annotations)
    await harness.run(50)
    assert harness.condition("UpgradeStalled")[0] != "True"
    await harness.until(lambda: harness.weights.get(harness.pending) == 10, seconds=30)
