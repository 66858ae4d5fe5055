"""The cost of a lasting refusal, with the real queue and workers in virtual time: no storm, and an end as soon as it is lifted."""

import asyncio

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from cluster_reconciler import wiring
from cluster_reconciler.config import Config
from common import errors
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.clock import SystemClock
from common.kube.resources import POD, RAY_CLUSTER
from support.builders.messages import a_state, a_tombstone
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.fakes.kube import FakeKube, Request

pytestmark = pytest.mark.looptime

TEN_MINUTES = 600


class Live:
    """A replica at work on a fake API server, which receives changes at once."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.app = wiring.assemble(
            self.kube, Config(), clock=SystemClock(), instance="test", registry=CollectorRegistry()
        )
        self.kube.on_change.append(self._receive)
        self._listener = self.app.controller.informer.hold(0)
        self._listener.synced(0)

    def apply(self, cluster: RayCluster) -> None:
        meta: Body = {"name": cluster.metadata.name, "namespace": cluster.metadata.namespace}
        known = self.kube.objects.get(("RayCluster", "ns", cluster.metadata.name), {})
        self.kube.put(
            RAY_CLUSTER,
            {"metadata": meta, "spec": cluster.raw_spec, "status": known.get("status", {})},
        )

    async def run_for(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.app.controller.run(self.app.reconciler, workers=2)
        except TimeoutError:
            pass

    def count(self, text: str) -> int:
        return sum(str(request).startswith(text) for request in self.kube.requests)

    def _receive(self, kind: str, body: Body, is_gone: bool) -> None:
        self._listener.take(
            (a_tombstone if is_gone else a_state)(kind, msgspec.json.encode(body)), trace=""
        )


def no_workers(request: Request) -> errors.RaybusError | None:
    if (request.verb, request.kind) == ("create", "Pod") and "-worker-" in request.name:
        return errors.Forbidden(f'pods "{request.name}" is forbidden: exceeded quota: q')
    return None


async def test_a_quota_costs_a_request_now_and_then_and_one_status_and_heals() -> None:
    live = Live()
    live.kube.faults.append(no_workers)
    live.apply(a_ray_cluster(groups=[a_group(replicas=10)]))
    await live.run_for(TEN_MINUTES)
    assert TEN_MINUTES / 30 < live.count("create Pod c-g-worker") < TEN_MINUTES / 10
    assert live.count("update RayCluster/status") <= 2
    assert live.count("create Event") + live.count("patch Event") <= 6
    live.kube.faults.clear()
    await live.run_for(31)
    assert len(live.kube.all(POD, "ns")) == 11


async def test_an_invalid_spec_costs_nothing_until_it_is_corrected() -> None:
    live = Live()
    live.apply(a_ray_cluster(groups=[a_group(min_replicas=5, max_replicas=1)]))
    await live.run_for(TEN_MINUTES)
    assert [str(request).split()[:2] for request in live.kube.requests] == [["create", "Event"]]
    live.apply(a_ray_cluster())
    await live.run_for(1)
    assert len(live.kube.all(POD, "ns")) == 4


async def test_an_api_server_that_is_down_is_asked_less_and_less() -> None:
    live = Live()
    live.kube.faults.append(lambda _: errors.Unavailable("connection refused"))
    live.apply(a_ray_cluster())
    await live.run_for(TEN_MINUTES)
    assert live.count("create Service") < 40
    live.kube.faults.clear()
    await live.run_for(31)
    assert len(live.kube.all(POD, "ns")) == 4
