"""What is refused holds up only what depends on it."""

from common import errors
from common.kube.resources import RAY_CLUSTER
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config
from support.fakes.kube import Request

BLUE = a_cluster_config(image="rayproject/ray:2.52.0")
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")


def quota(harness: Harness, most: int) -> None:
    """Let the namespace hold so many RayClusters."""

    def fault(request: Request) -> errors.RaybusError | None:
        is_creation = (request.verb, request.kind) == ("create", RAY_CLUSTER.kind)
        return (
            errors.Forbidden("exceeded quota")
            if is_creation and len(harness.clusters) >= most
            else None
        )

    harness.kube.faults.append(fault)


async def test_a_quota_that_refuses_a_new_cluster_is_freed_by_the_end_of_an_old_one() -> None:
    harness = await a_running_harness(config=BLUE)
    quota(harness, 2)
    blue = harness.active
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    assert len(harness.clusters) == 2
    green = harness.active
    harness.apply(config=RED)
    await harness.until(
        lambda: harness.is_complete() and harness.active not in {blue, green}, seconds=200
    )


async def test_a_config_arrives_although_the_change_of_its_cluster_is_refused() -> None:
    harness = await a_running_harness(config=BLUE)
    active = harness.active
    patched: list[str] = []

    def fault(request: Request) -> errors.RaybusError | None:
        if (request.verb, request.kind) != ("patch", RAY_CLUSTER.kind):
            return None
        patched.append(request.name)
        return errors.Forbidden("denied by a webhook")

    harness.kube.faults.append(fault)
    before = len(harness.serve.head(f"{active}-head-svc").puts)
    grown = a_cluster_config(a_group(), a_group(groupName="more"), image="rayproject/ray:2.52.0")
    harness.apply(config=grown, serve=a_serve_config(message="v2"))
    await harness.run(10)
    assert patched
    assert len(harness.serve.head(f"{active}-head-svc").puts) == before + 1
