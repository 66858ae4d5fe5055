"""A refused write delays only what depends on it."""

from common import errors
from common.kube.resources import RAY_CLUSTER
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config
from support.fakes.kube import Request
from support.simulator.simulator import Simulator, a_running_simulator

BLUE = a_cluster_config(image="rayproject/ray:2.52.0")
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")


def quota(sim: Simulator, most: int) -> None:
    """Limit the number of RayClusters in the namespace."""

    def fault(request: Request) -> errors.RaybusError | None:
        is_creation = (request.verb, request.kind) == ("create", RAY_CLUSTER.kind)
        return (
            errors.Forbidden("exceeded quota")
            if is_creation and len(sim.clusters) >= most
            else None
        )

    sim.kube.faults.append(fault)


async def test_a_quota_that_refuses_a_new_cluster_is_freed_by_the_end_of_an_old_one() -> None:
    sim = await a_running_simulator(config=BLUE)
    quota(sim, 2)
    blue = sim.active
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    assert len(sim.clusters) == 2
    green = sim.active
    sim.apply(config=RED)
    await sim.until(lambda: sim.is_complete() and sim.active not in {blue, green}, seconds=200)


async def test_a_config_arrives_although_the_change_of_its_cluster_is_refused() -> None:
    sim = await a_running_simulator(config=BLUE)
    active = sim.active
    patched: list[str] = []

    def fault(request: Request) -> errors.RaybusError | None:
        if (request.verb, request.kind) != ("patch", RAY_CLUSTER.kind):
            return None
        patched.append(request.name)
        return errors.Forbidden("denied by a webhook")

    sim.kube.faults.append(fault)
    before = len(sim.serve.head(f"{active}-head-svc").puts)
    grown = a_cluster_config(a_group(), a_group(groupName="more"), image="rayproject/ray:2.52.0")
    sim.apply(config=grown, serve=a_serve_config(message="v2"))
    await sim.run(10)
    assert patched
    assert len(sim.serve.head(f"{active}-head-svc").puts) == before + 1
