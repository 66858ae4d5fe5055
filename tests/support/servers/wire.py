"""A TCP connection between a client and a server that tests delay, block and close; TLS passes
through it.

A blocked wire accepts data and passes nothing on in either direction, like a failed router: neither
side receives an error. Blocked data is lost, so its connections must end before the wire is
restored.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

PIECE = 2**16


class Wire:
    """A port of loopback that forwards to another port."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self.delay = 0.0
        """Seconds of delay for each piece of data in each direction, one after the other, like a
        slow server rather than a long wire."""
        self.is_swallowed = False
        self._paused_until = 0.0
        self.carried = 0
        """Bytes passed on so far in both directions."""
        self._to_port = to_port
        self._ends: set[asyncio.StreamWriter] = set()

    @property
    def is_used(self) -> bool:
        """Return whether a connection is open."""
        return bool(self._ends)

    def pause(self, seconds: float) -> None:
        """Keep back what arrives within these seconds, in both directions, then pass it on in
        order."""
        self._paused_until = asyncio.get_running_loop().time() + seconds

    def swallow(self) -> None:
        """Pass nothing on from now on; new connections are accepted and blocked too."""
        self.is_swallowed = True

    def restore(self) -> None:
        """Close the blocked connections, and pass data on again."""
        self.is_swallowed = False
        self.cut()

    def cut(self) -> None:
        """Close all connections at once."""
        for end in list(self._ends):
            end.transport.abort()

    @asynccontextmanager
    async def laid(self) -> AsyncGenerator["Wire"]:
        """Listen for the duration of a block."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        try:
            yield self
        finally:
            server.close()
            self.cut()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
            self._ends |= {writer, there_writer}
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, there_writer))
                    group.create_task(self._pass(there_reader, writer))
            finally:
                self._ends -= {writer, there_writer}
                writer.close()
                there_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE):
                if self.is_swallowed:
                    continue
                paused = self._paused_until - asyncio.get_running_loop().time()
                await asyncio.sleep(max(self.delay, paused))
                writer.write(piece)
                self.carried += len(piece)
                await writer.drain()
        writer.close()
