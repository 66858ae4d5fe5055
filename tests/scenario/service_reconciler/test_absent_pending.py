"""A pending cluster that the status names and that does not exist: it is created or dropped."""

from typing import Any

import pytest

from common import errors
from common.kube.resources import RAY_CLUSTER
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config
from support.fakes.kube import Request

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
APPENDED = a_cluster_config(a_group(), a_group("large"))
NONE = {"upgradeStrategy": {"type": "None"}}


def refused(request: Request) -> errors.RaybusError | None:
    is_creation = (request.verb, request.kind) == ("create", RAY_CLUSTER.kind)
    return errors.Forbidden("exceeded quota: rayclusters") if is_creation else None


async def with_an_absent_pending_cluster(how: str) -> Harness:
    harness = await a_running_harness()
    if how == "quota":
        harness.kube.faults.append(refused)
        harness.apply(config=GREEN)
        await harness.run(3)
    else:
        harness.holds_pods = True
        harness.apply(config=GREEN)
        await harness.run(3)
        harness.kube.faults.append(refused)
        await harness.kube.delete(RAY_CLUSTER, "default", harness.pending)
        await harness.run(3)
        harness.holds_pods = False
    assert harness.pending
    assert harness.clusters == [harness.active]
    return harness


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
    harness = await with_an_absent_pending_cluster(how)
    active = harness.active
    harness.apply(**fields, serve=a_serve_config(message="v2"))
    await harness.run(10)
    assert (harness.active, harness.pending) == (active, "")
    assert harness.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    sent = harness.serve.head(f"{active}-head-svc").puts
    assert sent[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "v2"
    if fields.get("config") is APPENDED:
        stored = harness.kube.objects[(RAY_CLUSTER.kind, "default", active)]
        assert len(stored["spec"]["workerGroupSpecs"]) == 2


@pytest.mark.parametrize("how", ["quota", "deleted by hand"])
async def test_it_is_created_as_soon_as_that_is_possible_while_the_spec_needs_it(how: str) -> None:
    harness = await with_an_absent_pending_cluster(how)
    pending = harness.pending
    harness.kube.faults.remove(refused)
    await harness.until(lambda: harness.is_complete() and harness.active == pending)


async def test_a_pending_cluster_goes_when_the_active_one_only_lacks_a_worker_group() -> None:
    harness = await a_running_harness(rayClusterDeletionDelaySeconds=1)
    active = harness.active
    harness.holds_pods = True
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=1)
    await harness.until(lambda: len(harness.clusters) == 2)
    harness.apply(config=APPENDED, rayClusterDeletionDelaySeconds=1)
    await harness.run(6)
    assert (harness.active, harness.pending, harness.clusters) == (active, "", [active])
