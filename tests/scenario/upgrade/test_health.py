"""Health moves traffic, the interval only slows growth (ADR 11)."""

from collections.abc import Callable

import pytest

from common import labels
from common.api.meta import rfc3339
from common.kube.resources import POD, RAY_CLUSTER
from scenario.upgrade.world import BLUE, GREEN, Pair, a_running_pair
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy

Blow = Callable[[Pair, str], None]
FULL = a_strategy(surge=100, step=50, interval=600)
"""The pending cluster has all capacity, and half of the traffic for ten minutes."""
LIMIT = 5


async def halfway(**fields: object) -> Pair:
    """Return an upgrade in which either cluster could carry everything, and has one half."""
    fields.setdefault("upgradeStrategy", FULL)
    world = await a_running_pair(**fields)
    world.apply(config=GREEN, serve=a_serve_config(message="v2"), **fields)
    await world.until(lambda: world.view.weights == (50, 50), seconds=700)
    await world.run(20)
    assert world.view.capacities == (100, 100)
    return world


def _head_lost(world: Pair, name: str) -> None:
    since = rfc3339(world.clock.now())
    lost = {"type": "HeadPodReady", "status": "False", "reason": "ContainersNotReady"}
    lost = {**lost, "message": "", "lastTransitionTime": since}
    world.kube.set_status(RAY_CLUSTER, NAMESPACE, name, {"state": "", "conditions": [lost]})


def _worker_killed(world: Pair, name: str) -> None:
    world.kube.set_status(POD, NAMESPACE, f"{name}-worker", {"phase": "Failed"})


def _worker_back(world: Pair, name: str) -> None:
    ready = {"phase": "Running", "podIP": f"ip-{name}-worker", "conditions": [{"type": "Ready", "status": "True"}]}
    world.kube.set_status(POD, NAMESPACE, f"{name}-worker", ready)


def _silent(world: Pair, name: str) -> None:
    world.serve.head(f"{name}-head-svc").behaviour = "silent"


def _applications_lost(world: Pair, name: str) -> None:
    head = world.serve.head(f"{name}-head-svc")
    head.restart()
    head.deploy_seconds = 1e6


BLOWS = {
    "its head is not ready": _head_lost,
    "its only worker is killed": _worker_killed,
    "its dashboard is silent": _silent,
    "it lost its applications": _applications_lost,
}


async def expect_shed(
    world: Pair, blow: Blow, victim: str, *, is_back: bool, before: Callable[[Pair], None] = lambda _: None
) -> None:
    """Expect that a blow to one cluster, at half of the traffic, leaves all of it to the other within the limit; `before` precedes the blow."""
    blue, green = world.active, world.pending
    if is_back:
        world.apply(config=BLUE, upgradeStrategy=FULL)
        await world.run(5)
        assert world.is_rolling_back()
        assert world.weights == {blue: 50, green: 50}, "the interval is not over"
    before(world)
    blow(world, blue if victim == "active" else green)
    await world.run(LIMIT)
    assert world.weights[green if victim == "active" else blue] == 100


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
@pytest.mark.parametrize("blow", BLOWS.values(), ids=BLOWS.keys())
async def test_a_cluster_that_cannot_carry_its_share_loses_it_within_5_s(
    blow: Blow, victim: str, is_back: bool
) -> None:
    await expect_shed(await halfway(), blow, victim, is_back=is_back)


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_it_does_so_while_service_reconciler_is_away(victim: str) -> None:
    world = await halfway()
    name, other = (world.active, world.pending) if victim == "active" else (world.pending, world.active)
    world.is_service_down = True
    _worker_killed(world, name)
    await world.run(LIMIT)
    assert world.weights == {name: 0, other: 100}


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_an_invalid_spec_guards_what_serves_all_the_same(victim: str) -> None:
    world = await halfway()
    name, other = (world.active, world.pending) if victim == "active" else (world.pending, world.active)
    world.apply(config=GREEN, upgradeStrategy=a_strategy(surge=20, step=50), serve=a_serve_config(message="v2"))
    await world.run(2)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in world.message("Ready")
    _worker_killed(world, name)
    await world.run(LIMIT)
    assert world.weights == {name: 0, other: 100}
    await world.run(60)
    assert world.weights == {name: 0, other: 100}, "nothing but guards acts on a spec that nobody has taken in"


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_a_single_lost_answer_of_a_dashboard_moves_nothing(victim: str) -> None:
    world = await halfway()
    name = world.active if victim == "active" else world.pending
    for _ in range(3):
        _silent(world, name)
        before = world.serve.head(f"{name}-head-svc")
        await world.run(0.25)
        before.behaviour = "ok"
        await world.run(10)
    assert set(world.weights.values()) == {50}


async def test_what_shed_grows_again_an_interval_after_it_is_healthy() -> None:
    strategy = a_strategy(surge=100, step=50, interval=30)
    world = await halfway(upgradeStrategy=strategy)
    green = world.pending
    _worker_killed(world, green)
    await world.run(LIMIT)
    assert world.weights[green] == 0
    await world.run(60)
    assert world.weights[green] == 0, "it cannot carry anything"
    _worker_back(world, green)
    await world.run(25)
    assert world.weights[green] == 0, "healthy, for less than an interval"
    await world.run(10)
    assert world.weights[green] == 50


async def test_where_neither_can_carry_all_stays_and_an_event_says_why() -> None:
    world = await halfway()
    for name in (world.active, world.pending):
        _worker_killed(world, name)
    await world.run(30)
    assert set(world.weights.values()) == {50}
    notes = [note for _, reason, note in world.kube.events() if reason == "TrafficNotCarried"]
    assert any("no replica of app/Model is running" in each for each in notes)


async def test_a_canary_that_flaps_stalls_and_is_rolled_back() -> None:
    wanted = {labels.PROGRESS_DEADLINE: "120", labels.ON_DEADLINE: "Rollback"}
    strategy = a_strategy(surge=100, step=5, interval=10)
    world = await a_running_pair(annotations=wanted, upgradeStrategy=strategy)
    blue = world.active
    world.apply(config=GREEN, annotations=wanted, upgradeStrategy=strategy)
    await world.until(lambda: world.view.weights[1] == 10, seconds=100)
    green, bad = world.pending, 0
    for _ in range(15):
        _worker_killed(world, green)
        await world.run(LIMIT)
        bad += world.weights.get(green, 0) > 0
        if green in world.clusters:
            _worker_back(world, green)
        await world.until(lambda: world.weights.get(green, 0) == 5 or not world.pending, seconds=60)
        if not world.pending:
            break
    assert (world.active, world.pending, world.weights[blue]) == (blue, "", 100)
    assert world.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded")
    assert bad == 0
    assert world.clock.monotonic() < 400


@pytest.mark.parametrize("sleep", [20, 200])
async def test_a_rollback_cuts_no_cluster_that_the_accepted_route_sends_to(sleep: int) -> None:
    world = await halfway()
    blue, green = world.active, world.pending
    paused = a_strategy(surge=100, step=0, interval=600)
    world.apply(config=GREEN, upgradeStrategy=paused, serve=a_serve_config(message="v2"))
    await world.run(2)
    world.gateway.is_asleep = True
    world.apply(config=BLUE, upgradeStrategy=paused)
    await world.run(sleep)
    assert world.weights == {blue: 100, green: 0}, "the route asks for all"
    assert world.capacities(green)[-1] >= 50, "and the Gateway sends one half to the old place still"
    world.gateway.is_asleep = False
    await world.until(lambda: world.is_settled() and world.active == blue, seconds=30)


async def test_an_active_cluster_that_is_deleted_in_a_rollback_leaves_the_traffic_to_the_one_that_serves() -> None:
    world = await halfway()
    blue, green = world.active, world.pending
    world.apply(config=BLUE, upgradeStrategy=FULL)
    await world.run(3)
    world.holds_pods = True
    await world.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await world.run(LIMIT)
    assert (world.weights.get(green), blue in world.weights) == (100, False)
