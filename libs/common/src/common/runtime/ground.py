"""What holding a partition means in one replica: its feed, and its keys."""

import asyncio
from collections.abc import Set

from common.bus.feed import Feed
from common.runtime.controller import Controller


class Ground:
    """Follows the partitions that are ours; implements `common.runtime.membership.Ground`."""

    def __init__(self, controller: Controller, feed: Feed, group: asyncio.TaskGroup) -> None:
        self._controller = controller
        self._feed = feed
        self._group = group
        self._following: dict[int, asyncio.Task[None]] = {}

    def take(self, partitions: Set[int]) -> None:
        for each in sorted(partitions):
            listener = self._controller.hold(each)
            self._following[each] = self._group.create_task(self._feed.follow(frozenset({each}), listener))

    def stop(self, partitions: Set[int]) -> frozenset[int]:
        return self._controller.stop(partitions)

    async def release(self, partitions: Set[int], *, patience: float) -> None:
        for each in partitions:
            following = self._following.pop(each, None)
            if following is not None:
                following.cancel()
        await self._controller.release(partitions, patience=patience)
