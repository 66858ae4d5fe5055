"""Requests to servers that tenants name, over real HTTP on loopback: they go to the address that
was checked, and their size and time are bounded.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from aiohttp import web

from common import errors, targets
from common.clock import SystemClock
from common.settings import Settings
from common.targets import Address, Targets
from common.upgrade import outbound
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import PrometheusGate
from common.upgrade.inquiries import request_of
from common.upgrade.outbound import HttpOutbound, OutboundRequest
from common.upgrade.webhook import Checkpoint
from nats_admin.certificates import make_ca, make_server_certificate
from support.servers.loopback import ToLoopback, served

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LIST: Final = "http://hook.team.svc:8080,http://10.0.0.0/8:8080,http://[fd00::]/8:8080,https://checks.example.com"
PUBLIC: Final = ip_address("10.1.2.3")


class Seen(ToLoopback):
    """Records the address of each connection before redirecting it to this machine."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.urls: list[str] = []
        self.names: list[Any] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.urls.append(str(request.url))
        self.names.append(request.extensions.get("sni_hostname"))
        return await super().handle_async_request(request)


class Way:
    """The connection to a server, with the requests that arrived."""

    def __init__(self, transport: Seen, resolve: outbound.Resolve) -> None:
        self.transport = transport
        self.came: list[web.Request] = []
        self.http = httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False)
        self.outbound = HttpOutbound(Targets(origins=targets.read(LIST)), self.http, resolve)

    async def send(self, url: str = "http://hook.team.svc:8080/a?b=c", **fields: Any) -> Any:
        given: dict[str, Any] = {
            "body": b"{}",
            "max_size": 100,
            "seconds": 1.0,
            "namespace": "team",
            **fields,
        }
        return await self.outbound.send(OutboundRequest(url=url, **given))


@asynccontextmanager
async def a_server(answer: Handler, *addresses: Address) -> AsyncGenerator[Way]:
    """Provide the connection to a server whose name resolves to these addresses, one DNS answer
    after the other.
    """
    answers = [tuple(addresses or (PUBLIC,))]

    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        return answers[0]

    way: Way | None = None

    async def handler(request: web.Request) -> web.StreamResponse:
        assert way is not None
        way.came.append(request)
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    async with served(app) as port:
        way = Way(Seen(port), resolve)
        async with way.http:
            yield way


async def ok(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"fine", headers={"Retry-After": "7", "Set-Cookie": "a=b"})


async def test_a_body_is_posted_to_the_checked_address_under_the_name_of_the_server() -> None:
    async with a_server(ok) as way:
        answer = await way.send(headers={"X-A": "b"})
        assert (answer.status, answer.body, answer.retry_after) == (200, b"fine", "7")
        (came,) = way.came
        assert (came.method, came.headers["Host"], came.path_qs) == (
            "POST",
            "hook.team.svc:8080",
            "/a?b=c",
        )
        assert came.headers["X-A"] == "b"
        assert way.transport.urls == ["http://10.1.2.3:8080/a?b=c"]


async def test_without_a_body_it_is_a_get_and_no_cookie_is_kept() -> None:
    async with a_server(ok) as way:
        await way.send(body=None)
        await way.send(body=None)
        assert [each.method for each in way.came] == ["GET", "GET"]
        assert "Cookie" not in way.came[1].headers


async def test_a_query_of_prometheus_arrives_as_it_was_written() -> None:
    query = """sum(rate(a{b="$pendingCluster", c=~"x+&y=%20#é?/;"}[1m])) /\n\t5"""
    gate = PrometheusGate(
        title="prometheus", url="http://hook.team.svc:8080/p/", query=query, max=1.0
    )
    step = Checkpoint(
        namespace="team",
        service="demo",
        policy="p",
        candidate=Candidate(cluster_uid="u", config="c"),
        old="demo-a",
        new="demo-b",
        weight=10,
    )
    async with a_server(ok) as way:
        await way.outbound.send(request_of(step, gate))
        (came,) = way.came
        assert (came.method, came.path) == ("GET", "/p/api/v1/query")
        assert came.query == {
            "query": query.replace("$pendingCluster", "demo-b"),
            "timeout": "10s",
            "limit": "2",
        }


async def test_the_certificate_is_that_of_the_name_though_the_connection_goes_to_an_address() -> (
    None
):
    async with a_server(ok) as way:
        with pytest.raises(errors.Unavailable):
            await way.send("https://checks.example.com/")  # the server has no TLS
        assert way.transport.names == ["checks.example.com"]
        assert way.transport.urls == ["https://10.1.2.3/"]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:169.254.169.254", "fd00:ec2::254"],
)
async def test_a_listed_name_at_an_address_that_is_never_asked_is_not_asked(address: str) -> None:
    async with a_server(ok, ip_address(address)) as way:
        with pytest.raises(
            errors.Unavailable,
            match=r"is not asked: hook\.team\.svc is at an address that raybus never",
        ):
            await way.send()
        assert way.transport.urls == []


async def test_of_several_addresses_only_one_that_may_be_asked_is_connected_to() -> None:
    async with a_server(ok, ip_address("127.0.0.1"), PUBLIC, ip_address("169.254.169.254")) as way:
        for _ in range(20):
            await way.send()
        assert set(way.transport.urls) == {"http://10.1.2.3:8080/a?b=c"}


async def test_a_name_that_is_not_listed_is_not_even_resolved() -> None:
    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        raise AssertionError

    async with a_server(ok) as way:
        way.outbound = HttpOutbound(Targets(origins=targets.read(LIST)), way.http, resolve)
        with pytest.raises(
            errors.Unavailable, match="is not a server that the administrator of raybus lists"
        ):
            await way.send("http://other.team.svc:8080")


async def test_a_listed_address_is_asked_without_a_lookup() -> None:
    async with a_server(ok, ip_address("127.0.0.1")) as way:
        await way.send("http://10.9.9.9:8080/")
        await way.send("http://[fd00::5]:8080/")
        assert way.transport.urls == ["http://10.9.9.9:8080/", "http://[fd00::5]:8080/"]


async def test_a_name_without_an_address_is_reported() -> None:
    async with a_server(ok) as way:

        async def nothing(_host: str, _port: int) -> Sequence[Address]:
            return ()

        way.outbound = HttpOutbound(Targets(origins=targets.read(LIST)), way.http, nothing)
        with pytest.raises(errors.Unavailable, match="has no address"):
            await way.send()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(status: int) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(
            status=status, headers={"Location": "http://169.254.169.254/latest/meta-data/"}
        )

    async with a_server(answer) as way:
        assert (await way.send()).status == status
        assert len(way.transport.urls) == 1


async def test_a_large_answer_is_cut_off() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    async with a_server(answer) as way:
        with pytest.raises(errors.Unavailable, match="the answer has more than 100 bytes"):
            await way.send()


async def test_a_compressed_answer_is_refused() -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=zlib.compress(b"0" * 10**6), headers={"Content-Encoding": "deflate"}
        )

    async with a_server(answer) as way:
        with pytest.raises(errors.Unavailable, match="compressed"):
            await way.send(max_size=10**6)


async def test_an_answer_that_trickles_ends_at_the_deadline() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.05)

    async with a_server(answer) as way:
        with pytest.raises(errors.Unavailable, match=r"does not answer within 0\.3 s"):
            await way.send(seconds=0.3)


async def test_a_lookup_that_hangs_ends_at_the_deadline() -> None:
    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        await asyncio.Event().wait()
        return ()

    async with a_server(ok) as way:
        way.outbound = HttpOutbound(Targets(origins=targets.read(LIST)), way.http, resolve)
        with pytest.raises(errors.Unavailable, match=r"does not answer within 0\.1 s"):
            await way.send(seconds=0.1)


async def test_no_connection_is_reported_without_the_address() -> None:
    async with a_server(ok) as way:
        way.http = httpx.AsyncClient(transport=ToLoopback(1))
        way.outbound = HttpOutbound(Targets(origins=targets.read(LIST)), way.http, _public)
        with pytest.raises(errors.Unavailable) as refused:
            await way.send("http://hook.team.svc:8080/s3cret?token=t")
        assert str(refused.value) == "does not answer (no connection)"


async def _public(_host: str, _port: int) -> Sequence[Address]:
    return (PUBLIC,)


async def test_the_way_of_a_process_resolves_names_and_never_asks_this_machine() -> None:
    settings = Settings(
        service="test", gate_targets=targets.read("http://localhost:1,http://127.0.0.1:1")
    )
    async with outbound.reached(settings) as way:
        for url in ("http://localhost:1/", "http://127.0.0.1:1/"):
            with pytest.raises(errors.Unavailable, match="raybus never asks"):
                await way.send(OutboundRequest(url=url, namespace="team", max_size=10, seconds=5))


async def test_the_address_of_the_api_server_is_never_asked() -> None:
    settings = Settings(
        service="test",
        gate_targets=targets.read("http://10.0.0.0/8:1"),
        kubernetes_host="10.96.0.1",
    )
    async with outbound.reached(settings) as way:
        assert way.refusal("http://10.96.0.1:1/", "team") is not None
        assert way.refusal("http://10.96.0.2:1/", "team") is None


async def test_a_certificate_of_an_unknown_authority_is_reported(tmp_path: Path) -> None:
    now = SystemClock().now()
    pair = make_server_certificate(make_ca(now=now), names=["checks.example.com"], now=now)
    (tmp_path / "server.pem").write_bytes(pair.certificate + pair.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem")

    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        return (PUBLIC,)

    async with served(web.Application(), tls=tls) as port:
        way = Way(Seen(port), resolve)
        async with way.http:
            with pytest.raises(errors.Unavailable, match="its certificate is not valid"):
                await way.send("https://checks.example.com/")


async def test_certificates_are_verified() -> None:
    async with outbound.client() as http:
        pool: Any = http._transport  # pyright: ignore[reportPrivateUsage]
        context: ssl.SSLContext = pool._pool._ssl_context
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert ssl.VERIFY_X509_STRICT not in context.verify_flags
