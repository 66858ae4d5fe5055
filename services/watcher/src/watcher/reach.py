"""Whether this replica can reach NATS, asked every second; a leader without NATS makes room for a replica that has it.

Two kinds of silence. A server that does not even answer a ping is out of reach, and for another replica it may well be in
reach: the Lease goes after a few seconds. A server that answers while the stream does not is most likely electing the stream's
leader, which takes up to eight seconds and which no other watcher can speed up: so that takes longer.
"""

import asyncio
from typing import Final

from common import errors
from watcher.ports import Server

ASK_SECONDS: Final = 1.0
ASK_AGAIN_SECONDS: Final = 0.2
"""As long as there is a problem."""
SERVER_SECONDS: Final = 4.0
"""A leader yields after its server has been silent for this long; two requests can time out in it."""
STREAM_SECONDS: Final = 12.0
"""A leader yields, and tries another connection, after its stream has been silent for this long."""


class Reach:
    """What this replica knows of NATS; `run` keeps asking."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._server_answered_at = asyncio.get_running_loop().time()
        self._stream_answered_at = self._reconnected_at = self._server_answered_at
        self.problem: str | None = "the state stream has not been asked for yet"
        """Why the state stream cannot be written to; None while it can."""

    @property
    def is_lost(self) -> bool:
        """Return whether a leader should make room for a replica that may have better luck."""
        now = asyncio.get_running_loop().time()
        return now > self._server_answered_at + SERVER_SECONDS or now > self._stream_answered_at + STREAM_SECONDS

    async def run(self) -> None:
        """Ask until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            is_answered = True
            try:
                await self._server.identity()
                self.problem = None
            except (errors.NotFound, errors.Terminal) as problem:
                self.problem = str(problem)  # an answer all the same; nobody can write before it is created
            except errors.Retryable as problem:
                self.problem, is_answered = str(problem), False
            if is_answered:
                self._server_answered_at = self._stream_answered_at = loop.time()
            elif await self._server.is_in_reach():
                self._server_answered_at = loop.time()
            now = loop.time()
            if now > max(self._stream_answered_at, self._reconnected_at) + STREAM_SECONDS:
                self._reconnected_at = now
                await self._server.reconnect(f"no answer of the state stream for {STREAM_SECONDS:g} s")
            await asyncio.sleep(ASK_SECONDS if self.problem is None else ASK_AGAIN_SECONDS)
