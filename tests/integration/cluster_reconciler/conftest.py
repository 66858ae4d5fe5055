"""One real control plane, and cluster-reconciler running against it, with or without watcher and NATS between them."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from cluster_reconciler import wiring
from cluster_reconciler.config import Config
from common import errors
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.bus.feed import Feed
from common.bus.state_feed import StateFeed
from common.bus.subjects import PARTITIONS
from common.clock import SystemClock
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import EVENT, JOB, NAMESPACE, POD, RAY_CLUSTER, SERVICE, Resource
from common.runtime.controller import Reconcile
from common.runtime.key import Key
from localcluster.api import read_manifests
from localcluster.control_plane import ControlPlane
from support import server_side_apply
from support.counting_client import CountingClient
from support.fakes.api_feed import ApiFeed
from support.following import follow
from support.kuberay import objects
from support.servers.relayed import relayed

SCHEDULER_CRDS = Path(__file__).parents[2] / "support" / "crds"
KINDS = {each.kind: each for each in (RAY_CLUSTER, POD, SERVICE, JOB)}
TIMEOUT = 30.0
"""Seconds until a condition that never holds fails the test."""


async def apply_all(kube: KubeClient, namespace: str, documents: Sequence[Body]) -> None:
    """Apply manifests on the server's side, in their order."""
    for document in documents:
        await server_side_apply.apply(kube, objects.resource_of(document), namespace, document)


class Reconciles:
    """Counts the reconciles of each key that came to an end, in peace or in error."""

    def __init__(self, reconciler: Reconcile) -> None:
        self._reconciler = reconciler
        self.ended: Counter[Key] = Counter()

    async def __call__(self, key: Key, now: datetime) -> datetime | None:
        try:
            return await self._reconciler(key, now)
        finally:
            self.ended[key] += 1


class Live:
    """A namespace of a real API server, with the service at work on it."""

    def __init__(
        self,
        kube: KubeClient,
        app: wiring.App,
        namespace: str,
        *,
        own: CountingClient,
        reconciles: Reconciles,
    ) -> None:
        self.kube = kube
        self.app = app
        self.namespace = namespace
        self.own = own
        """The service's own client: what it asked, and may."""
        self.reconciles = reconciles

    def enqueue_all(self) -> None:
        """Enqueue every RayCluster once more."""
        for cluster in self.app.cache.list_all(RayCluster):
            self.app.controller.queue.add(Key(cluster.metadata.namespace, cluster.metadata.name))

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

    async def apply_all(self, documents: Sequence[Body]) -> None:
        """Apply what users write, in its order."""
        await apply_all(self.kube, self.namespace, documents)

    async def patch(self, spec: Mapping[str, Any], name: str = "c") -> None:
        """Change some fields of a RayCluster's spec."""
        await self.kube.patch(
            RAY_CLUSTER, self.namespace, name, PatchRequest(body={"spec": dict(spec)})
        )

    async def scale(self, replicas: int) -> None:
        """Change the replicas of the first worker group, as the autoscaler does."""
        operation = {
            "op": "replace",
            "path": "/spec/workerGroupSpecs/0/replicas",
            "value": replicas,
        }
        patch = PatchRequest(body=[operation], content_type="application/json-patch+json")
        await self.kube.patch(RAY_CLUSTER, self.namespace, "c", patch)

    async def cluster(self, name: str = "c") -> RayCluster:
        """Read a RayCluster."""
        return ray_cluster.decode(await self.kube.get(RAY_CLUSTER, self.namespace, name))

    async def exists(self, name: str = "c") -> bool:
        """Return whether a RayCluster is still there."""
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
        return {
            event["reason"]
            for event in events
            if event.get("reportingController") == wiring.EVENT_SOURCE
        }

    async def has_reported(self, reason: str) -> bool:
        """Return whether the service wrote an Event of this reason."""
        return reason in await self.reasons()

    async def delete(self) -> None:
        """Delete the RayCluster."""
        await self.kube.delete(RAY_CLUSTER, self.namespace, "c")

    async def until(
        self, holds: Callable[[RayCluster, list[Body]], bool], what: str, name: str = "c"
    ) -> RayCluster:
        """Wait until something holds of the RayCluster and its pods."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            cluster, pods = await self.cluster(name), await self.pods()
            if holds(cluster, pods):
                return cluster
            if time.monotonic() > deadline:
                seen = [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in pods]
                raise AssertionError(
                    f"not within {TIMEOUT:g} s: {what}; status {cluster.status}; pods {seen}"
                )
            await asyncio.sleep(0.05)

    async def eventually(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + TIMEOUT
        while not await holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {TIMEOUT:g} s: {what}")
            await asyncio.sleep(0.05)

    async def _list(self, resource: Resource, selector: str) -> list[Body]:
        answer = await self.kube.list(resource, self.namespace, label_selector=selector)
        return msgspec.json.decode(answer)["items"]


Prepare = Callable[[KubeClient, str], Awaitable[None]]
"""Puts things into a namespace before the service starts."""


@asynccontextmanager
async def running(
    control_plane: ControlPlane,
    config: Config,
    *,
    kubeconfig: Path | None = None,
    bus: Path | None = None,
    prepare: Prepare | None = None,
    is_alone: bool = True,
) -> AsyncGenerator[Live]:
    """Run the service in a namespace of its own for the length of a block, with the rights of a kubeconfig.

    With `bus`, a folder, it learns the state through a real watcher and a real nats-server; else from the API server itself.
    It sees only that namespace, which spares it what other tests left behind, unless it is not to be alone.
    """
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    namespace = f"t-{uuid4().hex[:8]}"
    await kube.create(NAMESPACE, None, {"metadata": {"name": namespace}})
    own = await CountingClient.connect(
        kubeconfig=kubeconfig or control_plane.kubeconfig, user_agent="raybus-test"
    )
    app = wiring.assemble(
        own, config, clock=SystemClock(), instance="test", registry=CollectorRegistry()
    )
    reconciles = Reconciles(app.reconciler)
    app = msgspec.structs.replace(app, reconciler=reconciles)
    try:
        if prepare is not None:
            await prepare(kube, namespace)
        async with (
            _feed(control_plane, kube, namespace if is_alone else None, bus) as feed,
            asyncio.TaskGroup() as group,
        ):
            tasks = [
                group.create_task(follow(feed, app.controller, range(PARTITIONS if bus else 1))),
                group.create_task(app.run(workers=4)),
            ]
            yield Live(kube, app, namespace, own=own, reconciles=reconciles)
            for task in tasks:
                task.cancel()
    finally:
        await own.close()
        await kube.close()


@asynccontextmanager
async def _feed(
    control_plane: ControlPlane, kube: KubeClient, namespace: str | None, bus: Path | None
) -> AsyncGenerator[Feed]:
    if bus is None:
        yield ApiFeed(kube, KINDS, namespace=namespace)
        return
    async with relayed(bus, control_plane.kubeconfig, namespace or "") as servers:
        yield StateFeed(servers.bus, reader="cluster-reconciler")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scheduler_kinds(control_plane: ControlPlane) -> None:
    """Define what batch schedulers define, once per control plane."""
    async with control_plane.api() as api:
        await api.apply_definitions(read_manifests(SCHEDULER_CRDS))


@pytest.fixture
async def live(control_plane: ControlPlane) -> AsyncIterator[Live]:
    """Run the service as it comes."""
    async with running(control_plane, Config()) as live:
        yield live
