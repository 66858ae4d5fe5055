"""The victim: it repeatedly scales a RayCluster, upgrades RayServices and runs RayJobs.

The duration of each change is measured.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from bench.services import a_config
from common import errors
from common.api.opaque import Body, Json
from common.clock import SystemClock
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_JOB, RAY_SERVICE, Resource
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from hostile.shares import Span
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service

NAMESPACE: Final = "victim"
CLUSTER: Final = "scaled"
SERVICE: Final = "upgraded"
SERVICES: Final = (f"{SERVICE}-0", f"{SERVICE}-1")
"""The two RayServices. With two, enough upgrades for a 99th percentile take half the time."""
JOB: Final = "batch"
SCALE: Final = "its RayCluster is scaled"
UPGRADE: Final = "its RayService is upgraded"
RUN: Final = "its RayJob runs to its end"
CHANGES: Final = (SCALE, UPGRADE, RUN)
CHANGE_TIMEOUT: Final = 120.0
PAUSE: Final = 1.0
"""Seconds between two changes of one object.

With shorter pauses, the victim alone would keep half of a small machine busy.
"""

Reactions = dict[str, list[Span]]
"""Begin and end of each of raybus's reactions, by kind of change (`CHANGES`)."""


class _Store:
    """The victim's objects of one kind by name, as a watch last delivered them.

    Implements `common.kube.watch.WatchSink`.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self.held: dict[str, Json] = {}
        self._changed = changed

    def present(self, raw: bytes, reason: str = "") -> None:
        assert not reason, f"the victim writes nothing that cannot be read: {reason}: {raw[:200]!r}"
        body: Json = msgspec.json.decode(raw)
        self.held[body["metadata"]["name"]] = body
        self._changed.set()

    def gone(self, raw: bytes) -> None:
        self.held.pop(msgspec.json.decode(raw)["metadata"]["name"], None)

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        self.held = {name: body for name, body in self.held.items() if (NAMESPACE, name) in keys}


class Victim:
    """The tenant that suffers from attacks: changes its objects and times raybus's reactions."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._changed = asyncio.Event()
        self._clusters, self._services = _Store(self._changed), _Store(self._changed)
        self._jobs = _Store(self._changed)
        self._numbers: Counter[str] = Counter()
        """Number of changes of each object so far."""
        self._reactions: defaultdict[str, list[Span]] = defaultdict(list)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Watch the victim's objects during the `with` block."""
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = []
            for resource, store in (
                (RAY_CLUSTER, self._clusters),
                (RAY_SERVICE, self._services),
                (RAY_JOB, self._jobs),
            ):
                target = WatchTarget(resource=resource, namespace=NAMESPACE)
                watch = Watch(self._kube, target, store, jitter=lambda: 0.0, timing=WatchTiming())
                tasks.append(group.create_task(watch.run()))
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def prepare(self) -> None:
        """Create the victim's objects and wait until they are ready."""
        spec = {**a_cluster_config(), "workerGroupSpecs": _build_workers(1)}
        body: Body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": CLUSTER},
            "spec": spec,
        }
        await self._kube.create(RAY_CLUSTER, NAMESPACE, body)
        for name in SERVICES:
            service = a_ray_service(
                name=name, config=a_config("ray:0"), rayClusterDeletionDelaySeconds=0
            )
            await self._kube.create(RAY_SERVICE, NAMESPACE, {**service, "metadata": {"name": name}})
        await self._until(lambda: self._has(1), "the RayCluster being ready")
        for name in SERVICES:
            await self._until(
                lambda name=name: self._serves(name, "ray:0"), f"the RayService {name} being ready"
            )

    async def change(self, *, enough: int) -> Reactions:
        """Change all objects of the victim until each kind of change has `enough` reactions.

        Return raybus's reactions.
        """
        self._reactions = defaultdict(list)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(SCALE, CLUSTER, self._scale, enough))
            group.create_task(self._repeat(RUN, JOB, self._run_job, enough))
            for name in SERVICES:
                group.create_task(self._repeat(UPGRADE, name, self._upgrade, enough))
        return dict(self._reactions)

    @asynccontextmanager
    async def changing(self) -> AsyncGenerator[Reactions]:
        """Change all objects of the victim during the `with` block.

        Yields raybus's reactions; their number grows during the block.
        """
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.change(enough=10**9))
            await asyncio.sleep(0)
            try:
                yield self._reactions
            finally:
                task.cancel()

    async def _repeat(
        self, what: str, name: str, do: Callable[[str, int], Awaitable[None]], enough: int
    ) -> None:
        while any(len(self._reactions[change]) < enough for change in CHANGES):
            self._numbers[name] += 1
            began = _now()
            await do(name, self._numbers[name])
            self._reactions[what].append(Span(name=name, began=began, ended=_now()))
            await asyncio.sleep(PAUSE)

    async def _scale(self, name: str, number: int) -> None:
        workers = 1 + 2 * (number % 2)
        await self._patch(RAY_CLUSTER, name, {"workerGroupSpecs": _build_workers(workers)})
        await self._until(lambda: self._has(workers), f"{workers} workers")

    async def _upgrade(self, name: str, number: int) -> None:
        image = f"ray:{number}"
        await self._patch(RAY_SERVICE, name, {"rayClusterConfig": a_config(image)})
        await self._until(lambda: self._serves(name, image), f"a cluster of {image} that serves")

    async def _run_job(self, name: str, number: int) -> None:
        """Create a RayJob, wait until it has succeeded, and delete it."""
        named = f"{name}-{number}"
        spec: Body = {
            "entrypoint": "python main.py",
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": {**a_cluster_config(), "workerGroupSpecs": []},
        }
        body: Body = {
            "apiVersion": RAY_JOB.api_version,
            "kind": RAY_JOB.kind,
            "metadata": {"name": named},
            "spec": spec,
        }
        await self._ask(lambda: self._kube.create(RAY_JOB, NAMESPACE, body))
        await self._until(lambda: self._has_succeeded(named), f"the end of RayJob {named}")
        await self._ask(lambda: self._kube.delete(RAY_JOB, NAMESPACE, named))

    async def _patch(self, resource: Resource, name: str, spec: Body) -> None:
        """Change fields of an object's spec. Retries until the request is accepted."""
        patch = PatchRequest(body={"spec": spec})
        await self._ask(lambda: self._kube.patch(resource, NAMESPACE, name, patch))

    async def _ask(self, send: Callable[[], Awaitable[bytes]]) -> None:
        """Send a request until the API server accepts it.

        Retries are part of the measured reaction. Raises `TimeoutError` after `CHANGE_TIMEOUT`
        seconds.
        """
        async with asyncio.timeout(CHANGE_TIMEOUT):
            while True:
                with suppress(errors.Retryable):
                    await send()
                    return
                await asyncio.sleep(PAUSE)

    async def _until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until the watched objects fulfil the condition `is_so`.

        `what` describes it in the `AssertionError` after `CHANGE_TIMEOUT` seconds.
        """
        changed = self._changed
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT):
                while not is_so():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"the victim: {what} did not come true within {CHANGE_TIMEOUT:g} s"
            ) from None

    def _has(self, workers: int) -> bool:
        status: Json = self._clusters.held.get(CLUSTER, {}).get("status", {})
        state = (
            status.get("desiredWorkerReplicas"),
            status.get("readyWorkerReplicas"),
            status.get("state"),
        )
        return state == (workers, workers, "ready")

    def _has_succeeded(self, name: str) -> bool:
        status: Json = self._jobs.held.get(name, {}).get("status", {})
        return status.get("jobDeploymentStatus") == "Complete"

    def _serves(self, name: str, image: str) -> bool:
        status: Json = self._services.held.get(name, {}).get("status", {})
        active = status.get("activeServiceStatus", {}).get("rayClusterName", "")
        cluster: Any = self._clusters.held.get(active)
        if status.get("serviceStatus") != "Running" or cluster is None:
            return False
        return (
            cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] == image
        )


def _now() -> float:
    return SystemClock().now().timestamp()


def _build_workers(count: int) -> list[Body]:
    return [a_group(replicas=count, minReplicas=0)]
