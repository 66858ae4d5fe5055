"""NATS as a watcher sees it when it checks whether NATS is reachable."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from common import errors
from common.bus.streams import StreamInfo, StreamState
from watcher.adapters.lease import ReachCheck


class Nats:
    """Implements `watcher.ports.Server`; each unanswered query takes its whole time-out."""

    def __init__(self) -> None:
        self.stream: errors.RaybusError | None = None
        """Error with which a query about the stream ends; None for an answer."""
        self.takes = 2.0
        """Seconds until an unanswered query times out; more if the process got no processor
        meanwhile."""
        self.is_there = True
        self.reconnects: list[str] = []

    async def identity(self) -> StreamInfo:
        problem = self.stream
        if problem is not None:
            await asyncio.sleep(self.takes if isinstance(problem, errors.Unavailable) else 0.0)
            raise problem
        return StreamInfo(created="once", state=StreamState(last_seq=1))

    async def is_in_reach(self) -> bool:
        await asyncio.sleep(0.0 if self.is_there else self.takes)
        return self.is_there

    async def reconnect(self, reason: str) -> None:
        self.reconnects.append(reason)


@asynccontextmanager
async def asked(nats: Nats) -> AsyncGenerator[ReachCheck]:
    reach = ReachCheck(nats)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(reach.run())
        await asyncio.sleep(0.1)
        yield reach
        asking.cancel()
