"""Rollback and third specs; spec rayservice §8.8, §8.10, acceptance 59-68."""

import pytest

from common import errors
from common.api.meta import rfc3339
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from support.builders.ray_service import a_serve_config, a_strategy
from support.fakes.kube import refusing
from support.golden import Golden
from support.simulator.simulator import BLUE, GREEN, RED, Simulator, a_running_pair

GREEN_CONFIG = a_serve_config(message="v2")
RED_CONFIG = a_serve_config(message="v3")


async def at_weight(weight: int, **fields: object) -> Simulator:
    """Return an upgrade to green that gave the pending cluster a share of the traffic."""
    sim = await a_running_pair(**fields)
    sim.apply(config=GREEN, serve=GREEN_CONFIG, **fields)
    await sim.until(lambda: sim.view.weights[1] == weight, seconds=300)
    return sim


@pytest.mark.acceptance("rayservice", 59)
async def test_59_a_reverted_spec_takes_everything_back(golden: Golden) -> None:
    sim = await at_weight(30, upgradeStrategy=a_strategy())
    blue, green = sim.active, sim.pending
    start = sim.clock.monotonic()
    sim.observer.trace.clear()
    sim.apply(config=BLUE)
    await sim.run(0.25)
    assert sim.condition("RollbackInProgress") == ("True", "DesiredClusterSpecChanged")
    assert (
        sim.message("RollbackInProgress")
        == "Goal state reverted to original cluster, rolling back."
    )
    await sim.until(sim.is_complete, seconds=300)
    golden.check("traffic_manager/back-20-5-10.txt", sim.observer.trace_since(start))
    assert (sim.active, sim.condition("RollbackInProgress")) == (blue, ("", ""))
    assert sim.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    await sim.run(70)
    assert (sim.clusters, sim.weights) == ([blue], {blue: 100})
    assert {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in sim.puts(blue)
    } == {"v1"}
    assert green not in sim.clusters


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 60)
async def test_60_a_rollback_is_cancelled_by_the_pending_spec() -> None:
    sim = await at_weight(30)
    green = sim.pending
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.view.weights == (80, 20), seconds=60)
    sim.apply(config=GREEN, serve=GREEN_CONFIG)
    await sim.run(1)
    assert not sim.is_rolling_back()
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=400)


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 61)
async def test_61_a_third_spec_rolls_back_first_and_its_config_never_meets_the_first_cluster() -> (
    None
):
    sim = await at_weight(50)
    blue, green = sim.active, sim.pending
    sim.apply(config=RED, serve=RED_CONFIG)
    await sim.run(0.25)
    assert (
        sim.message("RollbackInProgress")
        == "Goal state changed mid-upgrade, rolling back to original cluster."
    )
    await sim.until(lambda: sim.pending not in {green, ""}, seconds=300)
    red = sim.pending
    assert sim.active == blue
    await sim.until(lambda: sim.is_complete() and sim.active == red, seconds=500)
    messages = {
        name: {
            each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in sim.puts(name)
        }
        for name in (blue, green, red)
    }
    assert messages == {blue: {"v1"}, green: {"v2"}, red: {"v3"}}


@pytest.mark.acceptance("rayservice", 63)
async def test_63_a_rollback_does_not_wait_for_a_pending_cluster_without_a_ready_head() -> None:
    sim = await a_running_pair()
    sim.apply(config=GREEN, serve=GREEN_CONFIG)
    await sim.until(lambda: sim.view.capacities == (80, 40), seconds=100)
    blue, green = sim.active, sim.pending
    lost = {
        "type": "HeadPodReady",
        "status": "False",
        "reason": "ContainersNotReady",
        "message": "",
    }
    when = {"lastTransitionTime": rfc3339(sim.clock.now())}
    sim.kube.set_status(
        RAY_CLUSTER, "default", green, {"state": "", "conditions": [{**lost, **when}]}
    )
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=10)
    assert sim.capacities(blue)[-1] == 100
    await sim.until(sim.is_complete, seconds=10)
    assert (sim.active, sim.weights) == (blue, {blue: 100})


@pytest.mark.acceptance("rayservice", 64)
async def test_64_a_rollback_needs_no_gateway() -> None:
    sim = await at_weight(30)
    blue = sim.active
    sim.gateway.is_programmed = False
    sim.gateway.accepts_routes = False
    sim.gateway.forget()
    sim.apply(config=BLUE)
    await sim.until(sim.is_complete, seconds=400)
    assert sim.active == blue


@pytest.mark.acceptance("rayservice", 62)
async def test_62_capacity_stays_above_traffic_on_the_way_back() -> None:
    """Judged by the capacity that Serve got and the weights of the route at each write, not by what the status shows later."""
    strategy = a_strategy(surge=30, step=7, interval=1)
    sim = await back_from(strategy)
    pair = (sim.active, sim.pending)
    seen: list[tuple[dict[str, int], dict[str, int]]] = []

    def note(*_: object) -> None:
        if sim.pending == pair[1]:
            seen.append(({name: sim.capacities(name)[-1] for name in pair}, dict(sim.weights)))

    sim.serve.on_put.append(note)
    sim.kube.on_change.append(note)
    sim.apply(config=BLUE, upgradeStrategy=strategy)
    await sim.until(sim.is_complete, seconds=200)
    short = [each for each in seen if each[0][pair[1]] < each[1].get(pair[1], 0)]
    assert not short, short[:3]
    assert all(sum(capacities.values()) <= 130 for capacities, _ in seen)
    assert {capacities[pair[1]] for capacities, _ in seen} >= {100, 0}


async def back_from(strategy: Json) -> Simulator:
    """Return an upgrade to green of which the active cluster has a capacity of 10."""
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.apply(config=GREEN, serve=GREEN_CONFIG, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.capacities == (10, 100), seconds=300)
    return sim


@pytest.mark.acceptance("rayservice", 65)
async def test_65_a_name_that_is_reverted_before_its_cluster_exists_leaves_none() -> None:
    sim = await a_running_pair()
    blue = sim.active
    busy = errors.Unavailable("the API server is busy")
    refused = refusing("create", RAY_CLUSTER.kind, busy)
    sim.kube.faults.append(refused)
    sim.apply(config=GREEN)
    await sim.run(2)
    named = sim.pending
    assert (bool(named), sim.clusters) == (True, [blue])
    sim.kube.faults.remove(refused)
    done = len(sim.kube.requests)
    sim.apply(config=BLUE)
    await sim.run(10)
    assert (sim.clusters, sim.active, sim.pending) == ([blue], blue, "")
    assert f"create RayCluster {named}" not in [str(each) for each in sim.kube.requests[done:]]


@pytest.mark.acceptance("rayservice", 66)
async def test_66_a_spec_that_is_reverted_in_the_last_moment_is_not_promoted() -> None:
    strategy = a_strategy(surge=50, step=25, interval=2)
    sim = await a_running_pair(upgradeStrategy=strategy)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights[1] == 100, seconds=60)
    sim.services["service"].is_down = True
    await sim.until(lambda: sim.capacities(blue)[-1] == 0, seconds=10)
    sim.services["service"].is_down = False
    sim.apply(config=BLUE, upgradeStrategy=strategy)
    await sim.run(0.25)
    assert (sim.active, sim.is_rolling_back()) == (blue, True)
    await sim.until(sim.is_complete, seconds=100)
    assert (sim.active, sim.weights) == (blue, {blue: 100})


@pytest.mark.acceptance("rayservice", 67)
async def test_67_a_third_spec_replaces_a_pending_cluster_that_never_was_ready() -> None:
    sim = await a_running_pair()
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN)
    await sim.run(10)
    blue, green = sim.active, sim.pending
    sim.apply(config=RED)
    await sim.run(1)
    assert (sim.active, sim.weights[blue]) == (blue, 100)
    assert sim.pending not in {"", green}


@pytest.mark.acceptance("rayservice", 68)
async def test_68_a_lost_active_cluster_is_replaced_by_the_pending_one() -> None:
    sim = await at_weight(10)
    blue, green = sim.active, sim.pending
    await sim.kube.delete(RAY_CLUSTER, "default", blue)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)
    assert "RollbackImpossible" in sim.reasons()
    await sim.run(1)
    assert (sim.weights, sim.capacities(green)[-1]) == ({green: 100}, 100)


async def test_a_lost_pending_cluster_costs_its_share_and_nothing_else() -> None:
    sim = await at_weight(30)
    blue, green = sim.active, sim.pending
    sim.ray_clusters.holds_pods = True
    await sim.kube.delete(RAY_CLUSTER, "default", green)
    await sim.run(2)
    assert sim.weights[blue] == 100


@pytest.mark.acceptance("rayservice", 82)
async def test_82_suspend_takes_all_away_and_resume_starts_anew() -> None:
    sim = await at_weight(30)
    sim.apply(config=GREEN, suspend=True)
    await sim.run(10)
    assert (sim.condition("Suspended")[0], sim.clusters, sim.gateways, sim.route) == (
        "True",
        [],
        [],
        None,
    )
    assert {"DeletedGateway", "DeletedHTTPRoute"} <= set(sim.reasons())
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=30)
    assert (sim.view.capacities, sim.view.weights) == ((100, None), (100, None))


@pytest.mark.acceptance("rayservice", 85)
async def test_85_a_service_that_goes_in_mid_upgrade_takes_all_with_it() -> None:
    sim = await at_weight(30)
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(10)
    assert (sim.clusters, sim.gateways, sim.route) == ([], [], None)


@pytest.mark.long
async def test_a_pending_cluster_that_turns_silent_keeps_its_share_and_resumes() -> None:
    sim = await at_weight(30)
    head = sim.serve.head(f"{sim.pending}-head-svc")
    head.behaviour = "silent"
    await sim.run(25)
    assert sim.view.weights == (70, 30)
    head.behaviour = "ok"
    green = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=500)


async def test_silence_ends_no_cluster_to_which_a_late_gateway_still_sends() -> None:
    """A rollback does not wait for the capacity of a silent cluster, but for its last request."""
    sim = await at_weight(30)
    green = sim.pending
    sim.serve.head(f"{green}-head-svc").behaviour = "silent"
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.weights.get(green, 0) == 0, seconds=300)
    sim.gateway.is_asleep = True
    await sim.run(200)
    assert green in sim.clusters
    sim.gateway.is_asleep = False
    await sim.until(lambda: green not in sim.clusters, seconds=400)
    assert sim.clusters == [sim.active]


async def test_the_events_of_a_third_spec_name_the_cause_of_each_upgrade() -> None:
    strategy = a_strategy(surge=100, step=50, interval=1)
    sim = await at_weight(50, upgradeStrategy=strategy)
    green = sim.pending
    sim.apply(config=RED, serve=RED_CONFIG, upgradeStrategy=strategy)
    await sim.until(lambda: sim.pending not in {green, ""}, seconds=100)
    started = [note for _, reason, note in sim.kube.events() if reason == "UpgradeStarted"]
    assert [note.partition(": ")[2] for note in started] == [
        "the cluster spec changed",
        "the spec changed again, and all traffic is back on the active cluster",
    ]
