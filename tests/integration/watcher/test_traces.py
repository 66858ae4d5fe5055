"""An editor of an object knows its trace, and finds in it the whole path of the change: watcher, NATS, a replica, its writes."""

import asyncio
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from common.api.core import Pod
from common.bus import messages, subjects
from common.bus.messages import Synced
from common.bus.nats import connect
from common.bus.state_feed import StateFeed
from common.bus.subjects import ObjectRef
from common.clock import SystemClock
from common.kube import resources
from common.kube.installation import Installation
from common.observability import tracing
from common.observability.open_telemetry import SpanLine
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

TRACE = messages.derive_trace("uid-of-one", "8")
PARTITION = subjects.compute_partition(ObjectRef("Pod", "ns", "one"))
WAY = ["watch", "publish", "receive", "queue", "reconcile", "write"]


def a_pod(version: int) -> bytes:
    meta = {"namespace": "ns", "name": "one", "uid": "uid-of-one", "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": meta})


def own_key(obj: Object) -> list[Key]:
    return [Key(obj.metadata.namespace, obj.metadata.name)]


async def test_a_change_is_followed_from_the_watcher_to_what_is_written(tmp_path: Path) -> None:
    reconciles: list[Key] = []

    async def reconcile(key: Key, now: datetime) -> None:
        with tracing.step("write", method="PATCH"):
            reconciles.append(key)

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
        reported = RelaySource(relay, 0, resources.POD)
        watched = Watched(kinds={"Pod": Pod}, root=Pod, keys_of=own_key)
        controller = Controller("test", watched, cache=Cache(), clock=SystemClock())
        with tracing.configure("test", file=tmp_path / "traces", environment={}):
            async with asyncio.TaskGroup() as group:
                feed = StateFeed(bus, reader="test")
                tasks = [
                    group.create_task(outbox.work()),
                    group.create_task(feed.follow(PARTITION, controller.informer.hold(PARTITION))),
                    group.create_task(controller.run(reconcile, workers=1)),
                ]
                reported.present(a_pod(7))
                relay.everything_is_listed()
                relay.publish_marker(Synced(epoch="cluster/raybus/first", version=7))
                await eventually(
                    lambda: len(reconciles) == 1, within=30.0, what="the reconcile after the load"
                )
                reported.present(a_pod(8))
                await eventually(
                    lambda: len(reconciles) == 2, within=30.0, what="the reconcile after the change"
                )
                await outbox.flush()
                for task in tasks:
                    task.cancel()

    lines = [
        msgspec.json.decode(line, type=SpanLine)
        for line in (tmp_path / "traces").read_bytes().splitlines()
    ]
    _, trace, span, _ = TRACE.split("-")
    found = {each.name: each for each in lines if each.trace == trace}
    assert sorted(found) == sorted(WAY)
    assert found["watch"].attributes == {"object": "Pod ns/one", "version": "8"}
    parents = {name: each.parent for name, each in found.items()}
    below = dict.fromkeys(("publish", "receive", "queue", "reconcile"), span)
    assert parents == {"watch": "", "write": found["reconcile"].span, **below}
    ends = [found[name].end for name in ("watch", "queue", "write", "reconcile")]
    assert ends == sorted(ends)
    assert [
        each.name
        for each in lines
        if each.trace == messages.derive_trace("uid-of-one", "7").split("-")[1]
    ].count("queue") == 0
