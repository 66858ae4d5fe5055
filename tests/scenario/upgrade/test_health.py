"""Health moves traffic, the interval only slows growth (ADR 41)."""

from collections.abc import Callable

import pytest

from common import labels
from common.api.meta import rfc3339
from common.kube.resources import POD, RAY_CLUSTER
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy
from support.simulator.simulator import BLUE, GREEN, Simulator, a_running_pair

Blow = Callable[[Simulator, str], None]
FULL = a_strategy(surge=100, step=50, interval=600)
"""The pending cluster has all capacity, and half of the traffic for ten minutes."""
LIMIT = 5


async def halfway(**fields: object) -> Simulator:
    """Return an upgrade in which either cluster could carry everything, and has one half."""
    fields.setdefault("upgradeStrategy", FULL)
    sim = await a_running_pair(**fields)
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"), **fields)
    await sim.until(lambda: sim.view.weights == (50, 50), seconds=700)
    await sim.run(20)
    assert sim.view.capacities == (100, 100)
    return sim


def _head_lost(sim: Simulator, name: str) -> None:
    since = rfc3339(sim.clock.now())
    lost = {"type": "HeadPodReady", "status": "False", "reason": "ContainersNotReady"}
    lost = {**lost, "message": "", "lastTransitionTime": since}
    sim.kube.set_status(RAY_CLUSTER, NAMESPACE, name, {"state": "", "conditions": [lost]})


def _worker_killed(sim: Simulator, name: str) -> None:
    sim.kube.set_status(POD, NAMESPACE, f"{name}-worker", {"phase": "Failed"})


def _worker_back(sim: Simulator, name: str) -> None:
    ready = {
        "phase": "Running",
        "podIP": f"ip-{name}-worker",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    sim.kube.set_status(POD, NAMESPACE, f"{name}-worker", ready)


def _silent(sim: Simulator, name: str) -> None:
    sim.serve.head(f"{name}-head-svc").behaviour = "silent"


def _applications_lost(sim: Simulator, name: str) -> None:
    head = sim.serve.head(f"{name}-head-svc")
    head.restart()
    head.deploy_seconds = 1e6


BLOWS = {
    "its head is not ready": _head_lost,
    "its only worker is killed": _worker_killed,
    "it lost its applications": _applications_lost,
}


async def expect_shed(
    sim: Simulator,
    blow: Blow,
    victim: str,
    *,
    is_back: bool,
    before: Callable[[Simulator], None] = lambda _: None,
) -> None:
    """Expect that a blow to one cluster, at half of the traffic, leaves all of it to the other within the limit; `before` precedes the blow."""
    blue, green = sim.active, sim.pending
    if is_back:
        sim.apply(config=BLUE, upgradeStrategy=FULL)
        await sim.run(5)
        assert sim.is_rolling_back()
        assert sim.weights == {blue: 50, green: 50}, "the interval is not over"
    before(sim)
    blow(sim, blue if victim == "active" else green)
    await sim.run(LIMIT)
    assert sim.weights[green if victim == "active" else blue] == 100


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
@pytest.mark.parametrize("blow", BLOWS.values(), ids=BLOWS.keys())
async def test_a_cluster_that_cannot_carry_its_share_loses_it_within_5_s(
    blow: Blow, victim: str, is_back: bool
) -> None:
    await expect_shed(await halfway(), blow, victim, is_back=is_back)


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_it_does_so_while_service_reconciler_is_away(victim: str) -> None:
    sim = await halfway()
    name, other = (sim.active, sim.pending) if victim == "active" else (sim.pending, sim.active)
    sim.services["service"].is_down = True
    _worker_killed(sim, name)
    await sim.run(LIMIT)
    assert sim.weights == {name: 0, other: 100}


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_an_invalid_spec_guards_what_serves_all_the_same(victim: str) -> None:
    sim = await halfway()
    name, other = (sim.active, sim.pending) if victim == "active" else (sim.pending, sim.active)
    sim.apply(
        config=GREEN,
        upgradeStrategy=a_strategy(surge=20, step=50),
        serve=a_serve_config(message="v2"),
    )
    await sim.run(2)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in sim.message("Ready")
    _worker_killed(sim, name)
    await sim.run(LIMIT)
    assert sim.weights == {name: 0, other: 100}
    await sim.run(60)
    assert sim.weights == {name: 0, other: 100}, (
        "nothing but guards acts on a spec that nobody has taken in"
    )


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_a_single_lost_answer_of_a_dashboard_moves_nothing(victim: str) -> None:
    sim = await halfway()
    name = sim.active if victim == "active" else sim.pending
    for _ in range(3):
        _silent(sim, name)
        before = sim.serve.head(f"{name}-head-svc")
        await sim.run(0.25)
        before.behaviour = "ok"
        await sim.run(10)
    assert set(sim.weights.values()) == {50}


async def test_what_shed_grows_again_an_interval_after_it_is_healthy() -> None:
    strategy = a_strategy(surge=100, step=50, interval=30)
    sim = await halfway(upgradeStrategy=strategy)
    green = sim.pending
    _worker_killed(sim, green)
    await sim.run(LIMIT)
    assert sim.weights[green] == 0
    await sim.run(60)
    assert sim.weights[green] == 0, "it cannot carry anything"
    _worker_back(sim, green)
    await sim.run(25)
    assert sim.weights[green] == 0, "healthy, for less than an interval"
    await sim.run(10)
    assert sim.weights[green] == 50


async def test_without_ready_capacity_on_either_side_all_stays_and_an_event_reports_why() -> None:
    sim = await halfway()
    for name in (sim.active, sim.pending):
        _worker_killed(sim, name)
    await sim.run(30)
    assert set(sim.weights.values()) == {50}
    notes = [note for _, reason, note in sim.kube.events() if reason == "TrafficNotCarried"]
    assert any("no replica of app/Model is running" in each for each in notes)


async def test_a_canary_that_flaps_stalls_and_is_rolled_back() -> None:
    wanted = {labels.PROGRESS_DEADLINE: "120", labels.ON_DEADLINE: "Rollback"}
    strategy = a_strategy(surge=100, step=5, interval=10)
    sim = await a_running_pair(annotations=wanted, upgradeStrategy=strategy)
    blue = sim.active
    sim.apply(config=GREEN, annotations=wanted, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights[1] == 10, seconds=100)
    green, bad = sim.pending, 0
    for _ in range(15):
        _worker_killed(sim, green)
        await sim.run(LIMIT)
        bad += sim.weights.get(green, 0) > 0
        if green in sim.clusters:
            _worker_back(sim, green)
        await sim.until(lambda: sim.weights.get(green, 0) == 5 or not sim.pending, seconds=60)
        if not sim.pending:
            break
    assert (sim.active, sim.pending, sim.weights[blue]) == (blue, "", 100)
    assert sim.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded")
    assert bad == 0
    assert sim.clock.monotonic() < 400


@pytest.mark.parametrize("sleep", [20, 200])
async def test_a_rollback_cuts_no_cluster_that_the_accepted_route_sends_to(sleep: int) -> None:
    sim = await halfway()
    blue, green = sim.active, sim.pending
    paused = a_strategy(surge=100, step=0, interval=600)
    sim.apply(config=GREEN, upgradeStrategy=paused, serve=a_serve_config(message="v2"))
    await sim.run(2)
    sim.gateway.is_asleep = True
    sim.apply(config=BLUE, upgradeStrategy=paused)
    await sim.run(sleep)
    assert sim.weights == {blue: 100, green: 0}, "the route asks for all"
    assert sim.capacities(green)[-1] >= 50, "and the Gateway sends one half to the old place still"
    sim.gateway.is_asleep = False
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=30)


async def test_an_active_cluster_that_is_deleted_in_a_rollback_leaves_the_traffic_to_the_serving_cluster() -> (
    None
):
    sim = await halfway()
    blue, green = sim.active, sim.pending
    sim.apply(config=BLUE, upgradeStrategy=FULL)
    await sim.run(3)
    sim.ray_clusters.holds_pods = True
    await sim.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await sim.run(LIMIT)
    assert (sim.weights.get(green), blue in sim.weights) == (100, False)
