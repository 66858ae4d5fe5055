"""The module that runs in Serve's proxies: it closes connections once the pod is marked, and never costs a request."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cluster_reconciler.in_pod import raybus_drain
from cluster_reconciler.in_pod.raybus_drain import CloseWhenDraining, HaProxyDrain, Mark, Message, Receive, Send
from support.fakes.clock import FakeClock

MARKED = 'kubernetes.io/config.seen="now"\nraybus.io/draining="true"\n'
HTTP = {"type": "http", "http_version": "1.1"}
START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"Connection", b"keep-alive")],
}
BODY: Message = {"type": "http.response.body", "body": b"hello"}
CLOSED = [(b"content-type", b"text/plain"), (b"connection", b"close")]


async def answered(app: CloseWhenDraining, scope: Message = HTTP) -> list[Message]:
    """Return what the server is sent for one request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def hello(_scope: Message, _receive: Receive, send: Send) -> None:
    """Answer every request alike."""
    await send(START)
    await send(BODY)


def a_mark(path: Path, text: str | None = MARKED, clock: FakeClock | None = None) -> Mark:
    if text is not None:
        path.write_text(text)
    return Mark(str(path), (clock or FakeClock()).monotonic)


async def test_an_answer_of_a_marked_pod_closes_its_connection(tmp_path: Path) -> None:
    sent = await answered(CloseWhenDraining(hello, a_mark(tmp_path / "annotations")))
    assert sent == [{**START, "headers": CLOSED}, BODY]


@pytest.mark.parametrize(
    "text", [None, "", 'raybus.io/draining="false"\n', 'other="raybus.io/draining=\\"true\\""\n', "\x00"]
)
async def test_without_the_mark_answers_pass_as_they_are(tmp_path: Path, text: str | None) -> None:
    assert await answered(CloseWhenDraining(hello, a_mark(tmp_path / "annotations", text))) == [START, BODY]


async def test_a_mark_that_comes_while_an_application_works_counts_for_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "annotations"

    async def slow(_scope: Message, _receive: Receive, send: Send) -> None:
        path.write_text(MARKED)
        await send(START)

    assert await answered(CloseWhenDraining(slow, a_mark(path, ""))) == [{**START, "headers": CLOSED}]


async def test_the_file_is_read_twice_a_second_at_most(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "annotations"
    mark = a_mark(path, "", clock)
    assert not mark.is_set()
    path.write_text(MARKED)
    clock.advance(0.4)
    assert not mark.is_set()
    clock.advance(0.2)
    assert mark.is_set()


@pytest.mark.parametrize("scope", [{"type": "websocket"}, {"type": "lifespan"}, {"type": "http", "http_version": "2"}])
async def test_other_protocols_are_left_alone(tmp_path: Path, scope: Message) -> None:
    assert await answered(CloseWhenDraining(hello, a_mark(tmp_path / "annotations")), scope) == [START, BODY]


async def test_switched_protocols_are_left_alone(tmp_path: Path) -> None:
    switching = {**START, "status": 101}

    async def app(_scope: Message, _receive: Receive, send: Send) -> None:
        await send(switching)

    assert await answered(CloseWhenDraining(app, a_mark(tmp_path / "annotations"))) == [switching]


async def test_headers_that_nobody_can_read_pass_as_they_are(tmp_path: Path) -> None:
    odd = {**START, "headers": 7}

    async def app(_scope: Message, _receive: Receive, send: Send) -> None:
        await send(odd)

    assert await answered(CloseWhenDraining(app, a_mark(tmp_path / "annotations"))) == [odd]


async def test_what_the_application_raises_is_not_swallowed(tmp_path: Path) -> None:
    async def app(_scope: Message, _receive: Receive, _send: Send) -> None:
        raise ValueError("theirs")

    with pytest.raises(ValueError, match="theirs"):
        await answered(CloseWhenDraining(app, a_mark(tmp_path / "annotations")))


def test_the_callback_returns_one_starlette_middleware(monkeypatch: pytest.MonkeyPatch) -> None:
    class Middleware:
        def __init__(self, cls: type[Any]) -> None:
            self.cls = cls

    starlette, middleware = ModuleType("starlette"), ModuleType("starlette.middleware")
    vars(middleware)["Middleware"] = Middleware
    monkeypatch.setitem(sys.modules, "starlette", starlette)
    monkeypatch.setitem(sys.modules, "starlette.middleware", middleware)
    assert [each.cls for each in raybus_drain.middlewares()] == [CloseWhenDraining]


def test_without_starlette_there_is_nothing_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette.middleware", None)
    assert raybus_drain.middlewares() == []


class HaProxy:
    """The actor that runs a node's HAProxy, as the module calls it."""

    def __init__(self) -> None:
        self.calls: list[bool] = []
        self.problem: Exception | None = None

    def set_draining(self, *, draining: bool) -> None:
        if self.problem is not None:
            raise self.problem
        self.calls.append(draining)


def a_drain(tmp_path: Path, proxy: HaProxy, text: str | None = MARKED) -> HaProxyDrain:
    mark = a_mark(tmp_path / "annotations", text)
    return HaProxyDrain(proxy.set_draining, mark, str(tmp_path / "lock"))


def test_ha_proxy_is_left_alone_until_the_mark(tmp_path: Path) -> None:
    proxy = HaProxy()
    assert a_drain(tmp_path, proxy, "").step() == raybus_drain.CHECK_SECONDS
    assert proxy.calls == []


def test_ha_proxy_is_notified_again_for_the_connections_that_came_since(tmp_path: Path) -> None:
    proxy = HaProxy()
    drain = a_drain(tmp_path, proxy)
    assert [drain.step(), drain.step()] == [raybus_drain.AGAIN_SECONDS] * 2
    assert proxy.calls == [True, False, True]


def test_one_process_of_a_pod_notifies_ha_proxy(tmp_path: Path) -> None:
    first, second = HaProxy(), HaProxy()
    drains = a_drain(tmp_path, first), a_drain(tmp_path, second)
    for each in (*drains, *drains):
        each.step()
    assert (len(first.calls), second.calls) == (3, [])


def test_what_ray_refuses_is_tried_again(tmp_path: Path) -> None:
    proxy = HaProxy()
    drain = a_drain(tmp_path, proxy)
    proxy.problem = AttributeError("another version of Ray")
    assert drain.step() == raybus_drain.AGAIN_SECONDS
    proxy.problem = None
    drain.step()
    assert proxy.calls == [True]


def test_with_ha_proxy_a_thread_notifies_the_actor_of_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Callable[[], None]] = []
    called: list[tuple[str, str, bool]] = []

    class Thread:
        def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
            assert (name, daemon) == ("raybus-drain", True)
            self.start = lambda: begun.append(target)

    class Actor:
        def __init__(self, name: str, namespace: str) -> None:
            self.update_draining = self
            self._where = (name, namespace)

        def remote(self, draining: bool) -> None:
            called.append((*self._where, draining))

    class Context:
        def get_node_id(self) -> str:
            return "n1"

    ray, constants = ModuleType("ray"), ModuleType("ray.serve._private.constants")

    def get(_answer: None, *, timeout: float) -> None:
        assert timeout > 0

    vars(ray).update(get_runtime_context=Context, get_actor=Actor, get=get)
    vars(constants).update(RAY_SERVE_ENABLE_HA_PROXY=True, SERVE_PROXY_NAME="PROXY", SERVE_NAMESPACE="serve")
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.serve._private.constants", constants)
    monkeypatch.setattr(threading, "Thread", Thread)
    assert raybus_drain.middlewares() == []
    assert len(begun) == 1
    raybus_drain.drain_ha_proxy(draining=True)
    assert called == [("PROXY-n1", "serve", True)]
