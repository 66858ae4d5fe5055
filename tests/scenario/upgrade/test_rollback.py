"""Rollback and third specs; spec rayservice §8.8, §8.10, acceptance 59-68."""

from scenario.upgrade.world import BLUE, GREEN, RED, Pair, a_running_pair, a_strategy, story_of
from support.builders.ray_service import a_serve_config
from support.golden import Golden

GREEN_CONFIG = a_serve_config(message="v2")
RED_CONFIG = a_serve_config(message="v3")


async def at_weight(weight: int, **fields: object) -> Pair:
    """Return an upgrade to green that gave the pending cluster a share of the traffic."""
    world = await a_running_pair(**fields)
    world.apply(config=GREEN, serve=GREEN_CONFIG, **fields)
    await world.until(lambda: world.view.weights[1] == weight, seconds=300)
    return world


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


async def test_60_a_rollback_is_cancelled_by_the_pending_spec() -> None:
    world = await at_weight(30)
    green = world.pending
    world.apply(config=BLUE)
    await world.until(lambda: world.view.weights == (80, 20), seconds=60)
    world.apply(config=GREEN, serve=GREEN_CONFIG)
    await world.run(1)
    assert not world.is_rolling_back()
    await world.until(lambda: world.is_settled() and world.active == green, seconds=400)


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


async def test_63_a_sick_pending_cluster_keeps_nothing() -> None:
    world = await at_weight(30)
    world.serve.head(f"{world.pending}-head-svc").behaviour = "silent"
    blue = world.active
    world.apply(config=BLUE)
    await world.until(world.is_settled, seconds=30)
    assert (world.active, world.weights) == (blue, {blue: 100})


async def test_64_a_rollback_needs_no_gateway() -> None:
    world = await at_weight(30)
    blue = world.active
    world.gateway.is_programmed = False
    world.gateway.accepts_routes = False
    world.gateway.forget()
    world.apply(config=BLUE)
    await world.until(world.is_settled, seconds=400)
    assert world.active == blue
