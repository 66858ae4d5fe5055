"""A namespace that is being deleted takes the RayClusters before the RayService."""

from common import errors
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from scenario.service_reconciler.harness import a_running_harness
from support.fakes.kube import Request


def terminating(request: Request) -> errors.RaybusError | None:
    text = "unable to create new content in namespace default because it is being terminated"
    return errors.NamespaceTerminating(text) if request.verb == "create" else None


async def test_no_upgrade_begins_there() -> None:
    harness = await a_running_harness()
    active, before = harness.active, len(harness.reasons())
    harness.kube.faults.append(terminating)
    await harness.kube.delete(RAY_CLUSTER, "default", active)
    await harness.run(20)
    assert (harness.active, harness.pending, harness.clusters) == (active, "", [])
    assert (harness.reasons()[before:], harness.failed) == ([], [])
    probes = [each for each in harness.kube.requests if each.is_dry_run]
    assert 1 <= len(probes) <= 25
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(2)
    assert harness.kube.all(RAY_SERVICE) == []


async def test_an_active_cluster_that_is_deleted_by_hand_is_replaced_as_before() -> None:
    harness = await a_running_harness()
    gone = harness.active
    harness.kube.faults.append(terminating)
    await harness.kube.delete(RAY_CLUSTER, "default", gone)
    await harness.run(5)
    harness.kube.faults.remove(terminating)
    await harness.until(lambda: harness.is_complete() and harness.active != gone)
