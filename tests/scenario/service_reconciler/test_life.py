"""A RayService from its creation to its end, blue/green in between; spec rayservice §7, §16, acceptance 24, 29."""

import pytest

from common.api.opaque import Body
from common.kube.resources import RAY_CLUSTER
from support.builders.ray_service import NAMESPACE, a_cluster_config, a_serve_config
from support.simulator.simulator import Simulator, a_running_simulator


@pytest.mark.acceptance("rayservice", 24, 29)
async def test_24_an_upgrade_moves_both_services_and_promotes_in_one_status_write() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    sim.apply(config=a_cluster_config(rayVersion="2.53.0"), serve=a_serve_config(message="v2"))
    await sim.until(lambda: bool(sim.pending))
    assert sim.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    assert sim.selected() == sim.selected("demo-head-svc") == blue
    done = len(sim.kube.requests)
    await sim.until(sim.is_complete)
    green = sim.active
    assert green != blue
    assert sim.selected() == sim.selected("demo-head-svc") == green
    assert sim.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    statuses = [
        each.body["status"] for each in sim.kube.requests[done:] if each.subresource == "status"
    ]
    promoted = [each for each in statuses if each["activeServiceStatus"]["rayClusterName"] == green]
    ended = [
        each
        for each in statuses
        if any(held["reason"] == "NoPendingCluster" for held in each["conditions"])
    ]
    assert promoted == ended
    assert len(sim.serve.head(f"{blue}-head-svc").puts) == 1
    await sim.run(55)
    assert sim.clusters.count(blue) == 1
    await sim.run(10)
    assert sim.clusters == [green]


def provisioned(sim: Simulator, status: str, **changed: object) -> None:
    """Set the condition RayClusterProvisioned of the active cluster, which has been observed before."""
    (cluster,) = [
        each for each in sim.kube.all(RAY_CLUSTER) if each["metadata"]["name"] == sim.active
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
    sim.kube.set_status(RAY_CLUSTER, NAMESPACE, sim.active, body)


def shown(sim: Simulator) -> dict[str, str]:
    nested = sim.status["activeServiceStatus"]["rayClusterStatus"]["conditions"]
    return {each["type"]: each["status"] for each in nested}


async def test_the_copy_of_a_clusters_conditions_follows_a_service_at_rest() -> None:
    sim = await a_running_simulator()
    provisioned(sim, "False")
    sim.apply(serve=a_serve_config(message="v2"))
    await sim.run(10)
    assert shown(sim) == {"HeadPodReady": "True", "RayClusterProvisioned": "False"}
    provisioned(sim, "True")
    await sim.run(10)
    assert shown(sim) == {"HeadPodReady": "True", "RayClusterProvisioned": "True"}
    assert sim.condition("Ready") == ("True", "NonZeroServeEndpoints")


async def test_the_copy_of_a_message_alone_is_no_write() -> None:
    sim = await a_running_simulator()
    provisioned(sim, "False")
    sim.apply(serve=a_serve_config(message="v2"))
    await sim.run(10)
    assert shown(sim) == {"HeadPodReady": "True", "RayClusterProvisioned": "False"}
    writes = len(sim.kube.writes())
    provisioned(sim, "False", message="2 of 3 pods are ready")
    await sim.run(10)
    assert len(sim.kube.writes()) == writes
