"""Bounds of the connections to the server: their number, the time until the first request, and their age.

A further connection is closed at once. Without these bounds a client that sends nothing, or reads nothing, would occupy memory and file
descriptors for as long as it likes.
"""

import asyncio
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

MOST: Final = 512
HANDSHAKE_SECONDS: Final = 8.0
FIRST_REQUEST_SECONDS: Final = 10.0
"""Longer than a TLS handshake may take."""
LONGEST_SECONDS: Final = 360.0
"""Longer than a stream of events lasts."""
IDLE_SECONDS: Final = 15.0
"""Between two requests."""


class Connections:
    """The connections of a server."""

    def __init__(
        self,
        most: int = MOST,
        first_request: float = FIRST_REQUEST_SECONDS,
        longest: float = LONGEST_SECONDS,
    ) -> None:
        self._most = most
        self._first_request = first_request
        self._longest = longest
        self._open: dict[asyncio.BaseProtocol, _Bounded] = {}

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note that a connection has sent a request."""
        if (found := self._open.get(request.protocol)) is not None:
            found.is_served = True
        return await handler(request)

    def protocol(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Return the protocol of a new connection that `inner` is to serve."""
        if len(self._open) >= self._most:
            return _Refusing()
        made = _Bounded(inner, self._open)
        made.end_after(self._first_request, self._longest)
        return made


class _Bounded(asyncio.Protocol):
    """One connection, counted from its beginning, which for TLS is before the handshake."""

    def __init__(
        self, inner: asyncio.Protocol, held: "dict[asyncio.BaseProtocol, _Bounded]"
    ) -> None:
        self.is_served = False
        self._inner = inner
        self._held = held
        self._transport: asyncio.WriteTransport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        held[inner] = self

    def end_after(self, first_request: float, longest: float) -> None:
        """Close it after some seconds without a request, and at the greatest age."""
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.call_later(first_request, lambda: None if self.is_served else self._abort()),
            loop.call_later(longest, self._abort),
        ]

    def _abort(self) -> None:
        """Close it without waiting for a client that does not read."""
        self._forget()  # a failed handshake is never reported
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        self._held.pop(self._inner, None)
        for each in self._timers:
            each.cancel()

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


class _Refusing(asyncio.Protocol):
    """Closes its connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
