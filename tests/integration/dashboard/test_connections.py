"""Bounds of the server's connections, on real sockets: too many, silent, old, and without an end of their headers."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from raybus_dashboard.incluster.connections import Connections

pytestmark = [pytest.mark.integration]

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[int], Awaitable[Streams]]


@pytest.fixture
async def connect() -> AsyncGenerator[Connect]:
    """Return what opens a connection to a port; all are closed at the end."""
    opened: list[asyncio.StreamWriter] = []

    async def made(port: int) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
        opened.append(writer)
        return reader, writer

    yield made
    for each in opened:
        each.transport.abort()
    await asyncio.sleep(0.05)


@asynccontextmanager
async def served(connections: Connections) -> AsyncGenerator[int]:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)

    async def short(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application(middlewares=[connections.note])
    app.router.add_get("/", short)
    app.router.add_get("/endless", endless)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    inner = runner.server
    assert inner is not None
    listening = socket.create_server(("127.0.0.1", 0))
    server = await asyncio.get_running_loop().create_server(
        lambda: connections.wrap_protocol(inner()), sock=listening
    )
    try:
        yield listening.getsockname()[1]
    finally:
        server.close()
        await runner.cleanup()


async def _is_closed(streams: Streams, within: float = 5.0) -> bool:
    """Return whether the server closes a connection; what it sends before is passed over."""
    try:
        async with asyncio.timeout(within):
            while await streams[0].read(65_536):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def _answer(streams: Streams) -> bytes:
    streams[1].write(REQUEST)
    return await streams[0].readline()


async def test_a_connection_too_many_is_closed_and_the_next_is_served_once_there_is_room(
    connect: Connect,
) -> None:
    async with served(Connections(most=2)) as port:
        opened = [await connect(port) for _ in range(2)]
        assert [await _answer(each) for each in opened] == [b"HTTP/1.1 200 OK\r\n"] * 2
        assert await _is_closed(await connect(port))
        opened[0][1].close()
        await opened[0][1].wait_closed()
        await asyncio.sleep(0.05)
        assert await _answer(await connect(port)) == b"HTTP/1.1 200 OK\r\n"


async def test_a_connection_without_a_request_is_closed_and_one_with_a_request_stays(
    connect: Connect,
) -> None:
    async with served(Connections(first_request=0.3)) as port:
        silent, slow, good = [await connect(port) for _ in range(3)]
        slow[1].write(b"GET / HTTP/1.1\r\nX-Endless: ")
        assert await _answer(good) == b"HTTP/1.1 200 OK\r\n"
        assert await _is_closed(silent)
        assert await _is_closed(slow)
        assert not await _is_closed(good, within=0.3)


async def test_a_client_that_does_not_read_is_closed_at_the_greatest_age(connect: Connect) -> None:
    connections = Connections(most=1, longest=0.5)
    async with served(connections) as port:
        _, writer = await connect(port)
        writer.write(REQUEST.replace(b" / ", b" /endless "))
        await asyncio.sleep(0.8)
        assert await _answer(await connect(port)) == b"HTTP/1.1 200 OK\r\n"
