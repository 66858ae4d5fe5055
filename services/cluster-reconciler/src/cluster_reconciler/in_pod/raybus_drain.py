"""Lets Ray Serve's proxies close kept-alive connections once their pod is marked as draining.

Ray loads this module as its HTTP proxy callback. The mark is the pod's annotation
`raybus.io/draining: "true"`, read from a downward-API volume. Without the mark, and whenever an
error occurs here, answers pass unchanged. The module needs only Python's library, and Starlette and
Ray, which Serve has.

Serve's own proxies run a middleware that closes connections. HAProxy
(`RAY_SERVE_ENABLE_HA_PROXY=1`) has connections that no middleware sees. Ray then loads the callback
in the ingress replicas behind HAProxy and in the head's fallback proxy. A thread in one of these
processes lets the HAProxy of its node drain, as Serve does before it removes a node. On the head
the thread also drains the HAProxy of all other nodes, since a node may have a HAProxy and no
ingress replica.
"""

import contextlib
import fcntl
import importlib
import os
import tempfile
import threading
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

LOCK = os.path.join(tempfile.gettempdir(), "raybus-drain.lock")  # noqa: PTH118 - as light as it can be
"""Lock file of the one process in the pod that drains HAProxy."""
AGAIN_SECONDS = 15.0
"""Seconds between two drains of HAProxy.

A connection that was opened after one drain is closed at the next."""
ANSWER_SECONDS = 60.0
HEAD = "node:__internal_head__"
"""Ray resource that only the head's node has."""


class Mark:
    """The draining mark of the pod, from a file that is read at most every `CHECK_SECONDS`."""

    def __init__(
        self, path: str = ANNOTATIONS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self._checked_at: float | None = None
        self._is_set = False

    def is_set(self) -> bool:
        now = self._clock()
        if self._checked_at is None or now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            try:
                with open(self._path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as light as it can be
                    self._is_set = any(line.strip() == MARK for line in file)
            except OSError:
                self._is_set = False
        return self._is_set


class CloseWhenDraining:
    """ASGI middleware that adds `Connection: close` to each HTTP/1 answer while the mark is set."""

    def __init__(self, app: App, mark: Mark | None = None) -> None:
        self._app = app
        self._mark = mark or Mark()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, and check the mark when the response begins."""
        if scope.get("type") != "http" or not str(scope.get("http_version", "")).startswith("1"):
            await self._app(scope, receive, send)
            return

        async def send_closing(message: Message) -> None:
            # An error here must never cost a user's request.
            with contextlib.suppress(Exception):
                begins = (
                    message.get("type") == "http.response.start"
                    and message.get("status") != SWITCHING_PROTOCOLS
                )
                if begins and self._mark.is_set():
                    kept = [
                        pair
                        for pair in message.get("headers", ())
                        if bytes(pair[0]).lower() != b"connection"
                    ]
                    message = {**message, "headers": [*kept, (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, send_closing)


class HaProxyDrain:
    """Drains the HAProxy of this node while the mark is set.

    A drain replaces the process of HAProxy. The new process takes over the listening sockets. The
    old process closes each kept-alive connection with its next answer, and ends after its last
    request. The drain is repeated, since the new process keeps connections alive too.
    """

    def __init__(
        self,
        set_draining: Callable[..., None],
        drain_others: Callable[[], None],
        mark: Mark | None = None,
        lock: str = LOCK,
    ) -> None:
        self._set_draining = set_draining
        self._drain_others = drain_others
        self._mark = mark or Mark()
        self._path = lock
        self._lock: int | None = None
        self._is_draining = False

    def run(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait for the mark, then drain repeatedly until the process ends."""
        while True:
            sleep(self.step())

    def step(self) -> float:
        """Drain if it is due, and return the seconds until the next step; errors are ignored."""
        if not self._mark.is_set():
            return CHECK_SECONDS
        with contextlib.suppress(Exception):  # Ray may have another version or be shutting down.
            if self._leads():
                if self._is_draining:
                    self._is_draining = False
                    self._set_draining(draining=False)
                self._set_draining(draining=True)
                self._is_draining = True
                self._drain_others()
        return AGAIN_SECONDS

    def _leads(self) -> bool:
        """Return whether this process holds the pod's lock, which it keeps until it ends."""
        if self._lock is None:
            lock = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return False
            self._lock = lock
        return True


def middlewares() -> list[Any]:
    """Return the Starlette middlewares that Ray adds to its proxy; Ray calls this function.

    With HAProxy the list is empty, and a thread is started instead. Without Starlette it is empty
    too.
    """
    has_ha_proxy = False
    with contextlib.suppress(ImportError):
        constants = importlib.import_module("ray.serve._private.constants")
        has_ha_proxy = bool(getattr(constants, "RAY_SERVE_ENABLE_HA_PROXY", False))
    if has_ha_proxy:
        drain = HaProxyDrain(set_draining, drain_others)
        threading.Thread(target=drain.run, name="raybus-drain", daemon=True).start()
        return []
    try:
        # Only Serve's own processes have Starlette.
        starlette = importlib.import_module("starlette.middleware")
    except ImportError:
        return []
    return [starlette.Middleware(CloseWhenDraining)]


def set_draining(*, draining: bool) -> None:
    """Start or end the drain of this node's HAProxy, through the Ray actor that runs it."""
    ray = importlib.import_module("ray")
    manager = _manager(ray, ray.get_runtime_context().get_node_id())
    ray.get(manager.update_draining.remote(draining), timeout=ANSWER_SECONDS)


def drain_others() -> None:
    """On the head, drain the HAProxy of all other nodes.

    A HAProxy that drains already ignores the call.
    """
    ray = importlib.import_module("ray")
    own = ray.get_runtime_context().get_node_id()
    nodes = {each["NodeID"]: each["Resources"] for each in ray.nodes() if each["Alive"]}
    if HEAD not in nodes.get(own, {}):
        return
    calls: list[Any] = []
    for node in nodes.keys() - {own}:
        with contextlib.suppress(ValueError):  # The node has no HAProxy.
            calls.append(_manager(ray, node).update_draining.remote(draining=True))
    ray.wait(calls, num_returns=len(calls), timeout=ANSWER_SECONDS)


def _manager(ray: Any, node: str) -> Any:
    constants = importlib.import_module("ray.serve._private.constants")
    return ray.get_actor(
        f"{constants.SERVE_PROXY_NAME}-{node}", namespace=constants.SERVE_NAMESPACE
    )
