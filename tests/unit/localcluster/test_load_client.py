"""The client of the demo's load: what it retries, and what it counts."""

import asyncio
import json
import runpy
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from support.manifests import DEPLOY

ANSWER: Final = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}'
REFUSAL: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
Load: Final = runpy.run_path(str(DEPLOY / "demo" / "load" / "load.py"))["Load"]

Reply = Callable[[int, int], bytes | None]
"""Returns the answer of a request, or None to close the connection instead, by the number of the
connection and the number of the request on it."""


@asynccontextmanager
async def serving(reply: Reply) -> AsyncGenerator[str]:
    """Serve HTTP on loopback for the duration of a block; yield the URL."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        mine, requests = connections, 0
        connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                answer = reply(mine, requests)
                requests += 1
                if answer is None:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def ask(
    reply: Reply, capsys: pytest.CaptureFixture[str], *, retries: bool, requests: int = 2
) -> list[dict[str, Any]]:
    """Send requests one after the other; return the printed results."""
    async with serving(reply) as url:
        load = Load(url, retries=retries)
        for _ in range(requests):
            await load.ask(0.0)
        await load.close()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


async def test_a_connection_is_kept_for_the_next_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    used: list[tuple[int, int]] = []

    def reply(connection: int, request: int) -> bytes:
        used.append((connection, request))
        return ANSWER

    results = await ask(reply, capsys, retries=True, requests=3)
    assert used == [(0, 0), (0, 1), (0, 2)]
    assert [(each["status"], each["version"], each["retries"]) for each in results] == [
        (200, "1", 0)
    ] * 3


async def test_a_request_on_a_stale_connection_is_sent_again_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = await ask(_close_second_of_first, capsys, retries=True)
    assert [(each["status"], each["retries"]) for each in results] == [(200, 0), (200, 1)]


async def test_without_retries_a_stale_connection_is_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = await ask(_close_second_of_first, capsys, retries=False)
    assert first["status"] == 200
    assert second["error"].startswith("ServerDisconnectedError")


@pytest.mark.parametrize("retries", [True, False])
async def test_a_new_connection_that_is_closed_is_a_failure_of_the_server(
    capsys: pytest.CaptureFixture[str], retries: bool
) -> None:
    (result,) = await ask(lambda _connection, _request: None, capsys, retries=retries, requests=1)
    assert result["error"].startswith("ServerDisconnectedError")
    assert result["retries"] == 0


async def test_an_answer_other_than_200_has_no_version(capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = await ask(lambda _connection, _request: REFUSAL, capsys, retries=True, requests=1)
    assert (result["status"], result["version"], "error" in result) == (503, None, False)


async def test_it_waits_for_a_first_answer() -> None:
    asked: list[int] = []

    def reply(connection: int, _request: int) -> bytes | None:
        asked.append(connection)
        return (None, REFUSAL, ANSWER)[connection]

    async with serving(reply) as url:
        load = Load(url, retries=True)
        await load.wait(10.0)
        await load.close()
    assert asked == [0, 1, 2]


def _close_second_of_first(connection: int, request: int) -> bytes | None:
    return None if (connection, request) == (0, 1) else ANSWER
