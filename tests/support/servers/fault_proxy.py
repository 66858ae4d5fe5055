"""Fault-injection proxies of the API server: a port of loopback for each client, with latency,
refusals and black holes on request.

A client sends plain HTTP/1.1 to its proxy and the proxy uses TLS to the API server, one connection
for each of the client's. The proxy puts the name of its client into the User-Agent, so that the
audit log identifies replicas.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec

from localcluster.kubeconfig import Access

MAX_HEAD_SIZE: Final = 2**18
SLICE: Final = 2**16
END: Final = b"\r\n\r\n"
_AGENT: Final = re.compile(rb"(?i)(\r\nuser-agent: [^\r]*)")
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_CHUNKED: Final = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the API server."""

    method: str
    target: str
    """Path and query of the request."""

    @property
    def is_watch(self) -> bool:
        """Return whether the request is a watch, whose answer lasts for minutes."""
        return "watch=1" in self.target or "watch=true" in self.target

    @property
    def is_write(self) -> bool:
        """Return whether the request changes an object."""
        return self.method != "GET"


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What the proxy does with a request; by default it passes it on."""

    delay: float = 0.0
    """Additional seconds before the request is passed on."""
    status: int = 0
    """HTTP status with which the proxy refuses the request without passing it on; 0 if it does
    not."""
    retry_after: int | None = None
    is_held: bool = False
    """Whether the request is neither answered nor passed on."""
    loses_answer: bool = False
    """Whether the API server carries out the request but the client gets 504."""


PASSES: Final = Fate()
Judge = Callable[[Asked], Fate]


def let_pass(_asked: Asked) -> Fate:
    """Return the fate that lets every request pass."""
    return PASSES


class FaultProxy:
    """The proxy between one client and the API server."""

    def __init__(self, name: str, access: Access) -> None:
        self.name = name
        self.judge: Judge = let_pass
        self.port = 0
        self._access = access
        self._tls = ssl.create_default_context(cadata=access.ca.decode())
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: set[_Passage] = set()

    @property
    def access(self) -> Access:
        """Return the access with which the client connects to the proxy."""
        return Access(
            server=f"http://127.0.0.1:{self.port}", ca=self._access.ca, token=self._access.token
        )

    def silence(self) -> None:
        """Withhold everything that the API server sends on open watches."""
        self._flows.clear()

    def resume(self) -> None:
        """End the silence; connections that were silent are lost, as behind a failed router."""
        self.cut()
        self._flows.set()

    def cut(self) -> None:
        """Close all connections."""
        for passage in list(self._open):
            passage.close()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator["FaultProxy"]:
        """Listen for the duration of a block; later calls use the same port."""
        server = await self._listening()
        self.port = int(server.sockets[0].getsockname()[1])
        try:
            yield self
        finally:
            server.close()
            self.cut()

    async def _listening(self) -> asyncio.Server:
        for _ in range(2):
            # uvloop may find the handle closed that it has made a moment ago; seen once among some hundred proxies.
            with suppress(RuntimeError):
                return await self._server()
        return await self._server()

    async def _server(self) -> asyncio.Server:
        return await asyncio.start_server(self._enter, "127.0.0.1", self.port, limit=MAX_HEAD_SIZE)

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = _Passage(reader, writer, self._connect)
        self._open.add(passage)
        try:
            with suppress(
                OSError, EOFError, ssl.SSLError
            ):  # as when the API server, or the client, is away
                while await self._pass_one(passage):
                    pass
        finally:
            self._open.discard(passage)
            passage.close()

    async def _pass_one(self, passage: "_Passage") -> bool:
        """Pass on one request and its answer; return whether the connection stays open."""
        head = await passage.client.readuntil(END)
        length = _LENGTH.search(head)
        body = await passage.client.readexactly(int(length[1])) if length is not None else b""
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        asked = Asked(method=method, target=target)
        fate = self.judge(asked)
        if fate.delay:
            await asyncio.sleep(fate.delay)
        if fate.is_held:
            await passage.client.read()  # until the client disconnects
            return False
        if fate.status:
            await passage.send(_refusal(fate))
            return True
        await passage.ask(_AGENT.sub(rb"\1 (%s)" % self.name.encode(), head, count=1) + body)
        if not asked.is_watch:
            return await self._answer(passage, loses=fate.loses_answer)
        return await self._follow(passage)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        server = urlsplit(self._access.server)
        return await asyncio.open_connection(
            server.hostname, server.port, ssl=self._tls, limit=MAX_HEAD_SIZE
        )

    async def _answer(self, passage: "_Passage", *, loses: bool) -> bool:
        head = await passage.server.readuntil(END)
        if loses:
            await passage.send(_refusal(Fate(status=504)))
            return False
        await passage.send(head)
        await self._copy_body(passage, head)
        return b"connection: close" not in head.lower()

    async def _follow(self, passage: "_Passage") -> bool:
        """Pass on a watch until either side ends it."""

        async def until_the_client_goes() -> None:
            with contextlib.suppress(OSError):  # it may go by a reset
                await passage.client.read(1)
            passage.close()

        async with asyncio.TaskGroup() as group:
            listening = group.create_task(until_the_client_goes())
            try:
                head = await passage.server.readuntil(END)
                await self._flows.wait()
                await passage.send(head)
                await self._copy_body(passage, head, waits=True)
            except (OSError, EOFError, ssl.SSLError):
                pass
            finally:
                listening.cancel()
        return False

    async def _copy_body(self, passage: "_Passage", head: bytes, *, waits: bool = False) -> None:
        length = _LENGTH.search(head)
        if _CHUNKED.search(head):
            await self._copy_chunks(passage, waits=waits)
        elif length is not None:  # also a watch that is refused
            await self._copy(passage, int(length[1]))

    async def _copy(self, passage: "_Passage", left: int) -> None:
        while left:
            piece = await passage.server.read(min(left, SLICE))
            if not piece:
                raise EOFError
            left -= len(piece)
            await passage.send(piece)

    async def _copy_chunks(self, passage: "_Passage", *, waits: bool = False) -> None:
        while True:
            line = await passage.server.readuntil(b"\r\n")
            piece = line + await passage.server.readexactly(int(line.split(b";")[0], 16) + 2)
            if waits:
                await self._flows.wait()
            await passage.send(piece)
            if line.startswith(b"0\r"):
                return


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class _Passage:
    """A client's connection, with the connection to the API server that belongs to it."""

    def __init__(
        self, client: asyncio.StreamReader, writer: asyncio.StreamWriter, connect: Connect
    ) -> None:
        self.client = client
        self._writer = writer
        self._connect = connect
        self._upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def server(self) -> asyncio.StreamReader:
        if self._upstream is None:
            raise EOFError
        return self._upstream[0]

    async def ask(self, request: bytes) -> None:
        """Send a request to the API server, over a new connection if there is none or the old one
        was closed.
        """
        if self._upstream is None or self._upstream[0].at_eof() or self._upstream[1].is_closing():
            self._upstream = await self._connect()
        self._upstream[1].write(request)
        await self._upstream[1].drain()

    async def send(self, piece: bytes) -> None:
        """Send bytes to the client."""
        if self._writer.is_closing():
            raise EOFError
        self._writer.write(piece)
        await self._writer.drain()

    def close(self) -> None:
        """Close both connections at once."""
        self._writer.transport.abort()
        if self._upstream is not None:
            self._upstream[1].transport.abort()


def _refusal(fate: Fate) -> bytes:
    """Return a refusal in the format of the API server."""
    reason = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 504: "Timeout"}.get(
        fate.status, "InternalError"
    )
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": fate.status,
        "reason": reason,
    }
    body = msgspec.json.encode({**status, "message": f"{fate.status} by the proxy"})
    wait = f"Retry-After: {fate.retry_after}\r\n" if fate.retry_after is not None else ""
    head = f"HTTP/1.1 {fate.status} {reason}\r\nContent-Type: application/json\r\n{wait}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
