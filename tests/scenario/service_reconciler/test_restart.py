"""Killed before or after any write of an upgrade, the next process ends where an undisturbed one would (design rule 7)."""

import pytest

from scenario.service_reconciler.world import World
from support.builders.ray_service import a_cluster_config, a_serve_config
from support.sampling import one_of

UPGRADE = {
    "config": a_cluster_config(image="rayproject/ray:2.53.0"),
    "serve": a_serve_config(message="v2"),
    "rayClusterDeletionDelaySeconds": 3,
}
WRITES = 44
"""More than an undisturbed life has: the test below says so."""


async def live(world: World) -> None:
    """Create a service, upgrade it, wait until the old cluster is gone."""
    world.apply(rayClusterDeletionDelaySeconds=3)
    await world.until(world.is_settled)
    blue = world.active
    world.apply(**UPGRADE)
    await world.until(lambda: world.is_settled() and world.active != blue and len(world.clusters) == 1)


def check_end(world: World) -> None:
    """Compare with the end of an undisturbed life."""
    created = [
        each.body["metadata"]["name"] for each in world.kube.requests if str(each).startswith("create RayCluster")
    ]
    blue, green = dict.fromkeys(created)
    assert world.clusters == [green] == [world.active]
    assert world.selected() == world.selected("demo-head-svc") == green
    assert world.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    sent = {name: {_message(config) for config in world.serve.head(f"{name}-head-svc").puts} for name in (blue, green)}
    assert sent == {blue: {"v1"}, green: {"v2"}}


def _message(config: dict[str, list[dict[str, dict[str, dict[str, str]]]]]) -> str:
    return config["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]


async def test_an_undisturbed_life_has_no_more_writes_than_the_tests_below_disturb() -> None:
    world = World()
    await live(world)
    check_end(world)
    assert WRITES - 6 <= world.writes <= WRITES


@pytest.mark.parametrize("write", one_of(3, range(1, WRITES + 1)))
async def test_killed_before_a_write_it_ends_the_same(write: int) -> None:
    world = World()
    world.kill_before = write
    await live(world)
    check_end(world)


@pytest.mark.parametrize("write", one_of(3, range(1, WRITES + 1)))
async def test_killed_after_a_write_it_ends_the_same(write: int) -> None:
    world = World()
    world.kill_after = write
    await live(world)
    check_end(world)
