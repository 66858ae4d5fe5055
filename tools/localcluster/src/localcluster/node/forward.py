"""Forwards TCP connections from a port of this machine to the API server inside a node.

A listening socket belongs to the network namespace in which it was created. Therefore the socket is
opened outside the node, and inherited by this program, which runs in the node's network namespace:
`python forward.py <file descriptor> <host> <port>`.
"""

import asyncio
import socket
import sys
from contextlib import suppress

_CHUNK = 1 << 16


async def serve(listening: socket.socket, host: str, port: int) -> None:
    """Accept connections and forward each one to `host` and `port`, until killed."""

    async def forward_connection(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(host, port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, there_writer))
                    group.create_task(_copy(there_reader, writer))
            finally:
                there_writer.close()
        writer.close()

    server = await asyncio.start_server(forward_connection, sock=listening)
    async with server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes from `reader` to `writer` until the end of the stream.

    Then half-close the writer's connection; the other direction stays open.
    """
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


def main() -> None:
    """Forward the connections of the listening socket that the command line names."""
    descriptor, host, port = sys.argv[1:4]
    asyncio.run(serve(socket.socket(fileno=int(descriptor)), host, int(port)))


if __name__ == "__main__":
    main()
