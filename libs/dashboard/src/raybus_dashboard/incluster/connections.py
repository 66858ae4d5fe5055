"""Limits the server's connections: their number, the time until the first request, and their age.

Without limits, a client that sends or reads nothing would occupy memory and file descriptors
indefinitely. A connection beyond the maximum number is closed immediately.
"""

import asyncio
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

MAX_CONNECTIONS: Final = 512
HANDSHAKE_SECONDS: Final = 8.0
FIRST_REQUEST_SECONDS: Final = 10.0
"""Timeout for the first request of a connection. Longer than `HANDSHAKE_SECONDS`."""
MAX_SECONDS: Final = 360.0
"""Maximum age of a connection. Longer than an event stream lasts (300 s)."""
IDLE_SECONDS: Final = 15.0
"""Timeout between two requests of a connection."""


class Connections:
    """The open connections of a server.

    `most` is their maximum number, `first_request` the timeout of a first request, and `longest`
    the maximum age of a connection, in seconds.
    """

    def __init__(
        self,
        most: int = MAX_CONNECTIONS,
        first_request: float = FIRST_REQUEST_SECONDS,
        longest: float = MAX_SECONDS,
    ) -> None:
        self._most = most
        self._first_request = first_request
        self._longest = longest
        self._open: dict[asyncio.BaseProtocol, _BoundedProtocol] = {}

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Record that the connection has sent a request, then handle the request."""
        if (bounded := self._open.get(request.protocol)) is not None:
            bounded.is_served = True
        return await handler(request)

    def wrap_protocol(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Return the protocol of a new connection, which wraps `inner`.

        If there are too many connections, the protocol closes its connection.
        """
        if len(self._open) >= self._most:
            return _RefusingProtocol()
        made = _BoundedProtocol(inner, self._open)
        made.end_after(self._first_request, self._longest)
        return made


class _BoundedProtocol(asyncio.Protocol):
    """A connection with timeouts.

    The connection is in `connections`, and counts towards the limit, as soon as it is open, before
    a TLS handshake.
    """

    def __init__(
        self, inner: asyncio.Protocol, connections: "dict[asyncio.BaseProtocol, _BoundedProtocol]"
    ) -> None:
        self.is_served = False
        self._inner = inner
        self._held = connections
        self._transport: asyncio.WriteTransport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        connections[inner] = self

    def end_after(self, first_request: float, longest: float) -> None:
        """Set the timeouts of the connection.

        It is closed after `first_request` seconds without a request, and after `longest` seconds in
        any case.
        """
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.call_later(first_request, lambda: None if self.is_served else self._abort()),
            loop.call_later(longest, self._abort),
        ]

    def _abort(self) -> None:
        """Close the connection without waiting for a client that does not read."""
        self._forget()  # asyncio never reports a failed handshake
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        self._held.pop(self._inner, None)
        for _timer in self._timers:
            _timer.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _RefusingProtocol(asyncio.Protocol):
    """Closes its connection immediately."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
