"""Ray's dashboard over HTTP: Serve status, Serve config, and the health of a node's Serve proxy.

Two ways to the same calls: straight to the head's Service and pods, or through the API server's proxy with its credentials,
for an operator outside the cluster network (KubeRay's `--use-kubernetes-proxy`). Each call has one deadline for all of it.
Calls, paths and time-outs: spec rayservice §11.2, §12.4-12.6.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Final, Protocol

import httpx
import msgspec

from common import errors, names, untrusted
from common.api.opaque import Json
from common.kube.client import KubeClient
from common.kube.resources import POD, SERVICE
from common.observability import tracing
from common.ray import ongoing, serve_status
from common.ray.ongoing import Ongoing
from common.ray.serve_status import ServeDetails
from common.settings import Settings
from common.untrusted import clipped

DIRECT_SECONDS: Final = 2.0
DEPLOY_SECONDS: Final = 10.0
"""The first config starts Serve itself, which takes seconds; it is sent only after a read was answered."""
PROXIED_SECONDS: Final = 10.0
APPLICATIONS: Final = "/api/serve/applications/"
PROXY_HEALTH: Final = "/-/healthz"
METRICS: Final = "/metrics"
TOKEN_HEADER: Final = "x-ray-authorization"  # noqa: S105  (a header's name)
OK: Final = 200
LONGEST_REASON: Final = 500
LARGEST_STATUS: Final = 4 * 2**20
"""Bytes of Serve's status; ten thousand replicas have fewer."""
LARGEST_METRICS: Final = 8 * 2**20
"""Bytes of a node's metrics."""
LARGEST_HEALTH: Final = 64 * 2**10
"""Bytes of a proxy's answer to a health check."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cluster's dashboard is."""

    namespace: str
    service: str
    port: int
    token: str | None = None


class ProxyPod(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod's Serve proxy is."""

    namespace: str
    name: str
    ip: str
    port: int


class Dashboard(Protocol):
    """A Ray cluster as Serve shows it; calls raise `Unavailable`, or `Rejected` when Ray refuses what was sent."""

    async def read(self, head: Head) -> ServeDetails:
        """Read the state of all applications."""
        ...

    async def deploy(self, head: Head, config: Json) -> None:
        """Replace the whole Serve config."""
        ...

    async def is_proxy_healthy(self, pod: ProxyPod) -> bool:
        """Return whether a pod's proxy answers its health check with 200 in time."""
        ...

    async def ongoing_requests(self, pod: ProxyPod) -> Ongoing | None:
        """Return what a pod reports of the requests in flight, None when it does not; `port` is that of its metrics."""
        ...


class _PodRequests(ABC):
    """The calls to pods, which have no reason for a failure."""

    async def is_proxy_healthy(self, pod: ProxyPod) -> bool:
        return await self._of_pod(pod, PROXY_HEALTH, most=LARGEST_HEALTH) is not None

    async def ongoing_requests(self, pod: ProxyPod) -> Ongoing | None:
        exposition = await self._of_pod(pod, METRICS, most=LARGEST_METRICS)
        return None if exposition is None else ongoing.count(exposition)

    @abstractmethod
    async def _of_pod(self, pod: ProxyPod, path: str, *, most: int) -> bytes | None:
        """Return what a pod answers with 200 in time, None for anything else."""


class DirectDashboard(_PodRequests):
    """Implements `Dashboard` over the cluster network."""

    def __init__(
        self,
        *,
        domain: str,
        client: httpx.AsyncClient | None = None,
        seconds: float = DIRECT_SECONDS,
        check_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._domain = domain
        self._check_write = check_write
        self._seconds = seconds
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=5.0)
        self._http = client or httpx.AsyncClient(timeout=seconds, limits=limits, trust_env=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def read(self, head: Head) -> ServeDetails:
        return _details(await self._call("GET", f"{APPLICATIONS}?api_type=declarative", head))

    async def deploy(self, head: Head, config: Json) -> None:
        self._check_write()
        await self._call("PUT", APPLICATIONS, head, content=msgspec.json.encode(config, order="sorted"))

    async def _of_pod(self, pod: ProxyPod, path: str, *, most: int) -> bytes | None:
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        try:
            async with _deadline(self._seconds, pod.ip):
                request = self._http.build_request(
                    "GET", f"http://{host}:{pod.port}{path}", headers=untrusted.IDENTITY, timeout=self._seconds
                )
                answer, body = await self._send(request, most=most)
        except (errors.Unavailable, httpx.HTTPError, httpx.InvalidURL):
            return None
        return body if answer.status_code == OK else None

    async def _call(self, method: str, path: str, head: Head, *, content: bytes | None = None) -> bytes:
        where = f"{head.service}:{head.port}"
        url = f"http://{names.head_fqdn(head.service, head.namespace, self._domain)}:{head.port}{path}"
        headers, seconds, step = {**untrusted.IDENTITY, **_token(head)}, self._seconds, nullcontext(None)
        if content is not None:
            headers = {**untrusted.IDENTITY, "Content-Type": "application/json", **_token(head)}
            seconds = self._seconds * DEPLOY_SECONDS / DIRECT_SECONDS
            step = tracing.step("write", method=method, path=url)
        try:
            async with _deadline(seconds, head.service):
                with step:
                    request = self._http.build_request(method, url, headers=headers, content=content, timeout=seconds)
                    answer, body = await self._send(request, most=LARGEST_STATUS)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            text = str(problem) or type(problem).__name__
            raise errors.Unavailable(f"the dashboard at {where} does not answer: {text}") from problem
        if answer.is_success:
            return body
        reason = clipped(body[: 4 * LONGEST_REASON].decode(errors="replace"), LONGEST_REASON)
        text = f"{answer.status_code} {clipped(answer.reason_phrase, LONGEST_REASON)}: {reason}"
        if answer.is_client_error:
            raise errors.Rejected(text)
        raise errors.Unavailable(f"the dashboard at {where} answered {text}")

    async def _send(self, request: httpx.Request, *, most: int) -> tuple[httpx.Response, bytes]:
        """Send one request; redirects are not followed: they would take the token along."""
        answer = await self._http.send(request, stream=True, follow_redirects=False)
        try:
            return answer, await untrusted.read(answer.headers, answer.aiter_raw(), most=most)
        finally:
            await answer.aclose()


class ProxiedDashboard(_PodRequests):
    """Implements `Dashboard` through the API server's proxy."""

    def __init__(self, kube: KubeClient, *, seconds: float = PROXIED_SECONDS) -> None:
        self._kube = kube
        self._seconds = seconds

    async def read(self, head: Head) -> ServeDetails:
        try:
            async with _deadline(self._seconds, head.service):
                query = {"api_type": "declarative"}
                body = await self._kube.request(
                    "GET", _path(head), query=query, headers=_token(head), most=LARGEST_STATUS
                )
            return _details(body)
        except errors.Terminal as problem:  # a read asks for nothing that could be wrong
            raise _unreachable(head, problem) from problem

    async def deploy(self, head: Head, config: Json) -> None:
        try:
            async with _deadline(self._seconds, head.service):
                await self._kube.request("PUT", _path(head), body=config, headers=_token(head), most=LARGEST_STATUS)
        except (errors.Forbidden, errors.NotFound) as problem:
            raise _unreachable(head, problem) from problem

    async def _of_pod(self, pod: ProxyPod, path: str, *, most: int) -> bytes | None:
        try:
            async with _deadline(self._seconds, pod.name):
                return await self._kube.request("GET", POD.proxy(pod.namespace, pod.name, pod.port, path), most=most)
        except errors.RaybusError:
            return None


@asynccontextmanager
async def reached(kube: KubeClient, settings: Settings) -> AsyncGenerator[Dashboard]:
    """Give the way to the dashboards that the settings ask for, for the length of a block; writes pass the client's guard."""
    if settings.use_kubernetes_proxy:
        yield ProxiedDashboard(kube)
        return
    direct = DirectDashboard(domain=settings.cluster_domain, check_write=kube.check_write)
    try:
        yield direct
    finally:
        await direct.close()


def _unreachable(head: Head, problem: errors.RaybusError) -> errors.Unavailable:
    where = f"{head.service}:{head.port}"
    return errors.Unavailable(f"the dashboard at {where} cannot be reached through the API server: {problem}")


def _token(head: Head) -> dict[str, str]:
    return {} if head.token is None else {TOKEN_HEADER: f"Bearer {head.token}"}


def _path(head: Head) -> str:
    return SERVICE.proxy(head.namespace, head.service, "dashboard", APPLICATIONS)


def _details(body: bytes) -> ServeDetails:
    try:
        return serve_status.decode(body)
    except msgspec.DecodeError as problem:
        text = clipped(str(problem), LONGEST_REASON)
        raise errors.Unavailable(f"the dashboard's answer is not Serve status: {text}") from problem


@asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as problem:
        raise errors.Unavailable(f"{what} does not answer within {seconds:g} s") from problem
