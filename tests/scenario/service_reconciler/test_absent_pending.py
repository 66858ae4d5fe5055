"""A pending cluster that the status names but that does not exist is created or dropped."""

from typing import Any

import pytest

from common import errors
from common.kube.resources import RAY_CLUSTER
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config
from support.fakes.kube import refusing
from support.simulator.simulator import Simulator, a_running_simulator

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
APPENDED = a_cluster_config(a_group(), a_group("large"))
NONE = {"upgradeStrategy": {"type": "None"}}
QUOTA = refusing("create", RAY_CLUSTER.kind, errors.Forbidden("exceeded quota: rayclusters"))


async def with_an_absent_pending_cluster(how: str) -> Simulator:
    sim = await a_running_simulator()
    if how == "quota":
        sim.kube.faults.append(QUOTA)
        sim.apply(config=GREEN)
        await sim.run(3)
    else:
        sim.ray_clusters.holds_pods = True
        sim.apply(config=GREEN)
        await sim.run(3)
        sim.kube.faults.append(QUOTA)
        await sim.kube.delete(RAY_CLUSTER, "default", sim.pending)
        await sim.run(3)
        sim.ray_clusters.holds_pods = False
    assert sim.pending
    assert sim.clusters == [sim.active]
    return sim


@pytest.mark.parametrize("how", ["quota", "deleted by hand"])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"config": APPENDED}, id="the active one and a worker group"),
        pytest.param({"config": GREEN, **NONE}, id="the strategy None"),
        pytest.param({"config": APPENDED, **NONE}, id="both"),
        pytest.param({}, id="the active one"),
    ],
)
async def test_it_is_dropped_when_the_spec_needs_no_new_cluster(
    how: str, fields: dict[str, Any]
) -> None:
    sim = await with_an_absent_pending_cluster(how)
    active = sim.active
    sim.apply(**fields, serve=a_serve_config(message="v2"))
    await sim.run(10)
    assert (sim.active, sim.pending) == (active, "")
    assert sim.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    sent = sim.serve.head(f"{active}-head-svc").puts
    assert sent[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "v2"
    if fields.get("config") is APPENDED:
        stored = sim.kube.objects[(RAY_CLUSTER.kind, "default", active)]
        assert len(stored["spec"]["workerGroupSpecs"]) == 2


@pytest.mark.parametrize("how", ["quota", "deleted by hand"])
async def test_it_is_created_as_soon_as_that_is_possible_while_the_spec_needs_it(how: str) -> None:
    sim = await with_an_absent_pending_cluster(how)
    pending = sim.pending
    sim.kube.faults.remove(QUOTA)
    await sim.until(lambda: sim.is_complete() and sim.active == pending)


async def test_a_pending_cluster_goes_when_the_active_one_only_lacks_a_worker_group() -> None:
    sim = await a_running_simulator(rayClusterDeletionDelaySeconds=1)
    active = sim.active
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=1)
    await sim.until(lambda: len(sim.clusters) == 2)
    sim.apply(config=APPENDED, rayClusterDeletionDelaySeconds=1)
    await sim.run(6)
    assert (sim.active, sim.pending, sim.clusters) == (active, "", [active])
