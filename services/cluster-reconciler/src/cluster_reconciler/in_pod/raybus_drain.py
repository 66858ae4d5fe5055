"""Lets Ray Serve's proxies close kept-alive connections between requests, once their pod is marked as draining.

Ray loads it as its HTTP proxy callback. The mark is the pod's annotation `raybus.io/draining: "true"`, read through a
downward-API volume. Until then, and whenever anything here goes wrong, answers pass as they are. It needs nothing but
Python's library, and Starlette and Ray, which Serve brings.

Serve's own proxies run a middleware that closes connections. Where HAProxy is the proxy (`RAY_SERVE_ENABLE_HA_PROXY=1`), no
middleware sees its connections: there Ray loads the callback in the ingress replicas behind it and in the head's fallback proxy. A
thread in one of them has the HAProxy of its node drain, as Serve does before it removes a node, and on the head those of all nodes:
a node may have a HAProxy and no ingress replica.
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
"""Held by the one process of the pod that drains HAProxy."""
AGAIN_SECONDS = 15.0
"""A connection that was opened after HAProxy began to drain is closed by the next time."""
ANSWER_SECONDS = 60.0
HEAD = "node:__internal_head__"
"""A resource that the head's node alone has."""


class Mark:
    """Whether the pod is marked; the file is read twice a second at most."""

    def __init__(
        self, path: str = ANNOTATIONS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self._checked_at: float | None = None
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether connections are to be closed."""
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
    """ASGI middleware: adds `Connection: close` to each HTTP/1 answer while the mark is set."""

    def __init__(self, app: App, mark: Mark | None = None) -> None:
        self._app = app
        self._mark = mark or Mark()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on; check the mark when its answer begins."""
        if scope.get("type") != "http" or not str(scope.get("http_version", "")).startswith("1"):
            await self._app(scope, receive, send)
            return

        async def send_closing(message: Message) -> None:
            with contextlib.suppress(
                Exception
            ):  # whatever goes wrong here must never cost a user's request
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

    A drain replaces HAProxy's process: the new one takes over the listening sockets, and the old one closes each kept-alive
    connection with its next answer and ends with its last request. It is repeated, since the new process keeps connections too.
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
        """Wait for the mark, then drain until the process ends."""
        while True:
            sleep(self.step())

    def step(self) -> float:
        """Do what is due, and return the seconds until the next step; what goes wrong is tried again."""
        if not self._mark.is_set():
            return CHECK_SECONDS
        with contextlib.suppress(Exception):  # Ray may be of another version, or be ending
            if self._leads():
                if self._is_draining:
                    self._is_draining = False
                    self._set_draining(draining=False)
                self._set_draining(draining=True)
                self._is_draining = True
                self._drain_others()
        return AGAIN_SECONDS

    def _leads(self) -> bool:
        """Return whether this process acts for its pod; it does so until it ends."""
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
    """Return what Ray asks its proxy callback for: a list of Starlette middlewares, empty when there is no Starlette."""
    has_ha_proxy = False
    with contextlib.suppress(ImportError):
        constants = importlib.import_module("ray.serve._private.constants")
        has_ha_proxy = bool(getattr(constants, "RAY_SERVE_ENABLE_HA_PROXY", False))
    if has_ha_proxy:
        drain = HaProxyDrain(set_draining, drain_others)
        threading.Thread(target=drain.run, name="raybus-drain", daemon=True).start()
        return []
    try:
        starlette = importlib.import_module(
            "starlette.middleware"
        )  # only Serve's own processes have it
    except ImportError:
        return []
    return [starlette.Middleware(CloseWhenDraining)]


def set_draining(*, draining: bool) -> None:
    """Call the actor that runs this node's HAProxy, by the name that Serve gives it."""
    ray = importlib.import_module("ray")
    manager = _manager(ray, ray.get_runtime_context().get_node_id())
    ray.get(manager.update_draining.remote(draining), timeout=ANSWER_SECONDS)


def drain_others() -> None:
    """Call those of all other nodes where this is the head; an actor that drains already does nothing."""
    ray = importlib.import_module("ray")
    own = ray.get_runtime_context().get_node_id()
    nodes = {each["NodeID"]: each["Resources"] for each in ray.nodes() if each["Alive"]}
    if HEAD not in nodes.get(own, {}):
        return
    calls: list[Any] = []
    for node in nodes.keys() - {own}:
        with contextlib.suppress(ValueError):  # this node has none
            calls.append(_manager(ray, node).update_draining.remote(draining=True))
    ray.wait(calls, num_returns=len(calls), timeout=ANSWER_SECONDS)


def _manager(ray: Any, node: str) -> Any:
    constants = importlib.import_module("ray.serve._private.constants")
    return ray.get_actor(
        f"{constants.SERVE_PROXY_NAME}-{node}", namespace=constants.SERVE_NAMESPACE
    )
