"""A controller that holds partitions without asking anybody, for tests of one replica."""

import asyncio
from collections.abc import Iterable

from common.bus.feed import Feed
from common.runtime.controller import Controller


async def follow(feed: Feed, controller: Controller, partitions: Iterable[int] = (0,)) -> None:
    """Report some partitions to a controller, each by itself, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for each in partitions:
            group.create_task(feed.follow(frozenset({each}), controller.hold(each)))
