"""Tenants' large clusters keep the workers of cluster-reconciler from nobody."""

import asyncio
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from cluster_reconciler import plan, wiring
from cluster_reconciler.config import Config
from common import labels
from common.api.opaque import Body
from common.kube.resources import RAY_CLUSTER
from common.runtime.executor import SLICE
from support.builders.messages import a_state
from support.builders.ray_service import a_cluster_config, a_group
from support.fakes.kube import FakeKube
from support.fakes.virtual_time import VirtualClock, run

REQUEST: Final = 0.05
"""Seconds that the API server takes for a write."""
WORKERS: Final = 4
VICTIM: Final = "victim"
EVERY: Final = 0.3
"""Seconds between two clusters of the victim."""


class _SlowKube(FakeKube):
    """An API server with slow creates."""

    async def create(self, *args: Any, **named: Any) -> bytes:
        await asyncio.sleep(REQUEST)
        return await super().create(*args, **named)


class _Shared:
    """One cluster-reconciler, the tenants' clusters, and the time at which each cluster of the victim got its head pod."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.kube = _SlowKube(now=self.clock.now)
        self.app = wiring.assemble(
            self.kube, Config(), clock=self.clock, instance="t", registry=CollectorRegistry()
        )
        self.heads: dict[str, float] = {}
        self._listener = self.app.controller.informer.hold(0)
        self._listener.synced(1)
        self.kube.on_change.append(self._deliver)

    def create(self, namespace: str, name: str, workers: int) -> None:
        spec = a_cluster_config(a_group(replicas=workers, minReplicas=0, maxReplicas=workers))
        meta = {"namespace": namespace, "name": name}
        self.kube.put(
            RAY_CLUSTER,
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec},
        )

    def _deliver(self, kind: str, body: Body, is_gone: bool) -> None:
        if is_gone or kind not in wiring.KINDS:
            return
        self._listener.take(a_state(kind, msgspec.json.encode(body)), trace="")
        meta = body["metadata"]
        if kind == "Pod" and meta["namespace"] == VICTIM:
            self.heads.setdefault(meta["labels"][labels.CLUSTER], self.clock.monotonic())


async def _waits(tenants: int) -> list[float]:
    """Return how long each cluster of the victim waits for its head pod while tenants scale up large clusters."""
    shared, asked = _Shared(), dict[str, float]()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(shared.app.controller.run(shared.app.reconciler, workers=WORKERS))
        for number in range(2 * tenants):
            shared.create(f"tenant-{number % tenants}", f"large-{number}", plan.BATCH_SIZE)
        for number in range(6):
            await asyncio.sleep(EVERY)
            asked[f"small-{number}"] = shared.clock.monotonic()
            shared.create(VICTIM, f"small-{number}", 0)
        await asyncio.sleep(10 * SLICE)
        task.cancel()
    return [shared.heads[name] - at for name, at in asked.items()]


@pytest.mark.parametrize(
    ("tenants", "more"),
    [
        pytest.param(
            WORKERS, 2 * REQUEST, id="the workers of idle namespaces are free for the victim"
        ),
        pytest.param(2 * WORKERS, 2 * SLICE, id="all workers are taken, each for a time slice"),
    ],
)
def test_a_small_cluster_hardly_waits_while_tenants_scale_up_large_ones(
    tenants: int, more: float
) -> None:
    async def scenario() -> None:
        calm, beside = await _waits(0), await _waits(tenants)
        assert max(beside) <= max(calm) + more

    run(scenario())
