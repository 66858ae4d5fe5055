"""The life of a cluster with every feature, through a real watcher and a real nats-server, to the last child collected.

Autoscaler, fault tolerance, Ingress, token, hosts in groups, a head Service of the user's shape: `everything.yaml`.
Spec raycluster §6-§9; acceptance cases 29, 54, 73, 74.
"""

import asyncio
from pathlib import Path

import pytest

from common import labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.client import JSON_PATCH, PatchRequest
from common.kube.resources import POD, RAY_CLUSTER
from integration.cluster_reconciler.conftest import Live, running
from localcluster.control_plane import ControlPlane
from support.kuberay import goldens, objects
from support.kuberay.placing import place
from support.kuberay.settings import of_name

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("scheduler_kinds")]

NAME = "everything"
SETTING = of_name("plain")


@pytest.mark.acceptance("raycluster", 29, 54, 73, 74)
async def test_a_cluster_with_every_feature_lives_and_leaves_nothing(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    manifest = next(
        each for each in goldens.users(SETTING.folder) if each["metadata"]["name"] == NAME
    )
    async with (
        running(control_plane, SETTING.config(), bus=tmp_path) as live,
        asyncio.TaskGroup() as group,
    ):
        placing = group.create_task(place(live.kube, live.namespace))
        await live.apply_all([manifest])
        await live.until(lambda c, p: is_ready(c, p, workers=4), "ready", NAME)
        for replicas, workers in ((4, 6), (1, 3)):
            await scale(live, replicas)
            await live.until(
                lambda c, p, count=workers: is_ready(c, p, workers=count),
                f"{workers} workers",
                NAME,
            )
        await live.patch({"suspend": True}, NAME)
        await live.until(lambda c, p: c.status.state == "suspended" and not p, "suspended", NAME)
        await live.patch({"suspend": False}, NAME)
        await live.until(lambda c, p: is_ready(c, p, workers=3), "resumed", NAME)
        await live.kube.delete(RAY_CLUSTER, live.namespace, NAME)
        await live.eventually(
            lambda: is_gone(live), "the cluster is gone, and Redis was cleaned before"
        )
        await live.eventually(lambda: is_empty(live), "every child is collected")
        assert "CreatedRedisCleanupJob" in await live.reasons()
        assert not [reason for reason in await live.reasons() if reason.startswith("Failed")]
        placing.cancel()


def is_ready(cluster: RayCluster, pods: list[Body], *, workers: int) -> bool:
    status = cluster.status
    return (status.state, status.ready_worker_replicas, len(pods)) == (
        "ready",
        workers,
        workers + 1,
    )


async def scale(live: Live, replicas: int) -> None:
    """Name the workers that go, as the autoscaler does, and set how many there should be."""
    workers = [pod["metadata"]["name"] for pod in await live.pods(f"{labels.GROUP}=single")]
    change: list[Body] = [
        {"op": "replace", "path": "/spec/workerGroupSpecs/1/replicas", "value": replicas},
        {
            "op": "add",
            "path": "/spec/workerGroupSpecs/1/scaleStrategy",
            "value": {"workersToDelete": workers[replicas:]},
        },
    ]
    await live.kube.patch(
        RAY_CLUSTER, live.namespace, NAME, PatchRequest(body=change, content_type=JSON_PATCH)
    )


async def is_gone(live: Live) -> bool:
    """Let the Job that cleans Redis succeed, and return whether the cluster is gone."""
    succeeded = PatchRequest(body={"status": {"phase": "Succeeded"}}, subresource="status")
    for pod in await live.pods(f"{labels.NODE_TYPE}={labels.REDIS_CLEANUP}"):
        if pod["status"]["phase"] == "Running":
            await live.kube.patch(POD, live.namespace, pod["metadata"]["name"], succeeded)
    return not await live.exists(NAME)


async def is_empty(live: Live) -> bool:
    return goldens.owned(await objects.read(live.kube, live.namespace)) == []
