"""A RayService from its creation to its end, blue/green in between; spec rayservice §7, §16, acceptance 24, 29."""

import pytest

from scenario.service_reconciler.world import a_running_world
from support.builders.ray_service import a_cluster_config, a_serve_config


@pytest.mark.acceptance("rayservice", 24, 29)
async def test_24_an_upgrade_moves_both_services_and_promotes_in_one_status_write() -> None:
    world = await a_running_world()
    blue = world.active
    world.apply(config=a_cluster_config(rayVersion="2.53.0"), serve=a_serve_config(message="v2"))
    await world.until(lambda: bool(world.pending))
    assert world.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    assert world.selected() == world.selected("demo-head-svc") == blue
    done = len(world.kube.requests)
    await world.until(world.is_settled)
    green = world.active
    assert green != blue
    assert world.selected() == world.selected("demo-head-svc") == green
    assert world.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    statuses = [each.body["status"] for each in world.kube.requests[done:] if each.subresource == "status"]
    promoted = [each for each in statuses if each["activeServiceStatus"]["rayClusterName"] == green]
    ended = [each for each in statuses if any(said["reason"] == "NoPendingCluster" for said in each["conditions"])]
    assert promoted == ended
    assert len(world.serve.head(f"{blue}-head-svc").puts) == 1
    await world.run(55)
    assert world.clusters.count(blue) == 1
    await world.run(10)
    assert world.clusters == [green]
