"""The module that runs in Serve's proxies: it closes connections when the pod is marked, and never
fails a request.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cluster_reconciler.in_pod import raybus_drain
from cluster_reconciler.in_pod.raybus_drain import (
    CloseWhenDraining,
    HaProxyDrain,
    Mark,
    Message,
    Receive,
    Send,
)
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
    """Return the messages that the server is sent for one request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def hello(_scope: Message, _receive: Receive, send: Send) -> None:
    """Answer every request with the same text."""
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
    "text",
    [None, "", 'raybus.io/draining="false"\n', 'other="raybus.io/draining=\\"true\\""\n', "\x00"],
)
async def test_without_the_mark_answers_pass_as_they_are(tmp_path: Path, text: str | None) -> None:
    assert await answered(CloseWhenDraining(hello, a_mark(tmp_path / "annotations", text))) == [
        START,
        BODY,
    ]


async def test_a_mark_that_comes_while_an_application_works_counts_for_its_answer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "annotations"

    async def slow(_scope: Message, _receive: Receive, send: Send) -> None:
        path.write_text(MARKED)
        await send(START)

    assert await answered(CloseWhenDraining(slow, a_mark(path, ""))) == [
        {**START, "headers": CLOSED}
    ]


async def test_the_file_is_read_twice_a_second_at_most(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "annotations"
    mark = a_mark(path, "", clock)
    assert not mark.is_set()
    path.write_text(MARKED)
    clock.advance(0.4)
    assert not mark.is_set()
    clock.advance(0.2)
    assert mark.is_set()


@pytest.mark.parametrize(
    "scope", [{"type": "websocket"}, {"type": "lifespan"}, {"type": "http", "http_version": "2"}]
)
async def test_other_protocols_are_left_alone(tmp_path: Path, scope: Message) -> None:
    assert await answered(CloseWhenDraining(hello, a_mark(tmp_path / "annotations")), scope) == [
        START,
        BODY,
    ]


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
        self.others = 0
        self.problem: Exception | None = None

    def set_draining(self, *, draining: bool) -> None:
        if self.problem is not None:
            raise self.problem
        self.calls.append(draining)

    def drain_others(self) -> None:
        self.others += 1


def a_drain(tmp_path: Path, proxy: HaProxy, text: str | None = MARKED) -> HaProxyDrain:
    mark = a_mark(tmp_path / "annotations", text)
    return HaProxyDrain(proxy.set_draining, proxy.drain_others, mark, str(tmp_path / "lock"))


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


class Serve:
    """Ray and Serve's constants, as the module imports them: the node on which it runs, all nodes,
    and the actors of some of them.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, nodes: list[dict[str, Any]], proxies: set[str]
    ) -> None:
        self.called: list[tuple[str, bool]] = []
        self.waited: list[int] = []
        self._proxies = proxies
        ray, constants = ModuleType("ray"), ModuleType("ray.serve._private.constants")
        vars(ray).update(
            get_runtime_context=lambda: self,
            get_actor=self._actor,
            get=self._get,
            wait=self._wait,
            nodes=lambda: nodes,
        )
        vars(constants).update(
            RAY_SERVE_ENABLE_HA_PROXY=True, SERVE_PROXY_NAME="PROXY", SERVE_NAMESPACE="serve"
        )
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setitem(sys.modules, "ray.serve._private.constants", constants)

    def get_node_id(self) -> str:
        return "n1"

    def _actor(self, name: str, namespace: str) -> Any:
        if name not in self._proxies:
            raise ValueError(f"no actor {namespace}/{name}")

        def remote(draining: bool) -> None:
            self.called.append((f"{namespace}/{name}", draining))

        actor, method = ModuleType(name), ModuleType("update_draining")
        vars(method)["remote"] = remote
        vars(actor)["update_draining"] = method
        return actor

    def _get(self, _answer: None, *, timeout: float) -> None:
        assert timeout > 0

    def _wait(self, calls: list[None], *, num_returns: int, timeout: float) -> None:
        assert (len(calls), timeout > 0) == (num_returns, True)
        self.waited.append(num_returns)


def a_node(name: str, *, is_alive: bool = True, is_head: bool = False) -> dict[str, Any]:
    resources = {"CPU": 1.0} | ({"node:__internal_head__": 1.0} if is_head else {})
    return {"NodeID": name, "Alive": is_alive, "Resources": resources}


def test_with_ha_proxy_a_thread_notifies_the_actor_of_this_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Callable[[], None]] = []

    class Thread:
        def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
            assert (name, daemon) == ("raybus-drain", True)
            self.start = lambda: begun.append(target)

    serve = Serve(monkeypatch, nodes=[], proxies={"PROXY-n1"})
    monkeypatch.setattr(threading, "Thread", Thread)
    assert raybus_drain.middlewares() == []
    assert len(begun) == 1
    raybus_drain.set_draining(draining=True)
    assert serve.called == [("serve/PROXY-n1", True)]


def test_the_head_has_the_ha_proxies_of_all_other_nodes_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [
        a_node("n1", is_head=True),
        a_node("n2"),
        a_node("gone", is_alive=False),
        a_node("without"),
        a_node("n3"),
    ]
    serve = Serve(
        monkeypatch, nodes=nodes, proxies={"PROXY-n1", "PROXY-n2", "PROXY-n3", "PROXY-gone"}
    )
    raybus_drain.drain_others()
    assert sorted(serve.called) == [("serve/PROXY-n2", True), ("serve/PROXY-n3", True)]
    assert serve.waited == [2]


def test_a_worker_leaves_the_ha_proxies_of_other_nodes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve = Serve(
        monkeypatch,
        nodes=[a_node("n1"), a_node("n2", is_head=True)],
        proxies={"PROXY-n1", "PROXY-n2"},
    )
    raybus_drain.drain_others()
    assert serve.called == []


def test_the_other_nodes_follow_this_one_and_are_repeated(tmp_path: Path) -> None:
    proxy = HaProxy()
    drain = a_drain(tmp_path, proxy)
    drain.step()
    drain.step()
    assert proxy.others == 2
