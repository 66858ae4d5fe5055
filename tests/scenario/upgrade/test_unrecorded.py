"""A service that another operator upgraded until now: nobody recorded what its clusters serve."""

from common.kube.resources import CONTROLLER_REVISION
from scenario.upgrade.test_controls import STEPS, V2, is_at_rest, messages
from scenario.upgrade.world import BLUE, GREEN, Pair, a_running_pair


async def taken_over(*, tells: bool) -> Pair:
    """Return an upgrade in mid-way of which no record is left."""
    world = await a_running_pair(upgradeStrategy=STEPS)
    world.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS)
    await world.until(lambda: world.view.weights[1] == 50, seconds=60)
    for name in (world.active, world.pending):
        world.serve.head(f"{name}-head-svc").tells_configs = tells
    for each in world.kube.all(CONTROLLER_REVISION):
        await world.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
    world.restart()
    return world


async def test_a_rollback_goes_by_what_serve_tells_of_the_active_cluster() -> None:
    world = await taken_over(tells=True)
    blue = world.active
    world.apply(config=BLUE, upgradeStrategy=STEPS)
    await world.until(world.is_settled, seconds=60)
    assert (world.active, world.weights, messages(world, blue)) == (blue, {blue: 100}, {"v1"})
    assert "ServeConfigUnknown" not in world.reasons()


async def test_a_rollback_that_cannot_know_the_config_says_so_and_the_way_forward_is_open() -> None:
    world = await taken_over(tells=False)
    green = world.pending
    world.apply(config=BLUE, upgradeStrategy=STEPS)
    await world.run(20)
    assert "nobody recorded its Serve config" in world.message("UpgradeInProgress")
    assert (world.reasons().count("ServeConfigUnknown"), await is_at_rest(world)) == (1, True)
    world.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)
