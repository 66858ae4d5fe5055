"""`helm test` asks services and NATS whether they are ready, and names each that is not."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator

import pytest

from common.observability import health, readiness
from support.waiting import eventually


def is_open(port: int) -> bool:
    """Return whether a server accepts connections on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextlib.asynccontextmanager
async def serving(check: Callable[[], str | None]) -> AsyncGenerator[str]:
    """Serve `/readyz` as a service does; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with asyncio.TaskGroup() as group:
        server = group.create_task(health.serve(port, ready=check))
        await eventually(lambda: is_open(port), what="the server")
        yield f"http://127.0.0.1:{port}/readyz"
        server.cancel()


@contextlib.contextmanager
def greeting(text: bytes) -> Generator[str]:
    """Greet one client as a NATS server does; yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(text)

        thread = threading.Thread(target=greet)
        thread.start()
        yield f"nats://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


async def test_a_ready_service_has_no_problem() -> None:
    async with serving(lambda: None) as url:
        assert await asyncio.to_thread(readiness.find_problem, url) is None


async def test_a_service_that_is_not_ready_is_quoted() -> None:
    async with serving(lambda: "the watcher does not publish") as url:
        problem = await asyncio.to_thread(readiness.find_problem, url)
    assert problem == "the watcher does not publish"


def test_a_nats_server_that_greets_has_no_problem() -> None:
    with greeting(b'INFO {"server_id":"A"}\r\n') as url:
        assert readiness.find_problem(url) is None


@pytest.mark.parametrize("text", [b"HTTP/1.1 400", b""])
def test_another_server_on_the_port_of_nats_is_a_problem(text: bytes) -> None:
    with greeting(text) as url:
        assert readiness.find_problem(url) == "it does not greet as NATS does"


def test_without_a_server_no_replica_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    problem = readiness.find_problem(f"http://127.0.0.1:{port}/readyz")
    assert problem is not None
    assert problem.startswith("no ready replica answers: ")


def test_servers_are_asked_until_they_are_ready_or_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    ready_at = {"http://soon:1": 3.0, "http://never:1": 1000.0, "http://now:1": 0.0}

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def find_problem(url: str) -> str | None:
        return None if now >= ready_at[url] else "starts"

    monkeypatch.setattr(readiness, "find_problem", find_problem)
    outcomes = list(
        readiness.wait_until_ready(list(ready_at), timeout=5.0, clock=lambda: now, sleep=sleep)
    )
    assert outcomes == [
        ("http://now:1", None),
        ("http://soon:1", None),
        ("http://never:1", "starts"),
    ]
    assert now == 5.0


async def test_the_program_prints_a_line_for_each_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "TIMEOUT", 0.0)
    async with serving(lambda: None) as url:
        assert await asyncio.to_thread(readiness.main, [url]) == 0
    assert capsys.readouterr().out == "127.0.0.1: ready\n"


@pytest.mark.parametrize("url", ["watcher", "https://watcher:8080", "http://watcher", "nats://a:b"])
def test_a_url_of_another_form_is_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert readiness.main([url]) == 2
    assert capsys.readouterr().err.startswith(f"{url}: write ")
