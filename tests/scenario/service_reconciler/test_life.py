"""A RayService from its creation to its end, blue/green in between; spec rayservice §7, §16, acceptance 1, 24-30."""

from scenario.service_reconciler.world import World
from support.builders.ray_service import a_cluster_config, a_serve_config


async def test_24_an_upgrade_moves_both_services_and_promotes_in_one_status_write() -> None:
    world = World()
    world.apply()
    await world.until(world.is_settled)
    blue = world.active
    world.apply(config=a_cluster_config(image="rayproject/ray:2.53.0"), serve=a_serve_config(message="v2"))
    await world.until(lambda: bool(world.pending))
    assert world.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    assert world.selected() == blue
    await world.until(world.is_settled)
    green = world.active
    assert green != blue
    assert world.selected() == world.selected("demo-head-svc") == green
    assert world.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    assert len(world.serve.head(f"{blue}-head-svc").puts) == 1
    await world.run(55)
    assert world.clusters.count(blue) == 1
    await world.run(10)
    assert world.clusters == [green]
