"""Requests to the API server: bodies stay bytes.

Callers decode with msgspec into the few fields that they use, because models of everything cost most of the CPU and memory of
Python operators (ADR 3). Every refused request becomes one of `common.errors`.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar, cast
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from common import errors, untrusted
from common.api.opaque import Body
from common.clock import steady
from common.kube import answers, rest_config
from common.kube.credentials import Identity
from common.kube.resources import EVENT, POD, SERVICE_ACCOUNT, Resource
from common.kube.rest_config import RestConfig
from common.observability import tracing
from common.observability.metrics import UNANSWERED, RequestMeter
from common.proxies import Proxies

Result = TypeVar("Result")
Operations = list[Body]
"""A JSON patch."""

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
METADATA: Final = {
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}
"""Headers of a request with an answer of which at most the metadata is read: the API server encodes no more."""
UNCHECKED: Final = {"fieldValidation": "Ignore"}
"""Query of a write of what we build or copy ourselves: the API server does not check for unknown and repeated fields, of which it would only warn."""
LARGE_BODY: Final = 2**19
"""Bytes; a larger body is sent in pieces, so that no write of it holds up the event loop."""
REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=15.0, connect=5.0)
STREAM_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=5.0)
READ_BUFFER: Final = 2**20
"""Bytes of an answer that may wait to be read; a page of a list is larger than the usual 64 KiB."""

Authorize = Callable[[str, str, Mapping[str, str]], Awaitable[None]]
"""Receives method, path and query of a request before it is sent; raises what a refusal means."""
TakeAnswer = Callable[[aiohttp.ClientResponse, Mapping[str, str], int | None], Awaitable[None]]
"""Receives an answer, the headers of its request and the bytes that it may have; raises what a refusal means."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A change to some fields of an object."""

    body: Body | Operations
    content_type: str = MERGE_PATCH
    subresource: str | None = None


class Kube(Protocol):
    """The API server as reconcilers see it; each call returns the answer's body and raises `common.errors`."""

    def request(
        self,
        method: str,
        path: str,
        /,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | Operations | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Awaitable[bytes]:
        """Send one request, which the calls below build."""
        ...

    def get(self, resource: Resource, namespace: str | None, name: str) -> Awaitable[bytes]:
        """Read one object from the API server itself (no cache)."""
        return self.request("GET", resource.path(namespace, name))

    def get_metadata(
        self, resource: Resource, namespace: str | None, name: str
    ) -> Awaitable[bytes]:
        """Read the metadata of one object from the API server itself, whatever the rest holds."""
        return self.request("GET", resource.path(namespace, name), headers=METADATA)

    def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str = "",
        limit: int | None = None,
    ) -> Awaitable[bytes]:
        """Read a whole collection consistently, or with a limit so many of it."""
        query = {"labelSelector": label_selector} if label_selector else {}
        query |= {} if limit is None else {"limit": str(limit)}
        return self.request("GET", resource.path(namespace), query=query)

    def create(self, resource: Resource, namespace: str | None, body: Body) -> Awaitable[bytes]:
        """Create; `AlreadyExists` when the name is taken. The answer for an Event or a pod has its metadata alone."""
        headers = METADATA if resource in {EVENT, POD} else None
        return self.request(
            "POST", resource.path(namespace), query=UNCHECKED, body=body, headers=headers
        )

    def dry_create(self, resource: Resource, namespace: str | None, body: Body) -> Awaitable[bytes]:
        """Ask whether `create` would be admitted; nothing is stored."""
        query = {**UNCHECKED, "dryRun": "All"}
        return self.request("POST", resource.path(namespace), query=query, body=body)

    def replace(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        *,
        subresource: str | None = None,
    ) -> Awaitable[bytes]:
        """Replace the object named in the body; with a resourceVersion in it, `Conflict` when that is old."""
        name = cast("str", body["metadata"]["name"])
        return self.request(
            "PUT", resource.path(namespace, name, subresource), query=UNCHECKED, body=body
        )

    def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Patch
    ) -> Awaitable[bytes]:
        """Change some fields."""
        path, headers = (
            resource.path(namespace, name, patch.subresource),
            {"Content-Type": patch.content_type},
        )
        return self.request("PATCH", path, query=UNCHECKED, body=patch.body, headers=headers)

    def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
    ) -> Awaitable[bytes]:
        """Delete in the background; `Conflict` when the object has another uid, or another version, by now."""
        options: Body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
        }
        wanted = (("uid", uid), ("resourceVersion", version))
        if preconditions := {name: value for name, value in wanted if value is not None}:
            options["preconditions"] = preconditions
        return self.request("DELETE", resource.path(namespace, name), body=options)

    def delete_collection(
        self, resource: Resource, namespace: str, *, label_selector: str
    ) -> Awaitable[bytes]:
        """Delete all that a selector matches in one request."""
        return self.request(
            "DELETE", resource.path(namespace), query={"labelSelector": label_selector}
        )

    def request_token(self, namespace: str, account: str, *, seconds: int) -> Awaitable[bytes]:
        """Issue a token of a ServiceAccount for the audience of the API server; the answer is a `TokenRequest`, and nothing is stored."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return self.request("POST", SERVICE_ACCOUNT.path(namespace, account, "token"), body=body)


class _Connector(aiohttp.TCPConnector):
    """Pool that closes the socket of an abandoned answer at once.

    aiohttp closes such a connection by the closing handshake of TLS and forgets it. The socket
    stays open until the API server answers, even after the pool itself was closed.
    """

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        transport = protocol.transport
        if transport is not None and (should_close or protocol.should_close):
            transport.abort()
        super()._release(key, protocol, should_close=should_close)


class KubeClient(Kube):
    """The API server over HTTP; it hands out raw streams for watches, too."""

    def __init__(
        self, config: RestConfig, *, user_agent: str, authorize: Authorize | None = None
    ) -> None:
        self.server = config.server
        """The URL of the API server."""
        self._authorize = authorize
        self._credentials = config.credentials
        server = urlsplit(self.server)
        self._proxy = config.proxy or Proxies.from_environment(os.environ).find(self.server)
        """The proxy between us and the API server, which the environment names where the kubeconfig names none."""
        if self._proxy is not None and urlsplit(self._proxy).scheme not in {"http", "https"}:
            raise errors.InvalidSpec(
                f"the proxy {URL(self._proxy).with_user(None)} of the API server: "
                "set http://HOST:PORT or https://HOST:PORT, or list the API server in NO_PROXY"
            )
        session = partial(aiohttp.ClientSession, connector=_Connector())
        self._session = session(cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=READ_BUFFER)
        # Behind the API server's proxy answers a tenant's server: what it compresses is not unpacked.
        self._foreign = session(
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, connector_owner=False
        )
        self._server_name = config.server_name
        self._user_agent = user_agent
        self.may_write: Callable[[], None] = lambda: None
        """Asked before every write; raises what a refusal means."""
        self.learn_date: Callable[[datetime, float], None] = lambda _date, _round_trip: None
        """Receives the date of each answer, and the seconds since its request was sent.

        Not for a client that reaches pods through the API server: a pod writes its own dates.
        """
        self._last_date = ""
        self._meter = RequestMeter(server.netloc)

    @classmethod
    async def connect(
        cls, *, kubeconfig: Path | None, user_agent: str, context: str | None = None
    ) -> Self:
        """Read a kubeconfig file and its context, or the pod's own ServiceAccount when there is none."""
        return cls(
            await rest_config.load(kubeconfig=kubeconfig, context=context), user_agent=user_agent
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._foreign.close()
        await self._session.close()  # and with it the connector of both

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | Operations | None = None,
        headers: Mapping[str, str] | None = None,
        most: int | None = None,
    ) -> bytes:
        """Send one request, `headers` added to our own, and return the answer's body, or raise what a refusal means.

        `most` bounds the bytes of an answer that another server gives through the API server's proxy; what it repeats of `headers`,
        which hold its token, is replaced.
        """
        headers, data = headers or {}, None if body is None else msgspec.json.encode(body)

        async def send(identity: Identity) -> bytes:
            is_large = data is not None and len(data) > LARGE_BODY
            sent = BytesIO(data) if data is not None and is_large else data
            sending = await self._sending(
                identity,
                method,
                path,
                query or {},
                headers,
                most,
                data=sent,
                timeout=REQUEST_TIMEOUT,
            )
            with self._exchange(method, path, data) as take:
                async with sending as answer:
                    await take(answer, headers, most)
                    return await _read(answer, headers, most)

        content = await self._authenticated(send, is_foreign=most is not None)
        self._meter.read(method, content)
        return content

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        most: int | None = None,
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        """Open a long answer, such as a watch; the caller reads lines, and the end of the block closes it.

        `most` is given for another server behind the API server's proxy: it bounds the bytes of a refusal, which repeats no value of
        `headers`, and nothing is unpacked.
        """
        headers = headers or {}

        @asynccontextmanager
        async def opened(identity: Identity) -> AsyncGenerator[aiohttp.StreamReader]:
            sending = await self._sending(
                identity, "GET", path, query, headers, most, timeout=STREAM_TIMEOUT
            )
            with self._exchange("GET", path, None) as take:
                async with sending as answer:
                    await take(answer, headers, most)
                    yield answer.content

        async with AsyncExitStack() as stack:
            yield await self._authenticated(
                lambda identity: stack.enter_async_context(opened(identity)),
                is_foreign=most is not None,
            )

    async def _authenticated(
        self, send: Callable[[Identity], Awaitable[Result]], *, is_foreign: bool
    ) -> Result:
        """Send a request, and once more with other credentials if the API server refuses ours.

        A foreign server that answers 401 refuses another token than ours.
        """
        identity = await self._credentials.show()
        try:
            return await send(identity)
        except errors.Unauthorized:
            if is_foreign or not await self._credentials.renew(identity):
                raise
        return await send(await self._credentials.show())

    async def _sending(
        self,
        identity: Identity,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        most: int | None,
        **more: Any,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Authorize and prepare a request. Redirects are not followed: they would take our credentials along."""
        if self._authorize is not None:
            await self._authorize(method, path, query)
        session, plain = (
            (self._session, {}) if most is None else (self._foreign, untrusted.IDENTITY)
        )
        if method != "GET":
            self.may_write()  # the last thing that is asked: all before it may take seconds
        sent = {
            "Accept": JSON,
            "Content-Type": JSON,
            "User-Agent": self._user_agent,
            **plain,
            **headers,
        }
        options: dict[str, Any] = {
            "params": dict(query),
            "headers": [*sent.items(), *identity.headers],
            "allow_redirects": False,
            **more,
        }
        # Connections of one TLS context are not used with another one: a new certificate is shown at once.
        options |= {"ssl": identity.tls or True}
        options |= {"proxy": self._proxy, "server_hostname": self._server_name}
        return session.request(method, URL(self.server + path, encoded=True), **options)

    @contextmanager
    def _exchange(self, method: str, path: str, data: bytes | None) -> Generator[TakeAnswer]:
        """Trace and measure a request; yield what takes its answer or raises what a refusal means; `Unavailable` without an answer."""
        is_answered, now = False, asyncio.get_running_loop().time
        began, sent_at = now(), steady()

        async def take(
            answer: aiohttp.ClientResponse, headers: Mapping[str, str], most: int | None
        ) -> None:
            nonlocal is_answered
            is_answered = True
            if (date := answer.headers.get("Date", "")) != self._last_date:
                self._last_date = date
                with suppress(TypeError, ValueError):
                    self.learn_date(parsedate_to_datetime(date), steady() - sent_at)
            self._meter.answered(method, str(answer.status), now() - began)
            if answer.status >= 300:
                after, body = (
                    answer.headers.get("Retry-After", ""),
                    await _read(answer, headers, most),
                )
                wait = float(after) if after.isdecimal() and len(after) < 6 else None
                raise answers.from_answer(
                    answer.status, body, retry_after=wait, is_foreign=most is not None
                )

        with nullcontext() if method == "GET" else tracing.step("write", method=method, path=path):
            self._meter.sent(method, data)
            try:
                yield take
            except (aiohttp.ClientError, ssl.SSLError, OSError, TimeoutError) as problem:
                if not is_answered:
                    self._meter.answered(method, UNANSWERED, now() - began)
                through = ""
                if self._proxy is not None:
                    proxy = URL(self._proxy).with_user(None)
                    through = f" through the proxy {proxy} (NO_PROXY lists what needs none)"
                raise errors.Unavailable(
                    f"the API server at {self.server} does not answer{through}: "
                    f"{errors.text_of(problem)}"
                ) from problem


async def _read(
    answer: aiohttp.ClientResponse, headers: Mapping[str, str], most: int | None
) -> bytes:
    """Return an answer; another server's is bounded, and without what it repeats of the request's headers."""
    if most is None:
        return await answer.read()
    body = await untrusted.read(answer.headers, answer.content.iter_any(), most=most)
    for value in headers.values():
        body = untrusted.without(body, value.rpartition(" ")[2])
    return body
