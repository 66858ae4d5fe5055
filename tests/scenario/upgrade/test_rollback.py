"""Rollback and third specs; spec rayservice §8.8, §8.10, acceptance 59-68."""

import pytest

from common import errors
from common.api.meta import rfc3339
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from scenario.upgrade.world import BLUE, GREEN, RED, Pair, a_running_pair, story_of
from support.builders.ray_service import a_serve_config, a_strategy
from support.fakes.kube import Request
from support.golden import Golden

GREEN_CONFIG = a_serve_config(message="v2")
RED_CONFIG = a_serve_config(message="v3")


async def at_weight(weight: int, **fields: object) -> Pair:
    """Return an upgrade to green that gave the pending cluster a share of the traffic."""
    world = await a_running_pair(**fields)
    world.apply(config=GREEN, serve=GREEN_CONFIG, **fields)
    await world.until(lambda: world.view.weights[1] == weight, seconds=300)
    return world


@pytest.mark.acceptance("rayservice", 59)
async def test_59_a_reverted_spec_takes_everything_back(golden: Golden) -> None:
    world = await at_weight(30, upgradeStrategy=a_strategy())
    blue, green = world.active, world.pending
    start = world.clock.monotonic()
    world.trace.clear()
    world.apply(config=BLUE)
    await world.run(0.25)
    assert world.condition("RollbackInProgress") == ("True", "DesiredClusterSpecChanged")
    assert world.message("RollbackInProgress") == "Goal state reverted to original cluster, rolling back."
    await world.until(world.is_settled, seconds=300)
    golden.check("traffic_manager/back-20-5-10.txt", story_of(world, since=start))
    assert (world.active, world.condition("RollbackInProgress")) == (blue, ("", ""))
    assert world.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    await world.run(70)
    assert (world.clusters, world.weights) == ([blue], {blue: 100})
    assert {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in world.puts(blue)} == {"v1"}
    assert green not in world.clusters


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 60)
async def test_60_a_rollback_is_cancelled_by_the_pending_spec() -> None:
    world = await at_weight(30)
    green = world.pending
    world.apply(config=BLUE)
    await world.until(lambda: world.view.weights == (80, 20), seconds=60)
    world.apply(config=GREEN, serve=GREEN_CONFIG)
    await world.run(1)
    assert not world.is_rolling_back()
    await world.until(lambda: world.is_settled() and world.active == green, seconds=400)


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 61)
async def test_61_a_third_spec_goes_back_first_and_its_config_never_meets_the_first_cluster() -> None:
    world = await at_weight(50)
    blue, green = world.active, world.pending
    world.apply(config=RED, serve=RED_CONFIG)
    await world.run(0.25)
    assert world.message("RollbackInProgress") == "Goal state changed mid-upgrade, rolling back to original cluster."
    await world.until(lambda: world.pending not in {green, ""}, seconds=300)
    red = world.pending
    assert world.active == blue
    await world.until(lambda: world.is_settled() and world.active == red, seconds=500)
    messages = {
        name: {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in world.puts(name)}
        for name in (blue, green, red)
    }
    assert messages == {blue: {"v1"}, green: {"v2"}, red: {"v3"}}


@pytest.mark.acceptance("rayservice", 63)
async def test_63_a_rollback_does_not_wait_for_a_pending_cluster_without_a_ready_head() -> None:
    world = await a_running_pair()
    world.apply(config=GREEN, serve=GREEN_CONFIG)
    await world.until(lambda: world.view.capacities == (80, 40), seconds=100)
    blue, green = world.active, world.pending
    lost = {"type": "HeadPodReady", "status": "False", "reason": "ContainersNotReady", "message": ""}
    when = {"lastTransitionTime": rfc3339(world.clock.now())}
    world.kube.set_status(RAY_CLUSTER, "default", green, {"state": "", "conditions": [{**lost, **when}]})
    world.apply(config=BLUE)
    await world.until(lambda: world.weights.get(blue) == 100, seconds=10)
    assert world.capacities(blue)[-1] == 100
    await world.until(world.is_settled, seconds=10)
    assert (world.active, world.weights) == (blue, {blue: 100})


@pytest.mark.acceptance("rayservice", 64)
async def test_64_a_rollback_needs_no_gateway() -> None:
    world = await at_weight(30)
    blue = world.active
    world.gateway.is_programmed = False
    world.gateway.accepts_routes = False
    world.gateway.forget()
    world.apply(config=BLUE)
    await world.until(world.is_settled, seconds=400)
    assert world.active == blue


@pytest.mark.acceptance("rayservice", 62)
async def test_62_capacity_stays_above_traffic_on_the_way_back() -> None:
    """Judged by what Serve was told and what the route says at each write, not by what the status shows later."""
    strategy = a_strategy(surge=30, step=7, interval=1)
    world = await back_from(strategy)
    pair = (world.active, world.pending)
    seen: list[tuple[dict[str, int], dict[str, int]]] = []

    def note(*_: object) -> None:
        if world.pending == pair[1]:
            seen.append(({name: world.capacities(name)[-1] for name in pair}, dict(world.weights)))

    world.serve.on_put.append(note)
    world.kube.on_change.append(note)
    world.apply(config=BLUE, upgradeStrategy=strategy)
    await world.until(world.is_settled, seconds=200)
    short = [each for each in seen if each[0][pair[1]] < each[1].get(pair[1], 0)]
    assert not short, short[:3]
    assert all(sum(capacities.values()) <= 130 for capacities, _ in seen)
    assert {capacities[pair[1]] for capacities, _ in seen} >= {100, 0}


async def back_from(strategy: Json) -> Pair:
    """Return an upgrade to green of which the active cluster has a capacity of 10."""
    world = await a_running_pair(upgradeStrategy=strategy)
    world.apply(config=GREEN, serve=GREEN_CONFIG, upgradeStrategy=strategy)
    await world.until(lambda: world.view.capacities == (10, 100), seconds=300)
    return world


@pytest.mark.acceptance("rayservice", 65)
async def test_65_a_name_that_is_reverted_before_its_cluster_exists_leaves_none() -> None:
    world = await a_running_pair()
    blue = world.active

    def refused(request: Request) -> errors.RaybusError | None:
        is_creation = (request.verb, request.kind) == ("create", RAY_CLUSTER.kind)
        return errors.Unavailable("the API server is busy") if is_creation else None

    world.kube.faults.append(refused)
    world.apply(config=GREEN)
    await world.run(2)
    named = world.pending
    assert (bool(named), world.clusters) == (True, [blue])
    world.kube.faults.remove(refused)
    done = len(world.kube.requests)
    world.apply(config=BLUE)
    await world.run(10)
    assert (world.clusters, world.active, world.pending) == ([blue], blue, "")
    assert f"create RayCluster {named}" not in [str(each) for each in world.kube.requests[done:]]


@pytest.mark.acceptance("rayservice", 66)
async def test_66_a_spec_that_is_reverted_in_the_last_moment_is_not_promoted() -> None:
    strategy = a_strategy(surge=50, step=25, interval=2)
    world = await a_running_pair(upgradeStrategy=strategy)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=strategy)
    await world.until(lambda: world.view.weights[1] == 100, seconds=60)
    world.is_service_down = True
    await world.until(lambda: world.capacities(blue)[-1] == 0, seconds=10)
    world.is_service_down = False
    world.apply(config=BLUE, upgradeStrategy=strategy)
    await world.run(0.25)
    assert (world.active, world.is_rolling_back()) == (blue, True)
    await world.until(world.is_settled, seconds=100)
    assert (world.active, world.weights) == (blue, {blue: 100})


@pytest.mark.acceptance("rayservice", 67)
async def test_67_a_third_spec_replaces_a_pending_cluster_that_never_was_ready() -> None:
    world = await a_running_pair()
    world.holds_pods = True
    world.apply(config=GREEN)
    await world.run(10)
    blue, green = world.active, world.pending
    world.apply(config=RED)
    await world.run(1)
    assert (world.active, world.weights[blue]) == (blue, 100)
    assert world.pending not in {"", green}


@pytest.mark.acceptance("rayservice", 68)
async def test_68_a_lost_active_cluster_is_replaced_by_the_pending_one() -> None:
    world = await at_weight(10)
    blue, green = world.active, world.pending
    await world.kube.delete(RAY_CLUSTER, "default", blue)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=30)
    assert "RollbackImpossible" in world.reasons()
    await world.run(1)
    assert (world.weights, world.capacities(green)[-1]) == ({green: 100}, 100)


async def test_a_lost_pending_cluster_costs_its_share_and_nothing_else() -> None:
    world = await at_weight(30)
    blue, green = world.active, world.pending
    world.holds_pods = True
    await world.kube.delete(RAY_CLUSTER, "default", green)
    await world.run(2)
    assert world.weights[blue] == 100


@pytest.mark.acceptance("rayservice", 82)
async def test_82_suspend_takes_all_away_and_resume_starts_anew() -> None:
    world = await at_weight(30)
    world.apply(config=GREEN, suspend=True)
    await world.run(10)
    assert (world.condition("Suspended")[0], world.clusters, world.gateways, world.route) == ("True", [], [], None)
    assert {"DeletedGateway", "DeletedHTTPRoute"} <= set(world.reasons())
    world.apply(config=GREEN)
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=30)
    assert (world.view.capacities, world.view.weights) == ((100, None), (100, None))


@pytest.mark.acceptance("rayservice", 85)
async def test_85_a_service_that_goes_in_mid_upgrade_takes_all_with_it() -> None:
    world = await at_weight(30)
    await world.kube.delete(RAY_SERVICE, "default", "demo")
    await world.run(10)
    assert (world.clusters, world.gateways, world.route) == ([], [], None)


@pytest.mark.long
async def test_a_pending_cluster_that_turns_silent_gives_its_share_back_and_resumes() -> None:
    world = await at_weight(30)
    head = world.serve.head(f"{world.pending}-head-svc")
    head.behaviour = "silent"
    await world.run(25)
    assert (world.view.weights, world.view.capacities[0]) == ((100, 0), 100)
    head.behaviour = "ok"
    green = world.pending
    await world.until(lambda: world.is_settled() and world.active == green, seconds=500)
