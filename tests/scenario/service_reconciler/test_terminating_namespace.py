"""A namespace that is being deleted takes the RayClusters before the RayService."""

from common import errors
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from support.fakes.kube import Request
from support.simulator.simulator import a_running_simulator


def terminating(request: Request) -> errors.RaybusError | None:
    text = "unable to create new content in namespace default because it is being terminated"
    return errors.NamespaceTerminating(text) if request.verb == "create" else None


async def test_no_upgrade_begins_there() -> None:
    sim = await a_running_simulator()
    active, before = sim.active, len(sim.reasons())
    sim.kube.faults.append(terminating)
    await sim.kube.delete(RAY_CLUSTER, "default", active)
    await sim.run(20)
    assert (sim.active, sim.pending, sim.clusters) == (active, "", [])
    assert (sim.reasons()[before:], sim.failed) == ([], [])
    probes = [each for each in sim.kube.requests if each.is_dry_run]
    assert 1 <= len(probes) <= 25
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(2)
    assert sim.kube.all(RAY_SERVICE) == []


async def test_an_active_cluster_that_is_deleted_by_hand_is_replaced_as_before() -> None:
    sim = await a_running_simulator()
    gone = sim.active
    sim.kube.faults.append(terminating)
    await sim.kube.delete(RAY_CLUSTER, "default", gone)
    await sim.run(5)
    sim.kube.faults.remove(terminating)
    await sim.until(lambda: sim.is_complete() and sim.active != gone)
