"""HTTP requests to servers that tenants name in gates, limited in target, size and time.

Requests go only to addresses that `common.targets` permits. A host name is resolved once, and the
connection goes to the address that was checked, so that a second DNS answer cannot lead elsewhere.
Redirects are not followed, proxies in the environment are not used, and cookies are not kept.
Errors never contain the path, the query or the answer.
"""

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from socket import IPPROTO_TCP, gaierror, getaddrinfo
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from common import errors, untrusted
from common.settings import Settings
from common.targets import PORTS, Address, Targets, as_address
from common.tls import choose_verification
from common.upgrade.webhook import Answer

if TYPE_CHECKING:
    import httpx

LOOKUPS_AT_ONCE: Final = 4
"""Number of threads that are used only to look up addresses of gates' servers.

So a name server that does not answer delays no other lookups of the process."""
Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


class OutboundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a gate's server, for a RayService in `namespace`."""

    url: str
    namespace: str
    body: bytes | None = None
    """Body of a POST; None for a GET."""
    headers: dict[str, str] = {}
    max_size: int
    """Maximum bytes of the answer's body."""
    seconds: float


class Outbound(Protocol):
    """Sends requests to the servers of gates."""

    def refusal(self, url: str, namespace: str) -> str | None:
        """Return why a RayService of this namespace may not use this server; None if it may."""
        ...

    async def send(self, request: OutboundRequest) -> Answer:
        """Send a request, without a retry.

        Raises `Unavailable` if there is no answer within the limits, or if the request is not
        allowed.
        """
        ...


class NoOutbound:
    """Sends nothing.

    With `permits`, `refusal` refuses no server. This is used for forecasts, which do not know which
    servers the administrator allows.
    """

    def __init__(self, *, permits: bool = False) -> None:
        self._permits = permits

    def refusal(self, url: str, namespace: str) -> str | None:
        return None if self._permits else Targets().refusal(urlsplit(url), namespace)

    async def send(self, request: OutboundRequest) -> Answer:
        raise errors.Unavailable(self.refusal(request.url, request.namespace) or "is not asked")


class HttpOutbound:
    """Sends requests over the network, to allowed servers only."""

    def __init__(self, allowed: Targets, http: "httpx.AsyncClient", resolve: Resolve) -> None:
        self._allowed = allowed
        self._http = http
        self._resolve = resolve

    def refusal(self, url: str, namespace: str) -> str | None:
        return self._allowed.refusal(urlsplit(url), namespace)

    async def send(self, request: OutboundRequest) -> Answer:
        import httpx  # noqa: PLC0415  (7 MiB; only services with such gates need it)

        try:
            async with asyncio.timeout(request.seconds):
                return await self._send(request, urlsplit(request.url))
        except TimeoutError as problem:
            raise errors.Unavailable(f"does not answer within {request.seconds:g} s") from problem
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as problem:
            reason = type(problem).__name__  # the error's text may contain the URL
            chain = errors.causes(problem)
            if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in chain):
                reason = "its certificate is not valid"
            elif isinstance(problem, httpx.ConnectError) or not (
                problem.__cause__ or problem.__context__
            ):
                reason = "no connection"
            raise errors.Unavailable(f"does not answer ({reason})") from problem

    async def _send(self, request: OutboundRequest, url: SplitResult) -> Answer:
        if (why := self._allowed.refusal(url, request.namespace)) is not None:
            raise errors.Unavailable(f"is not asked: {why}")
        host, port = url.hostname or "", url.port or PORTS[url.scheme]
        address = await self._address(host, port)
        named = f"[{address}]" if address.version == 6 else str(address)
        send = self._http.stream(
            "GET" if request.body is None else "POST",
            url._replace(netloc=f"{named}:{port}").geturl(),
            content=request.body,
            headers={**untrusted.IDENTITY, **request.headers, "Host": url.netloc},
            follow_redirects=False,
            timeout=request.seconds,
            extensions={} if as_address(host) is not None else {"sni_hostname": host},
        )
        async with send as answer:
            body = await untrusted.read(answer.headers, answer.aiter_raw(), most=request.max_size)
            return Answer(
                status=answer.status_code,
                body=body,
                retry_after=answer.headers.get("Retry-After", ""),
            )

    async def _address(self, host: str, port: int) -> Address:
        """Return the address to connect to.

        If a name has several permitted addresses, one of them is chosen at random.
        """
        literal = as_address(host)
        if literal is not None:
            return literal
        addresses = await self._resolve(host, port)
        usable = [address for address in addresses if not self._allowed.is_forbidden(address)]
        if addresses and not usable:
            raise errors.Unavailable(
                f"is not asked: {host} is at an address that raybus never asks"
            )
        if not usable:
            raise errors.Unavailable("has no address")
        return random.choice(usable)  # noqa: S311 - load balancing, not security


async def _look_up(pool: ThreadPoolExecutor, host: str, port: int) -> Sequence[Address]:
    try:
        infos = await asyncio.get_running_loop().run_in_executor(
            pool, partial(getaddrinfo, host, port, proto=IPPROTO_TCP)
        )
    except (gaierror, UnicodeError):
        return ()
    addresses = (as_address(str(info[4][0]).partition("%")[0]) for info in infos)
    return tuple(dict.fromkeys(address for address in addresses if address is not None))


@asynccontextmanager
async def reached(settings: Settings) -> AsyncGenerator[Outbound]:
    """Provide an `Outbound` that reaches only the servers which `RAYBUS_GATE_TARGETS` allows.

    If the setting is empty, every server is refused.
    """
    if not settings.gate_targets:
        yield NoOutbound()
        return
    async with reached_within(
        Targets(origins=settings.gate_targets, api_server=settings.kubernetes_host)
    ) as outbound:
        yield outbound


@asynccontextmanager
async def reached_within(allowed: Targets) -> AsyncGenerator[Outbound]:
    """Provide an `Outbound` that reaches only the servers which `allowed` permits."""
    pool = ThreadPoolExecutor(max_workers=LOOKUPS_AT_ONCE, thread_name_prefix="gate-lookup")
    try:
        async with client() as http:
            yield HttpOutbound(allowed, http, partial(_look_up, pool))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def client() -> "httpx.AsyncClient":
    """Return an HTTP client that uses no proxies and keeps no connections or cookies."""
    import httpx  # noqa: PLC0415  (as above)

    tls = httpx.create_ssl_context()
    choose_verification(tls)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    http = httpx.AsyncClient(verify=tls, limits=limits, trust_env=False, follow_redirects=False)
    http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
    return http
