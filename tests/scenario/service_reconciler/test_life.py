"""A RayService from its creation to its end, blue/green in between; spec rayservice §7, §16, acceptance 24, 29."""

import pytest

from scenario.service_reconciler.harness import a_running_harness
from support.builders.ray_service import a_cluster_config, a_serve_config


@pytest.mark.acceptance("rayservice", 24, 29)
async def test_24_an_upgrade_moves_both_services_and_promotes_in_one_status_write() -> None:
    harness = await a_running_harness()
    blue = harness.active
    harness.apply(config=a_cluster_config(rayVersion="2.53.0"), serve=a_serve_config(message="v2"))
    await harness.until(lambda: bool(harness.pending))
    assert harness.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    assert harness.selected() == harness.selected("demo-head-svc") == blue
    done = len(harness.kube.requests)
    await harness.until(harness.is_complete)
    green = harness.active
    assert green != blue
    assert harness.selected() == harness.selected("demo-head-svc") == green
    assert harness.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    statuses = [each.body["status"] for each in harness.kube.requests[done:] if each.subresource == "status"]
    promoted = [each for each in statuses if each["activeServiceStatus"]["rayClusterName"] == green]
    ended = [each for each in statuses if any(held["reason"] == "NoPendingCluster" for held in each["conditions"])]
    assert promoted == ended
    assert len(harness.serve.head(f"{blue}-head-svc").puts) == 1
    await harness.run(55)
    assert harness.clusters.count(blue) == 1
    await harness.run(10)
    assert harness.clusters == [green]
