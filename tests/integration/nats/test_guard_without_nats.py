"""A real nats-server that dies under a reader (ADR 17).

No decisions are made until it is back, except those of the guard, which begins within seconds.
"""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from common.api.core import Pod
from common.bus import subjects
from common.bus.messages import Synced
from common.bus.nats import connect
from common.bus.state_feed import StateFeed
from common.bus.subjects import ObjectRef
from common.clock import SystemClock
from common.kube import resources
from common.kube.installation import Installation
from common.runtime.cache import Cache, Object
from common.runtime.controller import Controller
from common.runtime.key import Key, Watched
from support.fakes.kube import FakeKube
from support.servers.relayed import provisioned
from support.waiting import eventually
from watcher.adapters.bus import NatsStream
from watcher.outbox import Outbox
from watcher.relay import Relay, RelaySource

pytestmark = [pytest.mark.integration]

PARTITION = subjects.compute_partition(ObjectRef("Pod", "ns", "one"))
BODY = msgspec.json.encode(
    {"metadata": {"namespace": "ns", "name": "one", "uid": "one", "resourceVersion": "7"}}
)


def own_key(obj: Object) -> list[Key]:
    return [Key(obj.metadata.namespace, obj.metadata.name)]


async def test_while_the_server_is_dead_the_guard_reconciles_what_is_due_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    reconciles: list[float] = []
    guarded: list[float] = []
    loop = asyncio.get_running_loop()

    async def reconcile(key: Key, now: datetime) -> datetime | None:
        assert key.name == "one"
        reconciles.append(loop.time())
        return now + timedelta(seconds=0.5)

    async def guard(key: Key, now: datetime) -> datetime | None:
        assert key.name == "one"
        guarded.append(loop.time())
        return now + timedelta(seconds=0.5)

    async with (
        provisioned(tmp_path) as (secured, bus),
        connect(secured.settings("watcher")) as writer,
    ):
        await writer.session()
        ours = Installation(FakeKube(), "raybus")
        ours.known = "cluster/raybus"
        stream = NatsStream(writer, ours, may_write=lambda: True)
        await eventually(lambda: bus.problem is None, within=30.0, what="the reader's connection")
        outbox = Outbox(stream, await stream.load(), lambda _: None)
        relay = Relay(outbox, lambda _: None)
        watched = Watched(kinds={"Pod": Pod}, root=Pod, keys_of=own_key)
        controller = Controller("test", watched, cache=Cache(), clock=SystemClock())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(outbox.work()),
                group.create_task(
                    StateFeed(bus, reader="test").follow(
                        PARTITION, controller.informer.hold(PARTITION)
                    )
                ),
                group.create_task(controller.run(reconcile, workers=1, guard=guard)),
            ]
            RelaySource(relay, 0, resources.POD).present(BODY)
            relay.everything_is_listed()
            relay.publish_marker(Synced(epoch="cluster/raybus/first", version=7))
            await eventually(
                lambda: len(reconciles) > 1, within=30.0, what="reconciles while the server lives"
            )
            secured.server.kill()
            died_at = loop.time()
            await eventually(lambda: len(guarded) > 3, within=30.0, what="the guard")
            assert 1.5 < guarded[0] - died_at < 10
            assert max(reconciles) < guarded[0]
            secured.server.start()
            count = len(reconciles)
            await eventually(
                lambda: len(reconciles) > count,
                within=30.0,
                what="reconciles once the server is back",
            )
            assert max(guarded) < reconciles[count]
            for task in tasks:
                task.cancel()
