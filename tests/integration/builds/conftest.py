"""Watcher and cluster-reconciler of two builds on a real API server and a real nats-server, and users that create and scale RayClusters all the time."""

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest_asyncio

from common import errors, labels
from common.bus.messages import ObjectMessage, ObjectState
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import LEASE, POD, RAY_CLUSTER
from localcluster.control_plane import ControlPlane
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.fakes.api_feed import ApiFeed
from support.fakes.listener import Recorder
from support.servers.builds import Build
from support.servers.relayed import Secured, Watcher, provisioned
from support.servers.replicas import Replica, Replicas, ended
from support.waiting import eventually, eventually_true

TIMEOUT: Final = 180.0
GROWING: Final = 4
"""Clusters that get one worker more again and again."""
REFUSAL: Final = "a form that this build does not read"


class _Pods(Recorder):
    """All pods that there ever were, by cluster; kwok and raybus delete none of them here."""

    def __init__(self) -> None:
        super().__init__()
        self.made: defaultdict[str, set[str]] = defaultdict(set)

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        super().take(message, trace=trace)
        if isinstance(message, ObjectState):
            metadata: dict[str, Any] = msgspec.json.decode(message.body)["metadata"]
            self.made[metadata["labels"][labels.CLUSTER]].add(message.uid)


class Users:
    """Clusters that are created and grow; none shrinks, so one pod more than was asked for is one too many."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._pods = _Pods()
        self.wanted: dict[str, int] = {}
        self.gaps: list[tuple[float, float]] = []
        """When each change was carried out, and how long that took."""
        self._stops = asyncio.Event()

    @property
    def made(self) -> dict[str, int]:
        """Return how many pods each cluster ever had."""
        return {name: len(found) for name, found in self._pods.made.items()}

    async def live(self) -> None:
        """Create and scale until stopped; then see every change carried out."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self.watch())
            async with asyncio.TaskGroup() as users:
                for number in range(GROWING):
                    users.create_task(self._grow(f"growing-{number}"))
                users.create_task(self._found())
            await asyncio.sleep(2)  # in which a pod too many would come
            watching.cancel()

    async def watch(self) -> None:
        """Count pods until cancelled."""
        feed = ApiFeed(self._kube, {POD.kind: POD}, namespace=self._namespace)
        await feed.follow(0, self._pods)

    async def create(self, name: str, *, workers: int) -> None:
        """Create a cluster, and wait for its pods."""
        await self._change(name, lambda: self._create(name, workers=workers), pods=1 + workers)

    async def scale(self, name: str, *, workers: int) -> None:
        """Ask for more workers."""
        operation = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers}
        patch = PatchRequest(body=[operation], content_type="application/json-patch+json")
        self.wanted[name] = 1 + workers
        await self._kube.patch(RAY_CLUSTER, self._namespace, name, patch)

    def stop(self) -> None:
        """Let each user end after its change."""
        self._stops.set()

    async def _grow(self, name: str) -> None:
        await self._change(name, lambda: self._create(name, workers=0), pods=1)
        for workers in count(1):
            if self._stops.is_set():
                return
            await self._change(name, lambda: self.scale(name, workers=workers), pods=1 + workers)  # noqa: B023  (called in this turn)

    async def _found(self) -> None:
        for number in count():
            if self._stops.is_set():
                return
            name = f"new-{number}"
            await self._change(name, lambda: self._create(name, workers=2), pods=3)  # noqa: B023  (called in this turn)

    async def _create(self, name: str, *, workers: int) -> bytes:
        cluster = a_ray_cluster(name, groups=[a_group(replicas=workers, max_replicas=1000)])
        body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name},
            "spec": cluster.raw_spec,
        }
        return await self._kube.create(RAY_CLUSTER, self._namespace, body)

    async def _change(
        self, name: str, request: Callable[[], Awaitable[object]], *, pods: int
    ) -> None:
        began = time.monotonic()
        self.wanted[name] = pods
        while True:
            with suppress(errors.Unavailable):
                await request()
                break
        await eventually(
            lambda: self.made.get(name, 0) >= pods, within=TIMEOUT, what=f"{pods} pods of {name}"
        )
        self.gaps.append((time.monotonic(), time.monotonic() - began))
        await asyncio.sleep(0.3)


class Site:
    """One watcher and one cluster-reconciler, each of some build, that are replaced as a Deployment does it: the new one comes first."""

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        secured: Secured,
        replicas: Replicas,
        folder: Path,
    ) -> None:
        self._control_plane = control_plane
        self._namespace = namespace
        self._secured = secured
        self._folder = folder
        self.replicas = replicas
        self.watchers: list[Watcher] = []
        self.refusals: list[str] = []
        """Why new reconcilers waited."""

    async def replace_watcher(self, build: Build, kube: KubeClient) -> None:
        """Start a watcher of a build, end the one before it, and wait until the new one has published all."""
        watcher = Watcher(
            self._secured, self._control_plane.kubeconfig, self._namespace, build=build
        )
        watcher.start()
        self.watchers.append(watcher)
        if len(self.watchers) > 1:
            await watcher.until_ready(within=TIMEOUT)
            self.watchers.pop(0).stop()

        async def leads() -> bool:
            with suppress(errors.NotFound):
                lease = msgspec.json.decode(
                    await kube.get(LEASE, self._namespace, "ray-operator-leader")
                )
                return bool(lease["spec"].get("holderIdentity") == watcher.name)
            return False

        async def has_published() -> bool:
            status, text = await watcher.get("/metrics")
            return status == 200 and "raybus_watcher_synced 1.0" in text

        await eventually_true(leads, within=TIMEOUT, every=0.1, what="the new leader")
        await eventually_true(has_published, within=TIMEOUT, every=0.1, what="its first epoch")

    async def begin_to_replace_reconciler(self, build: Build) -> Replica:
        """Start a reconciler of a build; return it when it is ready, or reports that it waits for a watcher of its form."""
        replica = self.replicas.start(self._folder, build=build)

        found: list[str] = []

        async def is_decided() -> bool:
            found.append(await replica.not_ready_because())
            return not found[-1] or REFUSAL in found[-1]

        await eventually_true(
            is_decided, within=TIMEOUT, every=0.1, what=f"readiness of {build.name}, or its reason"
        )
        # Asked again it may give another reason: a replica that was ready gives partitions up to those that start.
        if why := found[-1]:
            self.refusals.append(why)
        return replica

    async def end_replacing_reconciler(self, replica: Replica) -> None:
        """Wait until a reconciler is ready, then end all others."""
        await eventually_true(
            replica.is_ready, within=TIMEOUT, every=0.1, what=f"readiness of {replica.name}"
        )
        for each in [each for each in self.replicas.running if each is not replica]:
            self.replicas.end(each, signal.SIGTERM)
            await asyncio.to_thread(each.running.wait)
            assert "Traceback" not in each.reported
        await eventually_true(
            self.replicas.are_at_rest, within=TIMEOUT, every=0.1, what="an owner of every partition"
        )


@pytest_asyncio.fixture
async def site(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> AsyncGenerator[Site]:
    async with provisioned(tmp_path / "nats") as (secured, _):
        with ended(
            Replicas("cluster_reconciler", kube, secured, control_plane.kubeconfig, namespace)
        ) as replicas:
            found = Site(control_plane, namespace, secured, replicas, tmp_path)
            try:
                yield found
            finally:
                for each in found.watchers:
                    each.kill()


@pytest_asyncio.fixture
async def users(kube: KubeClient, namespace: str) -> Users:
    return Users(kube, namespace)
