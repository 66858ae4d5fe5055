"""The end of a log over real HTTP on loopback: its last bytes, within a time limit, without escapes."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from common import errors
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from raybus_cli.logs import reading
from raybus_cli.logs.reading import Tail
from raybus_cli.logs.selection import Log, LogSource
from support.servers.loopback import served

LOG = Log(
    source=LogSource("one", "ray"),
    path="/api/v1/namespaces/a/pods/one/log",
    query={"container": "ray"},
)


async def read(handler: Handler, log: Log = LOG, *, seconds: float = 5.0) -> Tail:
    app = web.Application()
    app.router.add_get("/{rest:.*}", handler)
    async with served(app) as port:
        kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
        try:
            return await reading.read(kube, log, seconds=seconds)
        finally:
            await kube.close()


async def test_a_short_log_is_whole() -> None:
    async def short(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.query['container']}\n\x1b[31mred\x1b[0m\n")

    assert await read(short) == Tail(
        pod="one", container="ray", text="ray\nred\n", is_cut=False, is_late=False
    )


@pytest.mark.parametrize("size", [1000, reading.MAX_TAIL_SIZE, reading.MAX_TAIL_SIZE * 3])
async def test_of_a_long_log_the_last_whole_lines_are_kept(size: int) -> None:
    lines = [f"{number:09}" for number in range(reading.MAX_TAIL_SIZE // 4)]

    async def long(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        text = "\n".join(lines).encode()
        for at in range(0, len(text), size):
            await response.write(text[at : at + size])
        return response

    found = await read(long)
    kept = found.text.split("\n")
    assert kept == lines[-len(kept) :]
    assert reading.MAX_TAIL_SIZE - 20 < len(found.text) <= reading.MAX_TAIL_SIZE
    assert (found.is_cut, found.is_late) == (True, False)


async def test_a_log_without_an_end_is_left_after_the_time_limit() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun\n")
        await asyncio.sleep(60)
        return response

    assert await read(endless, seconds=0.3) == Tail(
        pod="one", container="ray", text="begun\n", is_cut=False, is_late=True
    )


async def test_a_container_that_waits_gives_the_reason() -> None:
    async def waiting(_request: web.Request) -> web.Response:
        message = 'container "ray" in pod "one" is waiting to start: ContainerCreating'
        return web.json_response({"message": message, "reason": "BadRequest"}, status=400)

    with pytest.raises(errors.Rejected, match="wait, see why"):
        await read(waiting)
    with pytest.raises(errors.Rejected, match="no node yet"):
        await read(waiting, Log(source=LOG.source, path=LOG.path, query=LOG.query, is_placed=False))
