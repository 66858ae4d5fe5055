"""All partitions at once, for tests of one replica: reported to a controller, each by itself, or to one listener."""

import asyncio
from collections.abc import Collection, Iterable

import msgspec

from common.api.meta import ObjectMeta
from common.bus.feed import Feed, Listener
from common.runtime.controller import Controller


async def follow(feed: Feed, controller: Controller, partitions: Iterable[int] = (0,)) -> None:
    """Report some partitions to a controller, each by itself, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for each in partitions:
            group.create_task(feed.follow(each, controller.informer.hold(each)))


async def follow_as_one(feed: Feed, partitions: Collection[int], listener: Listener) -> None:
    """Report some partitions to one listener as if they were a single one, until cancelled."""
    parts: list[_Part] = []
    parts += [_Part(parts, listener) for _ in partitions]
    async with asyncio.TaskGroup() as group:
        for partition, part in zip(partitions, parts, strict=True):
            group.create_task(feed.follow(partition, part))


class _Head(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Part:
    """One partition of several; implements `Listener`. A reload of one is a reload of all, so the others repeat what they hold."""

    def __init__(self, all_parts: "list[_Part]", listener: Listener) -> None:
        self._all = all_parts
        self._listener = listener
        self._objects: dict[tuple[str, str, str], tuple[bytes, str]] = {}
        self._version: int | None = None

    def loading(self, why: str) -> None:
        self._objects, self._version = {}, None
        self._listener.loading(why)
        for part in self._all:
            for (kind, _, _), (body, trace) in part._objects.items():
                self._listener.changed(kind, body, trace=trace)

    def rewound(self) -> None:
        self._listener.rewound()

    def changed(self, kind: str, body: bytes, *, trace: str) -> None:
        meta = msgspec.json.decode(body, type=_Head).metadata
        self._objects[kind, meta.namespace, meta.name] = (body, trace)
        self._listener.changed(kind, body, trace=trace)

    def quarantined(self, kind: str, namespace: str, name: str, *, body: bytes, why: str) -> None:
        self._listener.quarantined(kind, namespace, name, body=body, why=why)

    def removed(self, kind: str, namespace: str, name: str, *, version: int, trace: str) -> None:
        self._objects.pop((kind, namespace, name), None)
        if not self._is_elsewhere(kind, namespace, name):
            self._listener.removed(kind, namespace, name, version=version, trace=trace)

    def moved(self, kind: str, namespace: str, name: str, *, to: int | None) -> None:
        self._objects.pop((kind, namespace, name), None)
        if to is None:
            self._listener.moved(kind, namespace, name, to=to)

    def synced(self, version: int) -> None:
        self._version = version
        versions = [part._version for part in self._all]
        if None not in versions:
            self._listener.synced(min(each for each in versions if each is not None))

    def _is_elsewhere(self, kind: str, namespace: str, name: str) -> bool:
        return any((kind, namespace, name) in part._objects for part in self._all)
