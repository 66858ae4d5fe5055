"""Dashboards, proxies and metrics of a hostile tenant: no redirect is followed, nothing is
decompressed, and the amount that is kept is bounded.

The requests use real HTTP on loopback: directly to the address, and through the API server's proxy.
"""

import asyncio
import tracemalloc
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from aiohttp import web

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import SECRET
from common.kube.rest_config import RestConfig
from common.ray.dashboard import Dashboard, DirectDashboard, ProxiedDashboard
from support import dashboard_calls as calls
from support.servers.loopback import ToLoopback, served
from support.tables import cases

HEAD = calls.a_head("tenant-a", token="s3cret")
POD = calls.a_pod("tenant-a")
PREY = "/api/v1/namespaces/tenant-b/secrets/prod-ray"
SECONDS = 1.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def hostile(way: str, answer: Handler) -> AsyncGenerator[tuple[Dashboard, list[web.Request]]]:
    """Provide a dashboard that answers every call with `answer`, and the list of its requests."""
    seen: list[web.Request] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    async with served(app) as port:
        if way == "direct":
            async with httpx.AsyncClient(transport=ToLoopback(port)) as client:
                yield DirectDashboard(domain="cluster.local", client=client, seconds=SECONDS), seen
        else:
            kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
            yield ProxiedDashboard(kube, seconds=SECONDS), seen
            await kube.close()


@pytest.mark.parametrize("way", ["direct", "proxied"])
@pytest.mark.parametrize("status", [200, 500])
async def test_bytes_that_are_no_text_are_an_unavailable_dashboard(way: str, status: int) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(
            status=status, body=b'{"message": "\xff", "applications": {"\xff": {}}}'
        )

    async with hostile(way, answer) as (dashboard, _):
        with pytest.raises(errors.Unavailable):
            await calls.read(dashboard, HEAD)


@pytest.mark.parametrize("way", ["direct", "proxied"])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
@pytest.mark.parametrize("before", [0, 190, 490], ids=["short", "cut by the client", "cut by us"])
async def test_an_error_does_not_repeat_the_token_that_the_dashboard_repeats(
    way: str, status: int, before: int
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        text = "x" * before + str(request.headers)
        return web.Response(status=status, text=text, reason=request.headers["x-ray-authorization"])

    async with hostile(way, answer) as (dashboard, _):
        for call in (calls.read(dashboard, HEAD), calls.deploy(dashboard, HEAD, {})):
            with pytest.raises(errors.RaybusError) as problem:
                await call
            assert "s3c" not in str(problem.value)


@pytest.mark.parametrize("way", ["direct", "proxied"])
async def test_an_answer_does_not_repeat_the_token_either(way: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"applications": {"a": {"status": "RUNNING", "message": str(request.headers)}}}
        )

    async with hostile(way, answer) as (dashboard, _):
        message = (await calls.read(dashboard, HEAD)).applications["a"].message
    assert "Bearer [token]" in message


@pytest.mark.parametrize("way", ["direct", "proxied"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_not_an_address(way: str, status: int) -> None:
    async def redirect(request: web.Request) -> web.StreamResponse:
        if request.path == PREY:
            return web.json_response({"applications": {}})
        return web.Response(status=status, headers={"Location": PREY})

    async with hostile(way, redirect) as (dashboard, seen):
        with pytest.raises(errors.Unavailable, match=str(status)):
            await calls.read(dashboard, HEAD)
        with pytest.raises(errors.Unavailable, match=str(status)):
            await calls.deploy(dashboard, HEAD, {})
        assert not await calls.is_proxy_healthy(dashboard, POD)
        assert await calls.ongoing_requests(dashboard, POD) is None
        assert [each.path for each in seen if each.path == PREY] == []
        assert len(seen) == 4


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_api_servers_client_follows_no_redirect(status: int) -> None:
    seen: list[str] = []

    async def redirect(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=status, headers={"Location": PREY})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", redirect)
    async with served(app) as port:
        kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
        with pytest.raises(errors.Unavailable, match=f"{status}, and redirects are not followed"):
            await kube.get(SECRET, "tenant-a", "own")
        with pytest.raises(errors.Unavailable):
            async with kube.stream(SECRET.path("tenant-a"), query={"watch": "1"}):
                pass
        await kube.close()
    assert PREY not in seen


def bomb(size: int) -> bytes:
    """Return gzip data that expands to `size` bytes of JSON."""
    packer = zlib.compressobj(9, wbits=31)
    blanks = b" " * 2**20
    packed = [packer.compress(b'{"applications": {}')]
    packed += [packer.compress(blanks) for _ in range(size // len(blanks))]
    return b"".join([*packed, packer.compress(b"}"), packer.flush()])


@pytest.mark.parametrize("way", ["direct", "proxied"])
async def test_a_small_answer_that_unpacks_to_a_large_one_is_not_unpacked(way: str) -> None:
    body = bomb(256 * 2**20)

    async def packed(_: web.Request) -> web.Response:
        return web.Response(
            body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}
        )

    async with hostile(way, packed) as (dashboard, seen):
        tracemalloc.start()
        for _ in range(4):
            with pytest.raises(errors.Unavailable, match=r"compressed \(gzip\)"):
                await calls.read(dashboard, HEAD)
            assert await calls.ongoing_requests(dashboard, POD) is None
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 24 * 2**20
    assert {each.headers["Accept-Encoding"] for each in seen} == {"identity"}


@pytest.mark.parametrize("way", ["direct", "proxied"])
async def test_an_answer_that_does_not_end_is_cut(way: str) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" " * 2**18)

    async with hostile(way, endless) as (dashboard, _):
        async with asyncio.timeout(5):
            with pytest.raises(errors.Unavailable, match="more than 4194304 bytes"):
                await calls.read(dashboard, HEAD)
            assert await calls.ongoing_requests(dashboard, POD) is None
            assert not await calls.is_proxy_healthy(dashboard, POD)


@pytest.mark.parametrize("way", ["direct", "proxied"])
@cases(
    ("body", "problem"),
    {
        "a tower of brackets": (b"[" * 90_000, "nested too deeply|malformed|Expected"),
        "a config with a tower": (
            b'{"applications":{"a":{"deployed_app_config":{"a":'
            + b"[" * 500
            + b"]" * 500
            + b"}}}}",
            "nested deeper than 64 levels",
        ),
        "unknown": (
            b'{"other":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            "nested too deeply|more than",
        ),
        "very many applications": (
            b'{"applications":{' + b",".join(b'"%d":{}' % each for each in range(200_000)) + b"}}",
            "more than 100000 values",
        ),
    },
)
async def test_an_answer_of_an_absurd_shape_is_a_problem_in_one_line(
    way: str, body: bytes, problem: str
) -> None:
    async def absurd(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async with hostile(way, absurd) as (dashboard, _):
        with pytest.raises(errors.Unavailable, match=problem) as caught:
            await calls.read(dashboard, HEAD)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("way", ["direct", "proxied"])
async def test_a_refusal_is_clipped_and_moves_no_cursor(way: str) -> None:
    async def refusal(_: web.Request) -> web.Response:
        return web.Response(status=400, body=b"\x1b[2J\x1b]0;owned\x07" + b"x" * 100_000)

    async with hostile(way, refusal) as (dashboard, _):
        with pytest.raises(errors.Rejected) as caught:
            await calls.deploy(dashboard, HEAD, {})
    text = str(caught.value)
    assert len(text) < 600
    assert "\x1b" not in text
    assert "\x07" not in text


async def test_metrics_of_an_absurd_shape_cost_little() -> None:
    async def lines(_: web.Request) -> web.Response:
        return web.Response(body=b"\n" * (8 * 2**20))

    async with hostile("direct", lines) as (dashboard, _):
        tracemalloc.start()
        assert await calls.ongoing_requests(dashboard, POD) is None
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 40 * 2**20
