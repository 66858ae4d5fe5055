"""HTTP requests to Ray dashboards, Serve proxies and metrics ports.

They are sent directly to pod addresses. An operator outside the cluster network sends them through
the API server's proxy instead (KubeRay's `--use-kubernetes-proxy`). One deadline covers a whole
request with its answer. Requests, paths and timeouts: spec rayservice §11.2, §12.4-12.6.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from common import clock, errors, names, untrusted
from common.api.opaque import Json
from common.kube.answers import UNAUTHENTICATED, keep_answer
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
"""Timeout in seconds for sending a Serve config.

It is longer than that of reads, because the first config starts Serve itself."""
PROXIED_SECONDS: Final = 10.0
APPLICATIONS: Final = "/api/serve/applications/"
STATUS: Final = f"{APPLICATIONS}?api_type=declarative"
PROXY_HEALTH: Final = "/-/healthz"
METRICS: Final = "/metrics"
WARM_UP_SECONDS: Final = 60.0
"""Timeout in seconds of a warm-up request. A model may compile before its first answer."""
LATE_SECONDS: Final = 0.5
"""If a timeout fires more than this many seconds late, this process itself was delayed."""
TOKEN_HEADER: Final = "x-ray-authorization"  # noqa: S105  (a header's name)
OK: Final = 200
MAX_STATUS_SIZE: Final = 4 * 2**20
MAX_METRICS_SIZE: Final = 8 * 2**20
MAX_HEALTH_SIZE: Final = 64 * 2**10
"""Maximum bytes of the answer to a health check.

`MAX_STATUS_SIZE` is the limit for a Serve status, enough for 10,000 replicas; `MAX_METRICS_SIZE` is
the limit for a metrics page.
"""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP endpoint of a cluster: its dashboard, or a pod's Serve proxy or metrics port."""

    namespace: str
    name: str
    port: int
    ip: str = ""
    """Address of the pod; empty if the target is a dashboard.

    A dashboard is addressed by `head_ip` or, through the API server's proxy, by the head Service.
    """
    head_ip: str = ""
    """Address of the head pod if the target is a dashboard; empty if unknown."""
    token: str | None = None

    @property
    def what(self) -> str:
        """Return "the pod" or "the dashboard", for messages."""
        return "the pod" if self.ip else "the dashboard"

    @property
    def headers(self) -> dict[str, str]:
        """Return the authentication header, if there is a token."""
        return {} if self.token is None else {TOKEN_HEADER: f"Bearer {self.token}"}


class Dashboard(Protocol):
    """Sends HTTP requests to Ray dashboards, and to Serve proxies and metrics ports of pods."""

    async def request(
        self,
        target: Target,
        path: str,
        *,
        most: int,
        config: Json | None = None,
        post: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """GET a path and return the body of the answer.

        With `config`, PUT this Serve config instead; with `post`, POST this body. `most` is the
        maximum size of the answer's body in bytes, `seconds` the deadline. Success is any 2xx from
        a dashboard, and 200 from a pod. Raises `Unavailable` without a successful answer,
        `Unauthenticated` if Ray rejects the token, and `Rejected` if Ray rejects the request (4xx).
        The error contains the answer, if there was one. The token is removed from body and error.
        """
        ...


class DirectDashboard:
    """Sends requests directly to pod addresses in the cluster network."""

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
        post: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        where, url = f"{target.name}:{target.port}", f"{_origin(target)}{path}"
        headers, content = {**untrusted.IDENTITY, **target.headers}, None
        method, body = _choose_method(config, post)
        if not target.ip:
            name = names.head_fqdn(target.name, target.namespace, self._domain)
            headers["Host"] = f"{name}:{target.port}"
        step, default = nullcontext(None), self._seconds
        if body is not None:
            self._check_write()
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode(body, order="sorted")
            default *= DEPLOY_SECONDS / DIRECT_SECONDS
            step = tracing.step("write", method=method, path=url)
        seconds = seconds or default
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
                        answer_body = await untrusted.read(
                            answer.headers, answer.aiter_raw(), most=most
                        )
                        answer_body = untrusted.without(answer_body, target.token or "")
        except self._failures as problem:
            text = errors.text_of(problem)
            raise errors.Unanswered(
                f"{target.what} at {where} does not answer: {text}",
                is_late=clock.steady() - began > seconds + LATE_SECONDS,
            ) from problem
        if answer.is_success and (not target.ip or answer.status_code == OK):
            return answer_body
        phrase = untrusted.without(answer.reason_phrase.encode(), target.token or "").decode()
        raise make_error(target, answer.status_code, phrase, answer_body)


class ProxiedDashboard:
    """Sends requests through the API server's proxy."""

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
        post: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        (method, body), resource, port = _choose_method(config, post), SERVICE, "dashboard"
        if target.ip:
            resource, port = POD, str(target.port)
        # a failed read is never the user's fault, so it is not terminal
        unreachable = errors.Terminal if body is None else (errors.Forbidden, errors.NotFound)
        try:
            async with _deadline(seconds or self._seconds, target.name):
                proxied = resource.proxy(target.namespace, target.name, port, path)
                return await self._kube.request(
                    method, proxied, body=body, headers=target.headers, max_size=most
                )
        except unreachable as problem:
            where = f"{target.name}:{target.port}"
            text = f"{target.what} at {where} cannot be reached through the API server: {problem}"
            error = errors.Unavailable(text)
            error.answer = problem.answer
            raise error from problem


def make_error(target: Target, code: int, phrase: str, body: bytes) -> errors.RaybusError:
    """Return the error for an unsuccessful answer; `phrase` is the HTTP reason phrase."""
    reason = clipped(body[: 4 * MAX_REASON_LENGTH].decode(errors="replace"), MAX_REASON_LENGTH)
    text = f"{code} {clipped(phrase, MAX_REASON_LENGTH)}: {reason}"
    if code in UNAUTHENTICATED and not target.ip:
        error: errors.RaybusError = errors.Unauthenticated(text)
    elif 400 <= code < 500:
        error = errors.Rejected(text)
    else:
        where = f"{target.name}:{target.port}"
        error = errors.Unavailable(f"{target.what} at {where} answered {text}")
    error.answer = keep_answer(code, body)
    return error


def _choose_method(config: Json | None, post: Json | None) -> tuple[str, Json | None]:
    """Return the HTTP method and the JSON body of a request."""
    if post is not None:
        return "POST", post
    return ("GET" if config is None else "PUT"), config


def _origin(target: Target) -> str:
    """Return scheme, address and port to connect to. The address is that of a pod, not a DNS name.

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
    """Provide the direct or the proxied `Dashboard`, depending on the settings.

    A direct write first calls `kube.may_write`, which raises an error if writes are not allowed.
    """
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
