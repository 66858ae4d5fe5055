"""Bounds of the connections to the server: their number, the time until the first request, and their age.

A further connection is closed at once. Without these bounds a client that sends nothing, or reads nothing, would occupy memory and file
descriptors for as long as it likes.
"""

import asyncio
import weakref
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
        self, most: int = MOST, first_request: float = FIRST_REQUEST_SECONDS, longest: float = LONGEST_SECONDS
    ) -> None:
        self._most = most
        self._first_request = first_request
        self._longest = longest
        self._open: set[_Bounded] = set()
        self._served: weakref.WeakSet[asyncio.BaseProtocol] = weakref.WeakSet()

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note that a connection has sent a request."""
        self._served.add(request.protocol)
        return await handler(request)

    def protocol(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Return the protocol of a new connection that `inner` is to serve."""
        if len(self._open) >= self._most:
            return _Refusing()
        made = _Bounded(inner, self._open)
        self._open.add(made)
        loop = asyncio.get_running_loop()
        loop.call_later(self._first_request, self._end_unserved, weakref.ref(made))
        loop.call_later(self._longest, _end, weakref.ref(made))
        return made

    def _end_unserved(self, weak: "weakref.ref[_Bounded]") -> None:
        found = weak()
        if found is not None and found.inner not in self._served:
            found.abort()


def _end(weak: "weakref.ref[_Bounded]") -> None:
    found = weak()
    if found is not None:
        found.abort()


class _Bounded(asyncio.Protocol):
    """One connection, counted from its beginning, which for TLS is before the handshake."""

    def __init__(self, inner: asyncio.Protocol, held: "set[_Bounded]") -> None:
        self.inner = inner
        self._held = held
        self._transport: asyncio.WriteTransport | None = None

    def abort(self) -> None:
        """Close it without waiting for a client that does not read."""
        self._held.discard(self)  # nobody reports a failed handshake
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.discard(self)
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class _Refusing(asyncio.Protocol):
    """Closes its connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
