"""One collection, followed as the watcher does."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from common.kube.client import KubeClient
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming


class Collection:
    """Implements `common.kube.watch.WatchSink`."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.lists = 0

    def present(self, raw: bytes, reason: str = "") -> None:
        self.names.add(_name(raw))

    def gone(self, raw: bytes) -> None:
        self.names.discard(_name(raw))

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        self.lists += 1
        self.names &= {name for _, name in keys}


def _name(raw: bytes) -> str:
    return str(msgspec.json.decode(raw, type=dict[str, Any])["metadata"]["name"])


class _Resumed(Watch):
    """Begins with what happened after a version, and without a list."""

    def resume(self, version: str) -> None:
        self._version = version
        self._listed_at = asyncio.get_running_loop().time()


@asynccontextmanager
async def following(
    kube: KubeClient, target: WatchTarget, timing: WatchTiming, *, resume_from: str | None = None
) -> AsyncGenerator[tuple[Watch, Collection]]:
    collection = Collection()
    watch = _Resumed(kube, target, collection, jitter=lambda: 1.0, timing=timing)
    if resume_from is not None:
        watch.resume(resume_from)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(watch.run())
        yield watch, collection
        running.cancel()
