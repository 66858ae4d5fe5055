"""One real control plane, and cluster-reconciler running against it without NATS."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from cluster_reconciler import wiring
from cluster_reconciler.config import Config
from common import errors
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.client import KubeClient, Patch
from common.kube.resources import EVENT, JOB, POD, RAY_CLUSTER, SERVICE, Resource
from common.runtime.clock import SystemClock
from common.runtime.replica import ALL_PARTITIONS
from localcluster.control_plane import ControlPlane
from support.fakes.api_feed import ApiFeed
from support.servers.control_plane import control_plane

PATIENCE = 30.0
"""Seconds until a condition that never holds fails the test."""


class Live:
    """A namespace of a real API server, with the service at work on it."""

    def __init__(self, kube: KubeClient, app: wiring.App, namespace: str) -> None:
        self.kube = kube
        self.app = app
        self.namespace = namespace

    async def apply(self, cluster: RayCluster) -> None:
        """Create a RayCluster, as a user does."""
        meta = cluster.metadata
        body: Body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": meta.name, "labels": meta.labels, "annotations": meta.annotations},
            "spec": cluster.raw_spec,
        }
        await self.kube.create(RAY_CLUSTER, self.namespace, body)

    async def patch(self, spec: Mapping[str, Any], name: str = "c") -> None:
        """Change some fields of a RayCluster's spec."""
        await self.kube.patch(RAY_CLUSTER, self.namespace, name, Patch(body={"spec": dict(spec)}))

    async def scale(self, replicas: int) -> None:
        """Change the replicas of the first worker group, as the autoscaler does."""
        operation = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}
        patch = Patch(body=[operation], content_type="application/json-patch+json")
        await self.kube.patch(RAY_CLUSTER, self.namespace, "c", patch)

    async def cluster(self, name: str = "c") -> RayCluster:
        """Read a RayCluster."""
        return ray_cluster.decode(await self.kube.get(RAY_CLUSTER, self.namespace, name))

    async def exists(self, name: str = "c") -> bool:
        """Tell whether a RayCluster is still there."""
        try:
            await self.kube.get(RAY_CLUSTER, self.namespace, name)
        except errors.NotFound:
            return False
        return True

    async def pods(self, selector: str = "") -> list[Body]:
        """Read pods, by name."""
        return await self._list(POD, selector)

    async def reasons(self) -> set[str]:
        """Read the reasons of all Events that the service wrote."""
        events = await self._list(EVENT, "")
        return {event["reason"] for event in events if event.get("reportingController") == wiring.EVENT_SOURCE}

    async def has_told(self, reason: str) -> bool:
        """Tell whether the service wrote an Event of this reason."""
        return reason in await self.reasons()

    async def delete(self) -> None:
        """Delete the RayCluster."""
        await self.kube.delete(RAY_CLUSTER, self.namespace, "c")

    async def until(self, holds: Callable[[RayCluster, list[Body]], bool], what: str) -> RayCluster:
        """Wait until something holds of the RayCluster and its pods."""
        deadline = time.monotonic() + PATIENCE
        while True:
            cluster, pods = await self.cluster(), await self.pods()
            if holds(cluster, pods):
                return cluster
            if time.monotonic() > deadline:
                seen = [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in pods]
                raise AssertionError(f"not within {PATIENCE:g} s: {what}; status {cluster.status}; pods {seen}")
            await asyncio.sleep(0.05)

    async def eventually(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not await holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {PATIENCE:g} s: {what}")
            await asyncio.sleep(0.05)

    async def _list(self, resource: Resource, selector: str) -> list[Body]:
        answer = await self.kube.list(resource, self.namespace, label_selector=selector)
        return msgspec.json.decode(answer)["items"]


__all__ = ["control_plane", "live"]


@asynccontextmanager
async def running(
    control_plane: ControlPlane, config: Config, *, kubeconfig: Path | None = None
) -> AsyncGenerator[Live]:
    """Run the service in a namespace of its own for the length of a block, with the rights of a kubeconfig."""
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    namespace = f"t-{uuid4().hex[:8]}"
    await kube.create(Resource(kind="Namespace", plural="namespaces"), None, {"metadata": {"name": namespace}})
    own = await KubeClient.connect(kubeconfig=kubeconfig or control_plane.kubeconfig, user_agent="raybus-test")
    app = wiring.assemble(own, config, clock=SystemClock(), instance="test", registry=CollectorRegistry())
    feed = ApiFeed(kube, {"RayCluster": RAY_CLUSTER, "Pod": POD, "Service": SERVICE, "Job": JOB})
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(feed.follow(ALL_PARTITIONS, app.controller)),
                group.create_task(app.run(workers=4)),
            ]
            yield Live(kube, app, namespace)
            for task in tasks:
                task.cancel()
    finally:
        await own.close()
        await kube.close()


@pytest.fixture
async def live(control_plane: ControlPlane) -> AsyncIterator[Live]:
    """Run the service as it comes."""
    async with running(control_plane, Config()) as live:
        yield live
