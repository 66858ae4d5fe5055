"""HTTP requests to Ray dashboards, Serve proxies and metrics ports.

They are sent directly to pod addresses, or through the API server's proxy with its credentials, for
an operator outside the cluster network (KubeRay's `--use-kubernetes-proxy`). Each request has one
deadline that covers all of it. Requests, paths and timeouts: spec rayservice §11.2, §12.4-12.6.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from common import clock, errors, names, untrusted
from common.api.opaque import Json
from common.kube.answers import UNAUTHENTICATED
from common.kube.client import KubeClient
from common.kube.resources import POD, SERVICE
from common.observability import tracing
from common.ray.serve_status import MAX_REASON_LENGTH
from common.settings import Settings
from common.untrusted import clipped

if TYPE_CHECKING:
    import httpx

DIRECT_SECONDS: Final = 2.0
DEPLOY_SECONDS: Final = 10.0
"""Longer than for reads: the first config starts Serve itself, which takes seconds."""
PROXIED_SECONDS: Final = 10.0
APPLICATIONS: Final = "/api/serve/applications/"
STATUS: Final = f"{APPLICATIONS}?api_type=declarative"
PROXY_HEALTH: Final = "/-/healthz"
METRICS: Final = "/metrics"
WARM_UP_SECONDS: Final = 60.0
"""A model may compile before its first answer, so the limit is long."""
LATE_SECONDS: Final = 0.5
"""Seconds after a deadline beyond which this process itself must have been delayed."""
TOKEN_HEADER: Final = "x-ray-authorization"  # noqa: S105  (a header's name)
OK: Final = 200
MAX_STATUS_SIZE: Final = 4 * 2**20
MAX_METRICS_SIZE: Final = 8 * 2**20
MAX_HEALTH_SIZE: Final = 64 * 2**10
"""Maximum bytes of an answer, by what is asked. The status of 10,000 replicas is smaller."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP endpoint of a cluster.

    It is the dashboard of the head, or the Serve proxy or the metrics port of a pod.
    """

    namespace: str
    name: str
    port: int
    ip: str = ""
    """Address of the pod; empty if the target is a dashboard.

    A request for a dashboard through the API server's proxy names the Service of the head instead.
    """
    head_ip: str = ""
    """Address of the head pod, for a dashboard; empty if unknown."""
    token: str | None = None

    @property
    def what(self) -> str:
        """Return the kind of endpoint, for messages."""
        return "the pod" if self.ip else "the dashboard"

    @property
    def headers(self) -> dict[str, str]:
        """Return the authentication header, if there is a token."""
        return {} if self.token is None else {TOKEN_HEADER: f"Bearer {self.token}"}


class Dashboard(Protocol):
    """Access to dashboards and pods."""

    async def request(
        self,
        target: Target,
        path: str,
        *,
        most: int,
        config: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """GET a path, or PUT a Serve config to it, and return the body of the answer.

        `most` is the maximum size of the body in bytes, `seconds` the deadline. A dashboard's
        success is any 2xx, a pod's is 200. Raises `Unavailable` without a successful answer,
        `Unauthenticated` if Ray rejects the token, and `Rejected` if Ray rejects the request (4xx).
        Neither the body nor an error contains the token.
        """
        ...


class DirectDashboard:
    """A `Dashboard` over the cluster network."""

    def __init__(
        self,
        *,
        domain: str,
        client: "httpx.AsyncClient | None" = None,
        seconds: float = DIRECT_SECONDS,
        check_write: Callable[[], None] = lambda: None,
    ) -> None:
        import httpx  # noqa: PLC0415  (0.1 s and 2 MiB, only needed here)

        self._domain = domain
        self._check_write = check_write
        self._seconds = seconds
        limits = httpx.Limits(
            max_connections=None, max_keepalive_connections=64, keepalive_expiry=5.0
        )
        # All URLs are http. Without this context, httpx loads the certificate authorities for
        # nothing.
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._http = client or httpx.AsyncClient(
            timeout=seconds, limits=limits, trust_env=False, verify=nobody
        )
        self._failures = (httpx.HTTPError, httpx.InvalidURL)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def request(
        self,
        target: Target,
        path: str,
        *,
        most: int,
        config: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        where, url = f"{target.name}:{target.port}", f"{_origin(target)}{path}"
        headers, content, seconds = (
            {**untrusted.IDENTITY, **target.headers},
            None,
            seconds or self._seconds,
        )
        if not target.ip:
            name = names.head_fqdn(target.name, target.namespace, self._domain)
            headers["Host"] = f"{name}:{target.port}"
        method, step = "GET", nullcontext(None)
        if config is not None:
            self._check_write()
            headers["Content-Type"] = "application/json"
            content, seconds = (
                msgspec.json.encode(config, order="sorted"),
                seconds * DEPLOY_SECONDS / DIRECT_SECONDS,
            )
            method, step = "PUT", tracing.step("write", method="PUT", path=url)
        began = clock.steady()
        try:
            async with _deadline(seconds, target.name):
                with step:  # redirects are not followed: the token would go along
                    send = self._http.stream(
                        method,
                        url,
                        headers=headers,
                        content=content,
                        timeout=seconds,
                        follow_redirects=False,
                    )
                    async with send as answer:
                        body = await untrusted.read(answer.headers, answer.aiter_raw(), most=most)
                        body = untrusted.without(body, target.token or "")
        except self._failures as problem:
            text = errors.text_of(problem)
            raise errors.Unanswered(
                f"{target.what} at {where} does not answer: {text}",
                is_late=clock.steady() - began > seconds + LATE_SECONDS,
            ) from problem
        if answer.is_success and (not target.ip or answer.status_code == OK):
            return body
        reason = clipped(body[: 4 * MAX_REASON_LENGTH].decode(errors="replace"), MAX_REASON_LENGTH)
        phrase = untrusted.without(answer.reason_phrase.encode(), target.token or "").decode()
        text = f"{answer.status_code} {clipped(phrase, MAX_REASON_LENGTH)}: {reason}"
        if answer.status_code in UNAUTHENTICATED and not target.ip:
            raise errors.Unauthenticated(text)
        if answer.is_client_error:
            raise errors.Rejected(text)
        raise errors.Unavailable(f"{target.what} at {where} answered {text}")


class ProxiedDashboard:
    """A `Dashboard` through the API server's proxy."""

    def __init__(self, kube: KubeClient, *, seconds: float = PROXIED_SECONDS) -> None:
        self._kube = kube
        self._seconds = seconds

    async def request(
        self,
        target: Target,
        path: str,
        *,
        most: int,
        config: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        method, resource, port = "GET" if config is None else "PUT", SERVICE, "dashboard"
        if target.ip:
            resource, port = POD, str(target.port)
        # a failed read is never the user's fault, so it is not terminal
        unreachable = errors.Terminal if config is None else (errors.Forbidden, errors.NotFound)
        try:
            async with _deadline(seconds or self._seconds, target.name):
                proxied = resource.proxy(target.namespace, target.name, port, path)
                return await self._kube.request(
                    method, proxied, body=config, headers=target.headers, max_size=most
                )
        except unreachable as problem:
            where = f"{target.name}:{target.port}"
            text = f"{target.what} at {where} cannot be reached through the API server: {problem}"
            raise errors.Unavailable(text) from problem


def _origin(target: Target) -> str:
    """Return the scheme, address and port to connect to; always the address of a pod.

    A DNS name could lead elsewhere a moment later: the owner of a Service may turn it into an
    ExternalName and back, and resolver caches and kept-alive connections outlive both.
    """
    ip = target.ip or target.head_ip
    if not ip:
        raise errors.Unavailable(
            f"the address of the head pod behind Service {target.name} is not known: its "
            "EndpointSlices name none"
        )
    host = f"[{ip}]" if ":" in ip else ip
    return f"http://{host}:{target.port}"


@asynccontextmanager
async def reached(kube: KubeClient, settings: Settings) -> AsyncGenerator[Dashboard]:
    """Provide the `Dashboard` that the settings ask for; writes check the client's write guard."""
    if settings.use_kubernetes_proxy:
        yield ProxiedDashboard(kube)
        return
    async with aclosing(
        DirectDashboard(domain=settings.cluster_domain, check_write=kube.may_write)
    ) as direct:
        yield direct


@asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncGenerator[None]:
    began = clock.steady()
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as problem:
        raise errors.Unanswered(
            f"{what} does not answer within {seconds:g} s",
            is_late=clock.steady() - began > seconds + LATE_SECONDS,
        ) from problem
