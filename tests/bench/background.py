"""The load: RayClusters of a head and some workers, and the eyes that see them get ready."""

import argparse
import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from bench.rig import BACKGROUND, Rig
from common.api.opaque import Body
from common.kube.resources import POD, RAY_CLUSTER, SERVICE
from common.kube.watch import Key, Target, Timing, Watch

WORKERS: Final = 3
AT_ONCE: Final = 12
"""Requests of ours under way together."""
LIMIT_SECONDS: Final = 600.0
SECONDS_EACH: Final = 0.3
"""Added to the limit for each thing that is waited for."""


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    state: str = ""
    phase: str = ""
    service_status: str = ""
    ready_worker_replicas: int = 0
    desired_worker_replicas: int = 0


class Object(msgspec.Struct, frozen=True):
    """A RayCluster, or a pod, as the benchmark sees it."""

    metadata: _Metadata
    status: _Status = _Status()


Seen = Callable[[Object], Key | None]
"""Returns the thing that an object proves to be complete; None without one."""


class FirstSeen:
    """When each thing was first seen, in seconds of the event loop's clock; implements `common.kube.watch.Sink`."""

    def __init__(self, seen: Seen) -> None:
        self.at: dict[Key, float] = {}
        self._seen = seen
        self._changed = asyncio.Event()
        self._decoder = msgspec.json.Decoder(Object)

    def present(self, raw: bytes, why: str = "") -> None:
        """Take an object as it is now."""
        key = self._seen(self._decoder.decode(raw))
        if key is not None and key not in self.at:
            self.at[key] = asyncio.get_running_loop().time()
            self._changed.set()

    def gone(self, raw: bytes) -> None:
        """Pass over a deletion."""

    def listed(self, keys: set[Key], version: str) -> None:
        """Pass over the end of a list."""

    async def count(self, wanted: int) -> None:
        """Wait until so many things were seen."""
        async with asyncio.timeout(LIMIT_SECONDS + wanted * SECONDS_EACH):
            while len(self.at) < wanted:
                self._changed.clear()
                await self._changed.wait()


def is_ready(cluster: Object) -> Key | None:
    """Match a cluster with all of its workers ready."""
    status = cluster.status
    done = (
        status.state == "ready"
        and 0 < status.desired_worker_replicas <= status.ready_worker_replicas
    )
    return (cluster.metadata.namespace, cluster.metadata.name) if done else None


def is_head(pod: Object) -> Key | None:
    """See the head pod of a cluster."""
    labels = pod.metadata.labels
    if labels.get("ray.io/node-type") != "head":
        return None
    return pod.metadata.namespace, labels.get("ray.io/cluster", "")


def is_running(pod: Object) -> Key | None:
    """See a pod that runs."""
    return (pod.metadata.namespace, pod.metadata.name) if pod.status.phase == "Running" else None


@asynccontextmanager
async def watching(rig: Rig, target: Target, seen: Seen) -> AsyncGenerator[FirstSeen]:
    """Follow a collection as long as the block lasts."""
    first_seen = FirstSeen(seen)
    watch = Watch(rig.kube, target, first_seen, jitter=lambda: 0.0, timing=Timing())
    async with asyncio.TaskGroup() as group:
        following = group.create_task(watch.run())
        await watch.known.wait()
        try:
            yield first_seen
        finally:
            following.cancel()


CLUSTERS: Final = Target(resource=RAY_CLUSTER)
PODS: Final = Target(resource=POD)
HEADS: Final = Target(resource=POD, selector="ray.io/node-type=head")


async def create_cluster(rig: Rig, namespace: str, name: str, *, workers: int = WORKERS) -> float:
    """Create a RayCluster; return when it was asked for."""
    asked_at = asyncio.get_running_loop().time()
    await rig.kube.create(RAY_CLUSTER, namespace, a_cluster(name, workers))
    return asked_at


async def create_many(
    rig: Rig, count: int, *, namespace: Callable[[int], str] = lambda _: BACKGROUND
) -> None:
    """Create so many RayClusters of the background load, some at once, each in its namespace: one, unless another rule is given."""

    async def one(index: int) -> None:
        await create_cluster(rig, namespace(index), f"c{index:05d}")

    await each(count, one)


async def create_bare(rig: Rig, namespace: str, name: str) -> None:
    """Create what an operator creates for a RayCluster, pods and Service, and nothing else."""
    await rig.kube.create(SERVICE, namespace, _a_service(name))
    for number in range(WORKERS + 1):
        await rig.kube.create(POD, namespace, _a_pod(f"{name}-{number}"))


async def each(count: int, work: Callable[[int], Coroutine[None, None, None]]) -> None:
    """Run a piece of work for 0 … count - 1, some at once."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def bounded(index: int) -> None:
        async with limit:
            await work(index)

    async with asyncio.TaskGroup() as group:
        for index in range(count):
            group.create_task(bounded(index))


def asked(
    parser: argparse.ArgumentParser,
    arguments: list[str] | None,
    *,
    count: int,
    what: str = "RayClusters to create",
) -> argparse.Namespace:
    """Read a command line with the number of RayClusters, at least one, beside the options that the parser has."""
    parser.add_argument("-n", type=int, default=count, help=f"{what} ({count})")
    found = parser.parse_args(arguments)
    if found.n < 1:
        parser.error(f"-n {found.n}: create at least one cluster")
    return found


def a_cluster(name: str, workers: int) -> Body:
    """Return a RayCluster."""
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
