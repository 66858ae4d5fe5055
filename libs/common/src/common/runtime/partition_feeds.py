"""The feeds and keys of the partitions that one replica holds."""

import asyncio
from collections.abc import Set
from functools import partial

from common.bus.feed import Feed
from common.runtime import supervision
from common.runtime.controller import Controller


class PartitionFeeds:
    """Follows the partitions that are ours; implements `common.runtime.membership.PartitionHandler`."""

    def __init__(self, controller: Controller, feed: Feed, group: asyncio.TaskGroup) -> None:
        self._controller = controller
        self._feed = feed
        self._group = group
        self._following: dict[int, asyncio.Task[None]] = {}

    def acquire(self, partitions: Set[int]) -> None:
        for each in sorted(partitions):
            listener = self._controller.hold(each)
            follow = partial(self._feed.follow, frozenset({each}), listener)
            self._following[each] = self._group.create_task(supervision.keep(f"feed of partition {each}", follow))

    def stop(self, partitions: Set[int]) -> frozenset[int]:
        return self._controller.stop(partitions)

    async def release(self, partitions: Set[int], *, grace_seconds: float) -> None:
        for each in partitions:
            following = self._following.pop(each, None)
            if following is not None:
                following.cancel()
        await self._controller.release(partitions, grace_seconds=grace_seconds)
