"""Creates RayClusters, the load of most benchmarks, and watches when they become ready."""

import argparse
import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from bench.rig import BACKGROUND, Rig
from common.api.opaque import Body
from common.kube.resources import POD, RAY_CLUSTER, SERVICE
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming

WORKERS: Final = 3
AT_ONCE: Final = 12
"""Maximum concurrent requests with which the benchmark creates objects."""
LIMIT_SECONDS: Final = 600.0
SECONDS_EACH: Final = 0.3
"""Seconds by which each awaited object extends the limit `LIMIT_SECONDS`."""


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    state: str = ""
    phase: str = ""
    service_status: str = ""
    job_deployment_status: str = ""
    ready_worker_replicas: int = 0
    desired_worker_replicas: int = 0


class BenchObject(msgspec.Struct, frozen=True):
    """The fields of a RayCluster, RayService, RayJob or pod that the benchmark reads."""

    metadata: _Metadata
    status: _Status = _Status()


ObjectMatcher = Callable[[BenchObject], NamespacedName | None]
"""A function that returns an object's key if the object is in the wanted state, else None."""


class FirstSeen:
    """Records when each object of a watch first reached the state that `matches` recognizes.

    Times are seconds of the event loop's clock. Implements `common.kube.watch.WatchSink`.
    """

    def __init__(self, matches: ObjectMatcher) -> None:
        self.at: dict[NamespacedName, float] = {}
        self._matches = matches
        self._changed = asyncio.Event()
        self._decoder = msgspec.json.Decoder(BenchObject)

    def present(self, raw: bytes, reason: str = "") -> None:
        """Record the object if it is in the wanted state for the first time."""
        key = self._matches(self._decoder.decode(raw))
        if key is not None and key not in self.at:
            self.at[key] = asyncio.get_running_loop().time()
            self._changed.set()

    def gone(self, raw: bytes) -> None:
        """Do nothing: a deleted object keeps its time."""

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        """Do nothing: the end of a list changes no recorded time."""

    async def count(self, wanted: int) -> None:
        """Wait until this number of objects has reached the state.

        Raises `TimeoutError` if that takes longer than `LIMIT_SECONDS` plus `SECONDS_EACH` for each
        object.
        """
        async with asyncio.timeout(LIMIT_SECONDS + wanted * SECONDS_EACH):
            while len(self.at) < wanted:
                self._changed.clear()
                await self._changed.wait()


def is_ready(cluster: BenchObject) -> NamespacedName | None:
    """Match clusters with all workers ready: return the key (namespace, name), else None."""
    status = cluster.status
    done = (
        status.state == "ready"
        and 0 < status.desired_worker_replicas <= status.ready_worker_replicas
    )
    return (cluster.metadata.namespace, cluster.metadata.name) if done else None


def is_head(pod: BenchObject) -> NamespacedName | None:
    """Match head pods: return the key (namespace, name) of the pod's RayCluster, else None."""
    labels = pod.metadata.labels
    if labels.get("ray.io/node-type") != "head":
        return None
    return pod.metadata.namespace, labels.get("ray.io/cluster", "")


def is_running(pod: BenchObject) -> NamespacedName | None:
    """Match pods in the phase Running: return the pod's key (namespace, name), else None."""
    return (pod.metadata.namespace, pod.metadata.name) if pod.status.phase == "Running" else None


@asynccontextmanager
async def watching(
    rig: Rig, target: WatchTarget, matches: ObjectMatcher
) -> AsyncGenerator[FirstSeen]:
    """Watch `target` during the `with` block, and record when its objects match `matches`."""
    first_seen = FirstSeen(matches)
    watch = Watch(rig.kube, target, first_seen, jitter=lambda: 0.0, timing=WatchTiming())
    async with asyncio.TaskGroup() as group:
        following = group.create_task(watch.run())
        await watch.known.wait()
        try:
            yield first_seen
        finally:
            following.cancel()


CLUSTERS: Final = WatchTarget(resource=RAY_CLUSTER)
PODS: Final = WatchTarget(resource=POD)
HEADS: Final = WatchTarget(resource=POD, selector="ray.io/node-type=head")


async def create_cluster(rig: Rig, namespace: str, name: str, *, workers: int = WORKERS) -> float:
    """Create a RayCluster; return when the request was sent, by the event loop's clock."""
    asked_at = asyncio.get_running_loop().time()
    await rig.kube.create(RAY_CLUSTER, namespace, a_cluster(name, workers))
    return asked_at


async def create_many(
    rig: Rig, count: int, *, namespace: Callable[[int], str] = lambda _: BACKGROUND
) -> None:
    """Create `count` RayClusters concurrently.

    `namespace` maps a cluster's index to its namespace.
    """

    async def one(index: int) -> None:
        await create_cluster(rig, namespace(index), f"c{index:05d}")

    await each(count, one)


async def create_bare(rig: Rig, namespace: str, name: str) -> None:
    """Create the pods and the Service of one RayCluster, but no RayCluster."""
    await rig.kube.create(SERVICE, namespace, _a_service(name))
    for number in range(WORKERS + 1):
        await rig.kube.create(POD, namespace, _a_pod(f"{name}-{number}"))


async def each(count: int, work: Callable[[int], Coroutine[None, None, None]]) -> None:
    """Run `work` for the indices 0 to count - 1, at most `AT_ONCE` at the same time."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def bounded(index: int) -> None:
        async with limit:
            await work(index)

    async with asyncio.TaskGroup() as group:
        for index in range(count):
            group.create_task(bounded(index))


def parse_arguments(
    parser: argparse.ArgumentParser,
    arguments: list[str] | None,
    *,
    count: int,
    what: str = "RayClusters to create",
) -> argparse.Namespace:
    """Add the option `-n` (default `count`, at least 1) to the parser and parse the command line.

    `what` describes `-n` in the help text.
    """
    parser.add_argument("-n", type=int, default=count, help=f"{what} ({count})")
    options = parser.parse_args(arguments)
    if options.n < 1:
        parser.error(f"-n {options.n}: create at least one cluster")
    return options


def a_cluster(name: str, workers: int) -> Body:
    """Build a RayCluster with one worker group of `workers` pods."""
    group = {"groupName": "w", "replicas": workers, "minReplicas": workers, "maxReplicas": workers}
    spec = {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": _template("ray-head")},
        "workerGroupSpecs": [{**group, "rayStartParams": {}, "template": _template("ray-worker")}],
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def _template(container: str) -> Body:
    size = {"cpu": "1", "memory": "2Gi"}
    resources = {"limits": size, "requests": size}
    return {
        "spec": {
            "containers": [
                {"name": container, "image": "rayproject/ray:2.52.0", "resources": resources}
            ]
        }
    }


def _a_pod(name: str) -> Body:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **_template("ray")}


def _a_service(name: str) -> Body:
    spec = {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
