"""A RayCluster's life on a real API server, with pods that kwok runs."""

import asyncio
from collections.abc import Callable

import pytest

from common import labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.client import PatchRequest
from common.kube.resources import POD, Resource
from integration.cluster_reconciler.conftest import Live
from support.builders.ray_cluster import a_group, a_ray_cluster

pytestmark = [pytest.mark.integration]

QUOTA = Resource(kind="ResourceQuota", plural="resourcequotas")


def is_ready(cluster: RayCluster, pods: list[Body]) -> bool:
    return (
        cluster.status.state == "ready"
        and cluster.status.available_worker_replicas == len(pods) - 1
    )


def has_workers(count: int) -> Callable[[RayCluster, list[Body]], bool]:
    def holds(cluster: RayCluster, pods: list[Body]) -> bool:
        return len(pods) == count + 1 and cluster.status.ready_worker_replicas == count

    return holds


@pytest.mark.acceptance("raycluster", 19, 27, 43, 51, 54, 73, 74, 111)
async def test_a_cluster_becomes_ready_scales_heals_suspends_and_goes(live: Live) -> None:
    await live.apply(a_ray_cluster())
    await live.until(lambda c, p: is_ready(c, p) and len(p) == 4, "four pods run")

    async def are_reported() -> bool:  # in the background, after what they report
        return await live.reasons() == {"CreatedService", "CreatedHeadPod", "CreatedWorkerPod"}

    await live.eventually(are_reported, "the Events of the creations")

    await live.scale(5)
    await live.until(has_workers(5), "scaled up to 5")
    await live.scale(1)
    await live.until(has_workers(1), "scaled down to 1")
    await live.scale(3)
    await live.until(has_workers(3), "scaled up to 3")

    worker = (await live.pods(f"{labels.GROUP}=g"))[0]["metadata"]["name"]
    await live.kube.delete(POD, live.namespace, worker)
    await live.until(
        lambda c, p: has_workers(3)(c, p) and worker not in names(p),
        "the killed worker is replaced",
    )

    head = (await live.pods(f"{labels.NODE_TYPE}=head"))[0]["metadata"]["name"]
    failed = PatchRequest(body={"status": {"phase": "Failed"}}, subresource="status")
    await live.kube.patch(POD, live.namespace, head, failed)
    await live.until(
        lambda c, p: (
            is_ready(c, p) and head not in names(p) and c.status.head.pod_name not in {"", head}
        ),
        "the failed head is replaced",
    )

    await live.patch({"suspend": True})
    await live.until(lambda c, p: c.status.state == "suspended" and not p, "suspended")
    await live.patch({"suspend": False})
    await live.until(lambda c, p: is_ready(c, p) and len(p) == 4, "resumed")

    await live.delete()
    await live.eventually(lambda: is_empty(live), "the pods are gone")


async def test_a_ready_cluster_is_not_written_again(live: Live) -> None:
    await live.apply(a_ray_cluster())
    ready = await live.until(lambda c, p: is_ready(c, p) and len(p) == 4, "ready")
    live.enqueue_all()
    await asyncio.sleep(0.5)
    assert (await live.cluster()).metadata.resource_version == ready.metadata.resource_version


@pytest.mark.acceptance("raycluster", 63)
async def test_a_quota_shows_in_status_and_events_and_heals_when_lifted(live: Live) -> None:
    await live.kube.create(
        QUOTA, live.namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}
    )

    async def is_in_force() -> bool:
        return (
            b'"hard"' in (await live.kube.get(QUOTA, live.namespace, "q")).partition(b'"status"')[2]
        )

    await live.eventually(is_in_force, "the quota is in force")
    await live.apply(a_ray_cluster())
    cluster = await live.until(
        lambda c, _: "ReplicaFailure" in conditions(c), "the quota is reported"
    )
    assert conditions(cluster)["ReplicaFailure"][0] == "FailedCreateWorkerPod"
    assert "exceeded quota" in conditions(cluster)["ReplicaFailure"][1]
    assert "FailedToCreateWorkerPod" in await live.reasons()
    await live.kube.delete(QUOTA, live.namespace, "q")
    healed = await live.until(lambda c, p: is_ready(c, p) and len(p) == 4, "healed")
    assert "ReplicaFailure" not in conditions(healed)


@pytest.mark.acceptance("raycluster", 20, 55, 67)
async def test_an_autoscaled_multi_host_cluster_has_its_identity_and_its_groups(live: Live) -> None:
    await live.apply(
        a_ray_cluster(
            enable_in_tree_autoscaling=True,
            groups=[a_group(replicas=2, num_of_hosts=2), a_group("h")],
        )
    )
    await live.until(lambda c, p: is_ready(c, p) and len(p) == 8, "ready")
    for resource in ("serviceaccounts", "roles", "rolebindings"):
        group = "" if resource == "serviceaccounts" else "rbac.authorization.k8s.io"
        assert await live.kube.get(
            Resource(kind="", plural=resource, group=group), live.namespace, "c"
        )
    named = (await live.pods(f"{labels.GROUP}=h"))[1]["metadata"]["name"]
    cluster = await live.cluster()
    strategy = [{}, {"scaleStrategy": {"workersToDelete": [named]}, "replicas": 2}]
    changed = [
        dict(group) | change
        for group, change in zip(cluster.raw_spec["workerGroupSpecs"], strategy, strict=True)
    ]
    await live.patch({"workerGroupSpecs": changed})
    await live.until(lambda c, p: len(p) == 7 and named not in names(p), "the named worker is gone")


@pytest.mark.acceptance("raycluster", 7)
async def test_an_invalid_cluster_is_reported_once(live: Live) -> None:
    await live.apply(a_ray_cluster(groups=[a_group(min_replicas=5, max_replicas=1)]))
    await live.eventually(
        lambda: live.has_reported("InvalidRayClusterSpec"), "the event is written"
    )
    assert await live.pods() == []


@pytest.mark.acceptance("raycluster", 29, 31, 32)
async def test_redis_is_cleaned_before_a_fault_tolerant_cluster_goes(live: Live) -> None:
    await live.apply(a_ray_cluster(gcs_fault_tolerance_options={"redisAddress": "redis:6379"}))
    await live.until(lambda c, p: is_ready(c, p) and len(p) == 4, "ready")
    await live.delete()
    await live.eventually(lambda: live.has_reported("CreatedRedisCleanupJob"), "the Job is made")
    finished = PatchRequest(body={"status": {"phase": "Succeeded"}}, subresource="status")

    async def is_gone() -> bool:
        for pod in await live.pods(f"{labels.NODE_TYPE}={labels.REDIS_CLEANUP}"):
            if pod["status"]["phase"] == "Running":
                await live.kube.patch(POD, live.namespace, pod["metadata"]["name"], finished)
        return not await live.exists()

    await live.eventually(is_gone, "the cluster is gone")


async def is_empty(live: Live) -> bool:
    return not await live.pods()


def names(pods: list[Body]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def conditions(cluster: RayCluster) -> dict[str, tuple[str, str]]:
    return {each.type: (each.reason, each.message) for each in cluster.status.conditions}
