"""The module that runs in Serve's proxies: it closes connections once the pod is marked, and never costs a request."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cluster_reconciler.in_pod import raybus_drain
from cluster_reconciler.in_pod.raybus_drain import CloseWhenDraining, Mark, Message, Receive, Send
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
