"""Evictions of a RayCluster's pods on a real API server, with Kubernetes' own disruption controller."""

import asyncio
from typing import cast

import msgspec
import pytest

from cluster_reconciler.config import Config
from common import errors, labels
from common.api.opaque import Body
from common.kube.client import PatchRequest
from common.kube.resources import POD, POD_DISRUPTION_BUDGET, RAY_CLUSTER
from integration.cluster_reconciler.conftest import Live, running
from integration.cluster_reconciler.test_rights import grant
from localcluster.control_plane import ControlPlane
from support.builders.ray_cluster import a_group, a_ray_cluster

pytestmark = [pytest.mark.integration]

ASKED = {labels.DISRUPTION_BUDGET: "true"}


async def evict(live: Live, pod: Body) -> None:
    """Evict a pod as `kubectl drain` does; `Throttled` (429) when a budget refuses it."""
    name = pod["metadata"]["name"]
    body: Body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": live.namespace},
    }
    await live.kube.request("POST", POD.path(live.namespace, name, "eviction"), body=body)


async def budgets(live: Live) -> dict[str, Body]:
    listed = msgspec.json.decode(await live.kube.list(POD_DISRUPTION_BUDGET, live.namespace))[
        "items"
    ]
    return {each["metadata"]["name"]: each for each in listed}


async def allowed(live: Live) -> dict[str, int]:
    """Return how many evictions Kubernetes allows now, once it has counted the pods."""
    found = await budgets(live)
    counted = [
        each
        for each in found.values()
        if each.get("status", {}).get("observedGeneration") == each["metadata"]["generation"]
    ]
    return {
        each["metadata"]["name"]: cast("int", each["status"]["disruptionsAllowed"])
        for each in counted
    }


async def test_the_head_is_not_evicted_and_the_workers_one_at_a_time_until_the_wish_ends(
    control_plane: ControlPlane,
) -> None:
    await grant(control_plane)
    own = await control_plane.kubeconfig_for_service_account("raybus", "cluster-reconciler")
    async with running(control_plane, Config(), kubeconfig=own) as live:
        await live.apply(a_ray_cluster(groups=[a_group(replicas=3)], annotations=ASKED))
        await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "ready")
        await live.eventually(
            lambda: _is(live, {"c-head": 0, "c-worker": 1}),
            "Kubernetes counts the pods of a RayCluster",
        )
        (head,), workers = (
            await live.pods("ray.io/node-type=head"),
            await live.pods("ray.io/node-type=worker"),
        )
        with pytest.raises(errors.Throttled, match="would violate the pod's disruption budget"):
            await evict(live, head)
        await evict(live, workers[0])
        with pytest.raises(errors.Throttled, match="disruption budget"):
            await evict(live, workers[1])
        await live.until(
            lambda c, p: c.status.ready_worker_replicas == 3 and _lacks(p, workers[0]),
            "a worker in its place",
        )
        await live.eventually(
            lambda: _is(live, {"c-head": 0, "c-worker": 1}), "the next one may go"
        )
        await evict(live, workers[1])
        await live.kube.patch(RAY_CLUSTER, live.namespace, "c", _annotated("false"))
        await live.eventually(lambda: _is(live, {}), "the budgets are gone")
        await evict(live, head)
        marked = (await live.cluster()).metadata.annotations
        assert labels.HAS_BUDGETS not in marked
        assert not [reason for reason in await live.reasons() if reason.startswith("Failed")]


async def test_a_budget_goes_with_its_cluster_and_is_not_written_at_rest(live: Live) -> None:
    await live.apply(a_ray_cluster(groups=[a_group(replicas=2)], annotations=ASKED))
    await live.until(lambda c, p: c.status.state == "ready" and len(p) == 3, "ready")
    await live.eventually(
        lambda: _is(live, {"c-head": 0, "c-worker": 1}), "Kubernetes counts the pods"
    )
    before = {name: each["metadata"]["generation"] for name, each in (await budgets(live)).items()}
    live.app.observer.memories.clear()
    live.enqueue_all()
    await asyncio.sleep(1)
    assert {
        name: each["metadata"]["generation"] for name, each in (await budgets(live)).items()
    } == before
    await live.patch({"suspend": True})
    await live.eventually(lambda: _is(live, {}), "a suspended cluster has none")
    await live.patch({"suspend": False})
    await live.eventually(
        lambda: _is(live, {"c-head": 0, "c-worker": 1}), "a resumed one has them again"
    )
    await live.delete()
    await live.eventually(lambda: _is(live, {}), "the garbage collector deletes them")


async def _is(live: Live, expected: dict[str, int]) -> bool:
    return await allowed(live) == expected and len(await budgets(live)) == len(expected)


def _lacks(pods: list[Body], gone: Body) -> bool:
    return gone["metadata"]["uid"] not in {each["metadata"]["uid"] for each in pods}


def _annotated(value: str) -> PatchRequest:
    return PatchRequest(body={"metadata": {"annotations": {labels.DISRUPTION_BUDGET: value}}})
