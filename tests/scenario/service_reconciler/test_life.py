"""A RayService from its creation to its end, blue/green in between; spec rayservice §7, §16, acceptance 24, 29."""

import pytest

from common.api.opaque import Body
from common.kube.resources import RAY_CLUSTER
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import NAMESPACE, a_cluster_config, a_serve_config


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
    statuses = [
        each.body["status"] for each in harness.kube.requests[done:] if each.subresource == "status"
    ]
    promoted = [each for each in statuses if each["activeServiceStatus"]["rayClusterName"] == green]
    ended = [
        each
        for each in statuses
        if any(held["reason"] == "NoPendingCluster" for held in each["conditions"])
    ]
    assert promoted == ended
    assert len(harness.serve.head(f"{blue}-head-svc").puts) == 1
    await harness.run(55)
    assert harness.clusters.count(blue) == 1
    await harness.run(10)
    assert harness.clusters == [green]


def provisioned(harness: Harness, status: str, **changed: object) -> None:
    """Set the condition RayClusterProvisioned of the active cluster, which has been observed before."""
    (cluster,) = [
        each for each in harness.kube.all(RAY_CLUSTER) if each["metadata"]["name"] == harness.active
    ]
    reason = "AllPodRunningAndReadyFirstTime" if status == "True" else "RayClusterPodsProvisioning"
    condition = {
        "type": "RayClusterProvisioned",
        "status": status,
        "reason": reason,
        "message": "",
        **changed,
    }
    held = [
        each for each in cluster["status"]["conditions"] if each["type"] != "RayClusterProvisioned"
    ]
    kept = {"lastTransitionTime": "2026-01-01T00:00:00Z", **condition}
    body: Body = {**cluster["status"], "conditions": [*held, kept]}
    harness.kube.set_status(RAY_CLUSTER, NAMESPACE, harness.active, body)


def shown(harness: Harness) -> dict[str, str]:
    nested = harness.status["activeServiceStatus"]["rayClusterStatus"]["conditions"]
    return {each["type"]: each["status"] for each in nested}


async def test_the_copy_of_a_clusters_conditions_follows_a_service_at_rest() -> None:
    harness = await a_running_harness()
    provisioned(harness, "False")
    harness.apply(serve=a_serve_config(message="v2"))
    await harness.run(10)
    assert shown(harness) == {"HeadPodReady": "True", "RayClusterProvisioned": "False"}
    provisioned(harness, "True")
    await harness.run(10)
    assert shown(harness) == {"HeadPodReady": "True", "RayClusterProvisioned": "True"}
    assert harness.condition("Ready") == ("True", "NonZeroServeEndpoints")


async def test_the_copy_of_a_message_alone_is_no_write() -> None:
    harness = await a_running_harness()
    provisioned(harness, "False")
    harness.apply(serve=a_serve_config(message="v2"))
    await harness.run(10)
    assert shown(harness) == {"HeadPodReady": "True", "RayClusterProvisioned": "False"}
    writes = len(harness.kube.writes())
    provisioned(harness, "False", message="2 of 3 pods are ready")
    await harness.run(10)
    assert len(harness.kube.writes()) == writes
