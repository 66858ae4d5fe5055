"""Health moves traffic, the interval only slows growth (ADR 41)."""

from collections.abc import Callable

import pytest

from common import labels
from common.api.meta import rfc3339
from common.kube.resources import POD, RAY_CLUSTER
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy

Blow = Callable[[Pair, str], None]
FULL = a_strategy(surge=100, step=50, interval=600)
"""The pending cluster has all capacity, and half of the traffic for ten minutes."""
LIMIT = 5


async def halfway(**fields: object) -> Pair:
    """Return an upgrade in which either cluster could carry everything, and has one half."""
    fields.setdefault("upgradeStrategy", FULL)
    harness = await a_running_pair(**fields)
    harness.apply(config=GREEN, serve=a_serve_config(message="v2"), **fields)
    await harness.until(lambda: harness.view.weights == (50, 50), seconds=700)
    await harness.run(20)
    assert harness.view.capacities == (100, 100)
    return harness


def _head_lost(harness: Pair, name: str) -> None:
    since = rfc3339(harness.clock.now())
    lost = {"type": "HeadPodReady", "status": "False", "reason": "ContainersNotReady"}
    lost = {**lost, "message": "", "lastTransitionTime": since}
    harness.kube.set_status(RAY_CLUSTER, NAMESPACE, name, {"state": "", "conditions": [lost]})


def _worker_killed(harness: Pair, name: str) -> None:
    harness.kube.set_status(POD, NAMESPACE, f"{name}-worker", {"phase": "Failed"})


def _worker_back(harness: Pair, name: str) -> None:
    ready = {
        "phase": "Running",
        "podIP": f"ip-{name}-worker",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    harness.kube.set_status(POD, NAMESPACE, f"{name}-worker", ready)


def _silent(harness: Pair, name: str) -> None:
    harness.serve.head(f"{name}-head-svc").behaviour = "silent"


def _applications_lost(harness: Pair, name: str) -> None:
    head = harness.serve.head(f"{name}-head-svc")
    head.restart()
    head.deploy_seconds = 1e6


BLOWS = {
    "its head is not ready": _head_lost,
    "its only worker is killed": _worker_killed,
    "it lost its applications": _applications_lost,
}


async def expect_shed(
    harness: Pair,
    blow: Blow,
    victim: str,
    *,
    is_back: bool,
    before: Callable[[Pair], None] = lambda _: None,
) -> None:
    """Expect that a blow to one cluster, at half of the traffic, leaves all of it to the other within the limit; `before` precedes the blow."""
    blue, green = harness.active, harness.pending
    if is_back:
        harness.apply(config=BLUE, upgradeStrategy=FULL)
        await harness.run(5)
        assert harness.is_rolling_back()
        assert harness.weights == {blue: 50, green: 50}, "the interval is not over"
    before(harness)
    blow(harness, blue if victim == "active" else green)
    await harness.run(LIMIT)
    assert harness.weights[green if victim == "active" else blue] == 100


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
@pytest.mark.parametrize("blow", BLOWS.values(), ids=BLOWS.keys())
async def test_a_cluster_that_cannot_carry_its_share_loses_it_within_5_s(
    blow: Blow, victim: str, is_back: bool
) -> None:
    await expect_shed(await halfway(), blow, victim, is_back=is_back)


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_it_does_so_while_service_reconciler_is_away(victim: str) -> None:
    harness = await halfway()
    name, other = (
        (harness.active, harness.pending)
        if victim == "active"
        else (harness.pending, harness.active)
    )
    harness.is_service_down = True
    _worker_killed(harness, name)
    await harness.run(LIMIT)
    assert harness.weights == {name: 0, other: 100}


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_an_invalid_spec_guards_what_serves_all_the_same(victim: str) -> None:
    harness = await halfway()
    name, other = (
        (harness.active, harness.pending)
        if victim == "active"
        else (harness.pending, harness.active)
    )
    harness.apply(
        config=GREEN,
        upgradeStrategy=a_strategy(surge=20, step=50),
        serve=a_serve_config(message="v2"),
    )
    await harness.run(2)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in harness.message(
        "Ready"
    )
    _worker_killed(harness, name)
    await harness.run(LIMIT)
    assert harness.weights == {name: 0, other: 100}
    await harness.run(60)
    assert harness.weights == {name: 0, other: 100}, (
        "nothing but guards acts on a spec that nobody has taken in"
    )


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_a_single_lost_answer_of_a_dashboard_moves_nothing(victim: str) -> None:
    harness = await halfway()
    name = harness.active if victim == "active" else harness.pending
    for _ in range(3):
        _silent(harness, name)
        before = harness.serve.head(f"{name}-head-svc")
        await harness.run(0.25)
        before.behaviour = "ok"
        await harness.run(10)
    assert set(harness.weights.values()) == {50}


async def test_what_shed_grows_again_an_interval_after_it_is_healthy() -> None:
    strategy = a_strategy(surge=100, step=50, interval=30)
    harness = await halfway(upgradeStrategy=strategy)
    green = harness.pending
    _worker_killed(harness, green)
    await harness.run(LIMIT)
    assert harness.weights[green] == 0
    await harness.run(60)
    assert harness.weights[green] == 0, "it cannot carry anything"
    _worker_back(harness, green)
    await harness.run(25)
    assert harness.weights[green] == 0, "healthy, for less than an interval"
    await harness.run(10)
    assert harness.weights[green] == 50


async def test_without_ready_capacity_on_either_side_all_stays_and_an_event_reports_why() -> None:
    harness = await halfway()
    for name in (harness.active, harness.pending):
        _worker_killed(harness, name)
    await harness.run(30)
    assert set(harness.weights.values()) == {50}
    notes = [note for _, reason, note in harness.kube.events() if reason == "TrafficNotCarried"]
    assert any("no replica of app/Model is running" in each for each in notes)


async def test_a_canary_that_flaps_stalls_and_is_rolled_back() -> None:
    wanted = {labels.PROGRESS_DEADLINE: "120", labels.ON_DEADLINE: "Rollback"}
    strategy = a_strategy(surge=100, step=5, interval=10)
    harness = await a_running_pair(annotations=wanted, upgradeStrategy=strategy)
    blue = harness.active
    harness.apply(config=GREEN, annotations=wanted, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights[1] == 10, seconds=100)
    green, bad = harness.pending, 0
    for _ in range(15):
        _worker_killed(harness, green)
        await harness.run(LIMIT)
        bad += harness.weights.get(green, 0) > 0
        if green in harness.clusters:
            _worker_back(harness, green)
        await harness.until(
            lambda: harness.weights.get(green, 0) == 5 or not harness.pending, seconds=60
        )
        if not harness.pending:
            break
    assert (harness.active, harness.pending, harness.weights[blue]) == (blue, "", 100)
    assert harness.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded")
    assert bad == 0
    assert harness.clock.monotonic() < 400


@pytest.mark.parametrize("sleep", [20, 200])
async def test_a_rollback_cuts_no_cluster_that_the_accepted_route_sends_to(sleep: int) -> None:
    harness = await halfway()
    blue, green = harness.active, harness.pending
    paused = a_strategy(surge=100, step=0, interval=600)
    harness.apply(config=GREEN, upgradeStrategy=paused, serve=a_serve_config(message="v2"))
    await harness.run(2)
    harness.gateway.is_asleep = True
    harness.apply(config=BLUE, upgradeStrategy=paused)
    await harness.run(sleep)
    assert harness.weights == {blue: 100, green: 0}, "the route asks for all"
    assert harness.capacities(green)[-1] >= 50, (
        "and the Gateway sends one half to the old place still"
    )
    harness.gateway.is_asleep = False
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=30)


async def test_an_active_cluster_that_is_deleted_in_a_rollback_leaves_the_traffic_to_the_serving_cluster() -> (
    None
):
    harness = await halfway()
    blue, green = harness.active, harness.pending
    harness.apply(config=BLUE, upgradeStrategy=FULL)
    await harness.run(3)
    harness.holds_pods = True
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await harness.run(LIMIT)
    assert (harness.weights.get(green), blue in harness.weights) == (100, False)
