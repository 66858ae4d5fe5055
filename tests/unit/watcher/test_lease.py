"""The end of a leader: its Lease is nobody's at once, whatever was under way."""

import asyncio
from typing import Any

import msgspec
import pytest

from common.api.meta import micro_time
from common.clock import SystemClock
from common.kube.resources import LEASE, Resource
from support.fakes.kube import FakeKube
from unit.watcher.a_nats import Nats, asked
from watcher.adapters.lease import Leadership, Reach
from watcher.leadership import LEASE_NAME

pytestmark = pytest.mark.looptime

NAMESPACE = "raybus"


class LateKube(FakeKube):
    """An API server that still carries out a renewal which nobody waits for any more, just after the next read."""

    is_late = False

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        answer = await super().get(resource, namespace, name)
        if self.is_late:
            self.is_late = False
            lease = msgspec.json.decode(answer)
            lease["spec"]["renewTime"] = micro_time(SystemClock().now())
            await self.replace(resource, namespace, lease)
        return answer


async def lead(kube: FakeKube, reach: Reach) -> None:
    async with Leadership(kube, SystemClock(), reach, namespace=NAMESPACE, me="a").held():
        await asyncio.Future()


@pytest.mark.parametrize("is_late", [pytest.param(False, id="at rest"), pytest.param(True, id="in a renewal")])
async def test_a_leader_that_ends_lets_its_lease_go(is_late: bool) -> None:
    kube, nats = LateKube(), Nats()
    async with asked(nats) as reach, asyncio.TaskGroup() as group:
        leading = group.create_task(lead(kube, reach))
        await asyncio.sleep(0.1)
        kube.is_late = is_late
        leading.cancel()
    lease: Any = msgspec.json.decode(await kube.get(LEASE, NAMESPACE, LEASE_NAME))
    assert not lease["spec"]["holderIdentity"]
    assert not nats.reconnects
