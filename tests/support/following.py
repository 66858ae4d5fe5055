"""Follows several partitions at once, for tests of one replica: each reported to a controller by
itself, or all to one listener.
"""

import asyncio
from collections.abc import Collection, Iterable

from common.bus.feed import NOT_READ, Feed, PartitionListener
from common.bus.messages import ObjectMessage, ObjectState, Tombstone
from common.runtime.controller import Controller


async def follow(feed: Feed, controller: Controller, partitions: Iterable[int] = (0,)) -> None:
    """Report some partitions to a controller, each by itself, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for each in partitions:
            group.create_task(feed.follow(each, controller.informer.hold(each)))


async def follow_as_one(
    feed: Feed, partitions: Collection[int], listener: PartitionListener
) -> None:
    """Report some partitions to one listener as if they were a single one, until cancelled."""
    parts: list[_Part] = []
    parts += [_Part(parts, listener) for _ in partitions]
    async with asyncio.TaskGroup() as group:
        for partition, part in zip(partitions, parts, strict=True):
            group.create_task(feed.follow(partition, part))


class _Part:
    """One partition of several; implements `Listener`.

    A reload of one partition is a reload of all, so the others repeat their objects.
    """

    def __init__(self, all_parts: "list[_Part]", listener: PartitionListener) -> None:
        self._all = all_parts
        self._listener = listener
        self._objects: dict[tuple[str, str, str], tuple[ObjectState, str]] = {}
        self._version: int | None = None

    def loading(self, reason: str) -> None:
        self._objects, self._version = {}, None
        self._listener.loading(reason)
        for part in self._all:
            for message, trace in part._objects.values():
                self._listener.take(message, trace=trace)

    def rewound(self) -> None:
        self._listener.rewound()

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        key = (message.kind, message.namespace, message.name)
        if isinstance(message, ObjectState):
            self._objects[key] = (message, trace)
        elif isinstance(message, Tombstone):
            self._objects.pop(key, None)
            to = message.moved_to
            is_elsewhere = (
                any(key in part._objects for part in self._all)
                if to is None
                else to.partition != NOT_READ
            )
            if is_elsewhere:
                return
        self._listener.take(message, trace=trace)

    def synced(self, version: int) -> None:
        self._version = version
        versions = [part._version for part in self._all]
        if None not in versions:
            self._listener.synced(min(each for each in versions if each is not None))
