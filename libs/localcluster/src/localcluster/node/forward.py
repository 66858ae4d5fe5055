"""Forwards TCP connections from a port of the machine to the API server inside a node's network namespace.

A listening socket stays in the network namespace that it was made in. So it is opened outside, and this program, which
inherits it, runs inside: `python forward.py <file descriptor> <host> <port>`.
"""

import asyncio
import socket
import sys
from contextlib import suppress

_CHUNK = 1 << 16


async def serve(listening: socket.socket, host: str, port: int) -> None:
    """Forward each connection until killed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(host, port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, there_writer))
                    group.create_task(_copy(there_reader, writer))
            finally:
                there_writer.close()
        writer.close()

    server = await asyncio.start_server(connected, sock=listening)
    async with server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction; the end of one side is passed on as an end, so that half-closed connections work."""
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


def main() -> None:
    """Read the command line and forward."""
    descriptor, host, port = sys.argv[1:4]
    asyncio.run(serve(socket.socket(fileno=int(descriptor)), host, int(port)))


if __name__ == "__main__":
    main()
