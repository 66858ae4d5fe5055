"""An upgrade that does not get on: the cause is named, and what its user wants is done; `raybus.io/progress-deadline`."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER
from scenario.upgrade.test_controls import STEPS, V2, held, is_at_rest, messages, say
from scenario.upgrade.world import GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy

pytestmark = pytest.mark.long

Fault = Callable[[Pair], None]
MISSING = a_serve_config(import_path="missing:app", message="v2")
HOUR = timedelta(hours=1)


def pods_that_wait(world: Pair, status: Json) -> None:
    """Let no new pod become ready, and say why."""
    world.holds_pods = True
    told = world.clusters_move_on

    def move_on() -> None:
        told()
        for pod in world.kube.all(POD):
            if not pod.get("status") and world.holds_pods:
                world.kube.set_status(POD, "default", pod["metadata"]["name"], status)

    world.clusters_move_on = move_on


def no_room(world: Pair) -> None:
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    pods_that_wait(world, {"phase": "Pending", "conditions": [full]})


def no_image(world: Pair) -> None:
    waiting: Json = {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}
    pods_that_wait(world, {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": waiting}]})


def no_quota(world: Pair) -> None:
    world.holds_pods = True
    told = world.clusters_move_on

    def move_on() -> None:
        told()
        name = world.pending
        if not name or (RAY_CLUSTER.kind, "default", name) not in world.kube.objects or not world.holds_pods:
            return
        condition = {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreateHeadPod",
            "message": 'pods "x" is forbidden: exceeded quota: gpus',
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
        world.kube.set_status(RAY_CLUSTER, "default", name, {"conditions": [condition]})

    world.clusters_move_on = move_on


def no_gateway(world: Pair) -> None:
    world.gateway.is_programmed = False
    world.gateway.forget()


def no_application(_world: Pair) -> None:
    pass


def mended(world: Pair) -> None:
    """Take the fault away."""
    for pod in world.kube.all(POD) if world.holds_pods else []:
        if pod["metadata"]["name"].startswith(world.pending):
            world.kube.set_status(POD, "default", pod["metadata"]["name"], {})
    if world.holds_pods:
        world.kube.set_status(RAY_CLUSTER, "default", world.pending, {})
    world.holds_pods = False
    world.gateway.is_programmed = True
    world.gateway.forget()


CAUSES = [
    pytest.param("InsufficientCapacity", no_room, "cannot be placed on a node: 0/3 nodes are available"),
    pytest.param("ImagePullFailed", no_image, "cannot be pulled"),
    pytest.param("QuotaExceeded", no_quota, "exceeded quota: gpus"),
    pytest.param("GatewayNotReady", no_gateway, "Gateway default/demo-gateway is not Programmed"),
    pytest.param("ApplicationNotReady", no_application, "application app is DEPLOY_FAILED"),
]


async def stalled(cause: str, fault: Fault, *, policy: str, seconds: float = 60) -> Pair:
    """Return an upgrade that stood still until its deadline."""
    annotations = held(progress_deadline="20", on_deadline=policy)
    world = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    fault(world)
    serve = MISSING if cause == "ApplicationNotReady" else V2
    world.apply(config=GREEN, serve=serve, upgradeStrategy=STEPS, annotations=annotations)
    await world.until(lambda: "UpgradeStalled" in world.reasons(), seconds=seconds)
    return world


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES)
async def test_with_wait_the_cause_is_named_and_what_is_mended_goes_on(cause: str, fault: Fault, text: str) -> None:
    world = await stalled(cause, fault, policy="Wait")
    green = world.pending
    assert world.condition("UpgradeStalled") == ("True", cause)
    assert world.message("UpgradeStalled").startswith("No progress for 20s (raybus.io/progress-deadline): ")
    assert text in world.message("UpgradeStalled")
    assert await is_at_rest(world)
    mended(world)
    if cause == "ApplicationNotReady":
        world.apply(
            config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=held(progress_deadline="20", on_deadline="Wait")
        )
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)
    assert (world.condition("UpgradeStalled"), world.reasons().count("UpgradeStalled")) == (("", ""), 1)


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES)
async def test_with_rollback_the_service_returns_and_tries_no_more(cause: str, fault: Fault, text: str) -> None:
    world = await stalled(cause, fault, policy="Rollback")
    await world.until(world.is_settled, seconds=60)
    blue = world.active
    assert world.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded")
    assert text in world.message("UpgradeAborted")
    await world.run(70)
    world.restart()
    assert (world.clusters, world.weights, await is_at_rest(world)) == ([blue], {blue: 100}, True)
    assert messages(world, blue) == {"v1"}
    assert (world.reasons().count("UpgradeStalled"), world.reasons().count("UpgradeAborted")) == (1, 1)


@pytest.mark.parametrize(("cause", "fault", "text"), CAUSES[:1] + CAUSES[3:4])
async def test_with_pause_nothing_moves_until_the_annotation_changes(cause: str, fault: Fault, text: str) -> None:
    world = await stalled(cause, fault, policy="Pause")
    green = world.pending
    assert text in world.message("UpgradeStalled")
    mended(world)
    await world.run(60)
    assert world.condition("UpgradePaused") == ("True", "ProgressDeadlineExceeded")
    assert (world.view.weights, world.condition("UpgradeStalled")) == ((100, 0), ("True", cause))
    say(world, progress_deadline="20", on_deadline="Wait")
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)


async def test_a_promotion_goes_on_after_a_pause_at_the_deadline() -> None:
    world = await stalled("GatewayNotReady", no_gateway, policy="Pause")
    green = world.pending
    mended(world)
    say(world, progress_deadline="20", on_deadline="Pause", promote="true")
    await world.until(lambda: world.is_settled() and world.active == green, seconds=30)


async def test_a_promotion_tries_again_what_was_rolled_back_and_is_only_told_of_the_deadline() -> None:
    world = await stalled("GatewayNotReady", no_gateway, policy="Rollback")
    await world.until(world.is_settled, seconds=60)
    blue = world.active
    say(world, progress_deadline="20", on_deadline="Rollback", promote="true")
    await world.until(lambda: world.condition("UpgradeStalled")[0] == "True", seconds=60)
    await world.run(20)
    assert (world.active, bool(world.pending)) == (blue, True)
    mended(world)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)


async def test_another_spec_is_tried_although_the_one_before_was_rolled_back() -> None:
    world = await stalled("ApplicationNotReady", no_application, policy="Rollback")
    await world.until(world.is_settled, seconds=60)
    blue = world.active
    world.apply(
        config=RED, serve=V2, upgradeStrategy=STEPS, annotations=held(progress_deadline="20", on_deadline="Rollback")
    )
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)
    assert world.condition("UpgradeAborted") == ("", "")


async def test_an_interval_between_two_steps_is_no_stall() -> None:
    annotations = held(progress_deadline="10", on_deadline="Rollback")
    strategy = a_strategy(surge=50, step=50, interval=40)
    world = await a_running_pair(upgradeStrategy=strategy, annotations=annotations)
    blue = world.active
    world.apply(config=GREEN, serve=V2, upgradeStrategy=strategy, annotations=annotations)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=200)
    assert "UpgradeStalled" not in world.reasons()


async def test_an_upgrade_that_is_stuck_half_way_goes_back_as_far_as_it_came() -> None:
    annotations = held(progress_deadline="20", on_deadline="Rollback")
    world = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    blue = world.active
    world.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await world.until(lambda: world.view.weights[1] == 50, seconds=60)
    world.serve.head(f"{world.pending}-head-svc").deploy_seconds = 10_000
    await world.until(lambda: "UpgradeAborted" in world.reasons(), seconds=60)
    assert world.message("UpgradeAborted").count("replicas") + world.message("UpgradeAborted").count("DEPLOYING")
    await world.until(world.is_settled, seconds=60)
    assert (world.active, world.weights) == (blue, {blue: 100})


async def test_a_stalled_upgrade_is_looked_at_ever_less_often() -> None:
    world = await stalled("ApplicationNotReady", no_application, policy="Wait")
    await world.run(240)
    before = world.serve.head(f"{world.pending}-head-svc").gets
    told = len(world.told)
    await world.run(100)
    assert world.serve.head(f"{world.pending}-head-svc").gets - before <= 60, "two services, each every 5 s"
    assert len(world.told) == told


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_is_no_deadline(hours: int) -> None:
    annotations = held(progress_deadline="60", on_deadline="Rollback")
    world = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    world.gateway.is_asleep = True
    world.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await world.run(20)
    world.jump(hours * HOUR)
    await world.run(30)
    assert (bool(world.pending), "UpgradeStalled" in world.reasons()) == (True, False)


async def test_a_restart_forgets_no_deadline() -> None:
    annotations = held(progress_deadline="30")
    world = await a_running_pair(upgradeStrategy=STEPS, annotations=annotations)
    no_room(world)
    world.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    for _ in range(7):
        await world.run(5)
        world.restart()
    await world.run(1)
    assert world.condition("UpgradeStalled") == ("True", "InsufficientCapacity")
