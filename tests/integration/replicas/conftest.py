"""Replicas of cluster-reconciler on a real API server and a real nats-server, and users that change RayClusters all the time."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest_asyncio

from common import errors
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import RAY_CLUSTER
from localcluster.control_plane import ControlPlane
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.fakes.api_feed import ApiFeed
from support.fakes.listener import Recorder
from support.servers.relayed import relayed
from support.servers.replicas import Replicas, ended
from support.waiting import eventually, eventually_true

CLUSTERS: Final = 8
TIMEOUT: Final = 120.0


class ChangingClusters:
    """RayClusters that are changed repeatedly, each as soon as its last change took effect."""

    def __init__(self, kube: KubeClient, namespace: str, folder: Path, replicas: Replicas) -> None:
        self.kube = kube
        self.namespace = namespace
        self.replicas = replicas
        self._folder = folder
        self._seen = Recorder()
        self._gaps: list[tuple[float, float]] = []
        """Time at which each change took effect, and its wait."""
        self._open: dict[str, float] = {}
        """Times of the changes that have not taken effect yet, by cluster."""

    def start(self, name: str = "") -> None:
        self.replicas.start(self._folder, name)

    async def rest(self) -> None:
        """Wait until every partition has its owner."""
        await eventually_true(
            self.replicas.are_at_rest, within=TIMEOUT, every=0.1, what="an even division"
        )

    async def longest_gap(self, began: float) -> float:
        """Return the longest wait of a change since a moment, once the last change of each cluster
        took effect.
        """
        now = time.monotonic()
        await eventually(
            lambda: all(at > now for at in self._open.values()),
            within=TIMEOUT,
            what="a reconcile of every key",
        )
        return max((gap for at, gap in self._gaps if at > began), default=0.0)

    async def live(self) -> None:
        """Let users change their clusters until cancelled."""
        async with asyncio.TaskGroup() as group:
            feed = ApiFeed(self.kube, {RAY_CLUSTER.kind: RAY_CLUSTER}, namespace=self.namespace)
            group.create_task(feed.follow(0, self._seen))
            for number in range(CLUSTERS):
                group.create_task(self._change(f"c{number}"))

    async def _change(self, name: str) -> None:
        cluster = a_ray_cluster(name, groups=[a_group(replicas=0, min_replicas=0)])
        body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name},
            "spec": cluster.raw_spec,
        }
        await self._insist(lambda: self.kube.create(RAY_CLUSTER, self.namespace, body))
        most = 10
        while True:
            most += 1
            operation = {
                "op": "replace",
                "path": "/spec/workerGroupSpecs/0/maxReplicas",
                "value": most,
            }
            patch = PatchRequest(body=[operation], content_type="application/json-patch+json")
            self._open[name] = changed_at = time.monotonic()
            await self._insist(lambda: self.kube.patch(RAY_CLUSTER, self.namespace, name, patch))  # noqa: B023  (called in this turn)
            await eventually(
                lambda: self._is_seen_to(name, most),  # noqa: B023  (called in this turn)
                within=TIMEOUT,
                what=f"a reconcile of {name}",
            )
            self._gaps.append((time.monotonic(), time.monotonic() - changed_at))
            await asyncio.sleep(0.1)

    async def _insist(self, request: Callable[[], Awaitable[bytes]]) -> None:
        """Send a request again while the API server is too busy for it."""
        while True:
            with suppress(errors.Unavailable, errors.AlreadyExists):
                await request()
                return

    def _is_seen_to(self, name: str, most: int) -> bool:
        found = self._seen.objects.get(("RayCluster", self.namespace, name), {})
        if found.get("spec", {}).get("workerGroupSpecs", [{}])[0].get("maxReplicas") != most:
            return False
        return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]


@pytest_asyncio.fixture
async def changing(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> AsyncGenerator[ChangingClusters]:
    async with relayed(tmp_path / "nats", control_plane.kubeconfig, namespace) as bus:
        with ended(
            Replicas("cluster_reconciler", kube, bus.secured, control_plane.kubeconfig, namespace)
        ) as replicas:
            found = ChangingClusters(kube, namespace, tmp_path, replicas)
            async with asyncio.TaskGroup() as group:
                living = group.create_task(found.live())
                yield found
                living.cancel()
