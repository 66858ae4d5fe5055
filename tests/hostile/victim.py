"""The victim: a RayCluster that is scaled, and a RayService that is upgraded, again and again; how long each change takes."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from bench.services import a_config
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, Patch
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service
from support.waiting import eventually_true

NAMESPACE: Final = "victim"
CLUSTER: Final = "scaled"
SERVICE: Final = "upgraded"
SCALE: Final = "its RayCluster is scaled"
UPGRADE: Final = "its RayService is upgraded"
LONGEST: Final = 120.0
EVERY: Final = 0.05
PAUSE: Final = 0.2


class Victim:
    """Both objects, and what was measured."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._numbers: Counter[str] = Counter()
        """Changes of each kind so far."""
        self.taken: defaultdict[str, list[float]] = defaultdict(list)

    async def prepare(self) -> None:
        """Create both, and wait until they serve."""
        spec = {**a_cluster_config(), "workerGroupSpecs": _workers(1)}
        body: Body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": CLUSTER}, "spec": spec}
        await self._kube.create(RAY_CLUSTER, NAMESPACE, body)
        service = a_ray_service(name=SERVICE, config=a_config("ray:0"), rayClusterDeletionDelaySeconds=0)
        await self._kube.create(RAY_SERVICE, NAMESPACE, {**service, "metadata": {"name": SERVICE}})
        await self._until(self._has(1), "the RayCluster being ready")
        await self._until(self._serves("ray:0"), "the RayService being ready")

    async def change(self, *, seconds: float) -> dict[str, list[float]]:
        """Change both for so many seconds, or until cancelled; `taken` has what it took."""
        self.taken = defaultdict(list)
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(SCALE, self._scale, end))
            group.create_task(self._repeat(UPGRADE, self._upgrade, end))
        return dict(self.taken)

    async def _repeat(self, what: str, do: Callable[[int], Awaitable[None]], end: float) -> None:
        while time.monotonic() < end:
            self._numbers[what] += 1
            began = time.monotonic()
            await do(self._numbers[what])
            self.taken[what].append(time.monotonic() - began)
            await asyncio.sleep(PAUSE)

    async def _scale(self, number: int) -> None:
        workers = 1 + 2 * (number % 2)
        await self._patch(RAY_CLUSTER, CLUSTER, {"workerGroupSpecs": _workers(workers)})
        await self._until(self._has(workers), f"{workers} workers")

    async def _upgrade(self, number: int) -> None:
        image = f"ray:{number}"
        await self._patch(RAY_SERVICE, SERVICE, {"rayClusterConfig": a_config(image)})
        await self._until(self._serves(image), f"a cluster of {image} that serves")

    async def _patch(self, resource: Any, name: str, spec: Body) -> None:
        await self._kube.patch(resource, NAMESPACE, name, Patch(body={"spec": spec}))

    async def _until(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        await eventually_true(check, within=LONGEST, every=EVERY, what=f"the victim: {what}")

    def _has(self, workers: int) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            status = await self._status(RAY_CLUSTER, CLUSTER)
            found = (status.get("desiredWorkerReplicas"), status.get("readyWorkerReplicas"), status.get("state"))
            return found == (workers, workers, "ready")

        return check

    def _serves(self, image: str) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            status = await self._status(RAY_SERVICE, SERVICE)
            name = status.get("activeServiceStatus", {}).get("rayClusterName", "")
            if status.get("serviceStatus") != "Running" or not name:
                return False
            cluster = msgspec.json.decode(await self._kube.get(RAY_CLUSTER, NAMESPACE, name))
            return cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] == image

        return check

    async def _status(self, resource: Any, name: str) -> Json:
        return msgspec.json.decode(await self._kube.get(resource, NAMESPACE, name)).get("status", {})


def _workers(count: int) -> list[Body]:
    return [a_group(replicas=count, minReplicas=0)]
