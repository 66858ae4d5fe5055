"""Lets Ray Serve's proxy close kept-alive connections between requests, once its pod is marked as draining.

Ray loads it as its HTTP proxy callback. The mark is the pod's annotation `raybus.io/draining: "true"`, read through a
downward-API volume. Until then, and whenever anything here goes wrong, answers pass as they are. It needs nothing but
Python's library, and Starlette, which Serve brings.
"""

import importlib
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

ANNOTATIONS = "/etc/raybus/pod/annotations"
MARK = 'raybus.io/draining="true"'
CHECK_SECONDS = 0.5
SWITCHING_PROTOCOLS = 101


class Mark:
    """Whether the pod is marked; the file is read twice a second at most."""

    def __init__(self, path: str = ANNOTATIONS, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._checked_at: float | None = None
        self._is_set = False

    def is_set(self) -> bool:
        """Tell whether connections are to be closed."""
        now = self._clock()
        if self._checked_at is None or now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._is_set = self._read()
        return self._is_set

    def _read(self) -> bool:
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as light as it can be
                return any(line.strip() == MARK for line in file)
        except OSError:
            return False


class CloseWhenDraining:
    """ASGI middleware: adds `Connection: close` to each HTTP/1 answer while the mark is set."""

    def __init__(self, app: App, mark: Mark | None = None) -> None:
        self._app = app
        self._mark = mark or Mark()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on; look at the mark when its answer begins."""
        if scope.get("type") != "http" or not str(scope.get("http_version", "")).startswith("1"):
            await self._app(scope, receive, send)
            return

        async def send_closing(message: Message) -> None:
            await send(self._closing(message))

        await self._app(scope, receive, send_closing)

    def _closing(self, message: Message) -> Message:
        try:
            return self._with_close(message) if self._is_last(message) else message
        except Exception:  # noqa: BLE001 - whatever goes wrong here must never cost a user's request
            return message

    def _is_last(self, message: Message) -> bool:
        begins = message.get("type") == "http.response.start" and message.get("status") != SWITCHING_PROTOCOLS
        return begins and self._mark.is_set()

    def _with_close(self, message: Message) -> Message:
        kept = [pair for pair in message.get("headers", ()) if bytes(pair[0]).lower() != b"connection"]
        return {**message, "headers": [*kept, (b"connection", b"close")]}


def middlewares() -> list[Any]:
    """Return what Ray asks its proxy callback for: a list of Starlette middlewares, empty when there is no Starlette."""
    try:
        starlette = importlib.import_module("starlette.middleware")  # only Serve's own processes have it
    except ImportError:
        return []
    return [starlette.Middleware(CloseWhenDraining)]
