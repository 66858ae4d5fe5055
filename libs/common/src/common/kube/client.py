"""HTTP client of the API server. Bodies of answers are returned as bytes.

Callers decode the few fields that they use with msgspec, because complete models cause most of the
CPU and memory use of Python operators (ADR 47). A failed request raises an error of
`common.errors`.
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
from common.proxies import OutboundProxies

Result = TypeVar("Result")
Operations = list[Body]
"""The operations of a JSON patch (RFC 6902)."""

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
METADATA: Final = {
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}
"""Request headers that limit the answer to the object's metadata.

The API server then does not encode the rest of the object.
"""
UNCHECKED: Final = {"fieldValidation": "Ignore"}
"""Query parameters for writes whose body raybus built or copied.

They turn off the API server's check for unknown and repeated fields, which would only cause
warnings.
"""
LARGE_BODY: Final = 2**19
"""Bytes above which a body is sent in pieces, so that writing it does not block the event loop."""
REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=15.0, connect=5.0)
STREAM_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=5.0)
READ_BUFFER: Final = 2**20
"""Bytes of an answer that are buffered before they are read.

A page of a list is larger than aiohttp's default buffer of 64 KiB."""

Authorize = Callable[[str, str, Mapping[str, str]], Awaitable[None]]
"""Called with method, path and query before a request; raises an error to prevent it."""
TakeAnswer = Callable[[aiohttp.ClientResponse, Mapping[str, str], int | None], Awaitable[None]]
"""Function that raises the error of a refused request.

It is called with the answer, the headers of the request, and the maximum size in bytes (None: no
limit).
"""


class PatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A patch of an object. `content_type` says whether it is a merge patch or a JSON patch."""

    body: Body | Operations
    content_type: str = MERGE_PATCH
    subresource: str | None = None


class Kube(Protocol):
    """Requests to the API server.

    Each method returns the body of the answer; it raises an error of `common.errors` on a failure.
    """

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
        """Send one request. All other methods call this method."""
        ...

    def get(self, resource: Resource, namespace: str | None, name: str) -> Awaitable[bytes]:
        """Read an object from the API server, without a cache."""
        return self.request("GET", resource.path(namespace, name))

    def get_metadata(
        self, resource: Resource, namespace: str | None, name: str
    ) -> Awaitable[bytes]:
        """Read only the metadata of an object, which can be decoded even if the rest cannot."""
        return self.request("GET", resource.path(namespace, name), headers=METADATA)

    def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str = "",
        limit: int | None = None,
    ) -> Awaitable[bytes]:
        """Read a collection as one consistent list; with `limit` only its first objects."""
        query = {"labelSelector": label_selector} if label_selector else {}
        query |= {} if limit is None else {"limit": str(limit)}
        return self.request("GET", resource.path(namespace), query=query)

    def create(self, resource: Resource, namespace: str | None, body: Body) -> Awaitable[bytes]:
        """Create an object; raise `AlreadyExists` if its name is taken.

        For an Event or a pod, the answer holds only the metadata.
        """
        headers = METADATA if resource in {EVENT, POD} else None
        return self.request(
            "POST", resource.path(namespace), query=UNCHECKED, body=body, headers=headers
        )

    def dry_create(self, resource: Resource, namespace: str | None, body: Body) -> Awaitable[bytes]:
        """Ask whether the API server would admit an object, without storing the object."""
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
        """Replace an object by `body`, which contains the object's name.

        Raises `Conflict` if the body has a resourceVersion that is no longer the newest.
        """
        name = cast("str", body["metadata"]["name"])
        return self.request(
            "PUT", resource.path(namespace, name, subresource), query=UNCHECKED, body=body
        )

    def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: PatchRequest
    ) -> Awaitable[bytes]:
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
        """Delete an object; the garbage collector deletes its dependents afterwards.

        Raises `Conflict` if the object's uid is not `uid`, or its resourceVersion is not `version`.
        """
        options: Body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
        }
        required = (("uid", uid), ("resourceVersion", version))
        if preconditions := {name: value for name, value in required if value is not None}:
            options["preconditions"] = preconditions
        return self.request("DELETE", resource.path(namespace, name), body=options)

    def delete_collection(
        self, resource: Resource, namespace: str, *, label_selector: str
    ) -> Awaitable[bytes]:
        """Delete all objects that match a selector, in one request."""
        return self.request(
            "DELETE", resource.path(namespace), query={"labelSelector": label_selector}
        )

    def request_token(self, namespace: str, account: str, *, seconds: int) -> Awaitable[bytes]:
        """Request a token of a ServiceAccount for the API server, valid for `seconds`.

        The answer is a `TokenRequest`. Nothing is stored.
        """
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return self.request("POST", SERVICE_ACCOUNT.path(namespace, account, "token"), body=body)


class _Connector(aiohttp.TCPConnector):
    """Connection pool that closes the socket of an abandoned answer at once.

    aiohttp's own pool would only begin the TLS closing handshake and forget the connection. The
    socket would then stay open until the API server answers, even after the pool was closed.
    """

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        transport = protocol.transport
        if transport is not None and (should_close or protocol.should_close):
            transport.abort()
        super()._release(key, protocol, should_close=should_close)


class KubeClient(Kube):
    """Client of the API server over HTTP, with streams for watches."""

    def __init__(
        self, config: RestConfig, *, user_agent: str, authorize: Authorize | None = None
    ) -> None:
        self.server = config.server
        self._authorize = authorize
        self._credentials = config.credentials
        server = urlsplit(self.server)
        self._proxy = config.proxy or OutboundProxies.from_environment(os.environ).find(self.server)
        """URL of the proxy through which the API server is reached: from the kubeconfig, else from
        the environment.
        """
        if self._proxy is not None and urlsplit(self._proxy).scheme not in {"http", "https"}:
            raise errors.InvalidSpec(
                f"the proxy {URL(self._proxy).with_user(None)} of the API server: "
                "set http://HOST:PORT or https://HOST:PORT, or list the API server in NO_PROXY"
            )
        session = partial(aiohttp.ClientSession, connector=_Connector())
        self._session = session(cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=READ_BUFFER)
        # A tenant's server may answer through the API server's proxy: do not decompress its
        # answers.
        self._foreign = session(
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, connector_owner=False
        )
        self._server_name = config.server_name
        self._user_agent = user_agent
        self.may_write: Callable[[], None] = lambda: None
        """Called before every write; it raises an error to prevent the write."""
        self.learn_date: Callable[[datetime, float], None] = lambda _date, _round_trip: None
        """Called with the date of each answer and the seconds between request and answer.

        Do not set it for a client that reaches pods through the API server's proxy: a pod may send
        any date.
        """
        self._last_date = ""
        self._meter = RequestMeter(server.netloc)

    @classmethod
    async def connect(
        cls, *, kubeconfig: Path | None, user_agent: str, context: str | None = None
    ) -> Self:
        """Create a client from a kubeconfig; without one, from the ServiceAccount of the pod.

        `context` is the name of a context in the kubeconfig; None for its current context.
        """
        return cls(
            await rest_config.load(kubeconfig=kubeconfig, context=context), user_agent=user_agent
        )

    async def close(self) -> None:
        await self._foreign.close()
        await self._session.close()  # also closes the connector that both sessions share

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | Operations | None = None,
        headers: Mapping[str, str] | None = None,
        max_size: int | None = None,
    ) -> bytes:
        """Send one request with additional `headers`, and return the body of the answer.

        `max_size` is given for a request to another server through the API server's proxy. The
        answer may then have at most that many bytes, and `headers` (the server's token) that it
        repeats are masked.

        Raises:
            RaybusError: The request was refused, or there was no answer.
        """
        headers, data = headers or {}, None if body is None else msgspec.json.encode(body)

        async def send(identity: Identity) -> bytes:
            is_large = data is not None and len(data) > LARGE_BODY
            body = BytesIO(data) if data is not None and is_large else data
            sending = await self._prepare_request(
                identity,
                method,
                path,
                query or {},
                headers,
                max_size,
                data=body,
                timeout=REQUEST_TIMEOUT,
            )
            with self._exchange(method, path, data) as take:
                async with sending as answer:
                    await take(answer, headers, max_size)
                    return await _read(answer, headers, max_size)

        content = await self._send_authenticated(send, is_foreign=max_size is not None)
        self._meter.read(method, content)
        return content

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        max_size: int | None = None,
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        """Open a long answer, such as a watch, as a stream that is closed at the end of the block.

        `max_size` is given for a request to another server through the API server's proxy. A
        refusal may then have at most that many bytes, and `headers` that it repeats are masked. The
        answer is not decompressed.
        """
        headers = headers or {}

        @asynccontextmanager
        async def opened(identity: Identity) -> AsyncGenerator[aiohttp.StreamReader]:
            sending = await self._prepare_request(
                identity, "GET", path, query, headers, max_size, timeout=STREAM_TIMEOUT
            )
            with self._exchange("GET", path, None) as take:
                async with sending as answer:
                    await take(answer, headers, max_size)
                    yield answer.content

        async with AsyncExitStack() as stack:
            yield await self._send_authenticated(
                lambda identity: stack.enter_async_context(opened(identity)),
                is_foreign=max_size is not None,
            )

    async def _send_authenticated(
        self, send: Callable[[Identity], Awaitable[Result]], *, is_foreign: bool
    ) -> Result:
        """Send a request, and repeat it once with new credentials after a 401.

        With `is_foreign`, the 401 may concern a token for the server behind the API server's proxy,
        so nothing is renewed.
        """
        identity = await self._credentials.get_identity()
        try:
            return await send(identity)
        except errors.Unauthorized:
            if is_foreign or not await self._credentials.renew(identity):
                raise
        return await send(await self._credentials.get_identity())

    async def _prepare_request(
        self,
        identity: Identity,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        max_size: int | None,
        **more: Any,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Authorize and prepare a request.

        Redirects are not followed, because they would receive our credentials too.
        """
        if self._authorize is not None:
            await self._authorize(method, path, query)
        session, plain = (
            (self._session, {}) if max_size is None else (self._foreign, untrusted.IDENTITY)
        )
        if method != "GET":
            self.may_write()  # called last, because everything before may take seconds
        sent_headers = {
            "Accept": JSON,
            "Content-Type": JSON,
            "User-Agent": self._user_agent,
            **plain,
            **headers,
        }
        options: dict[str, Any] = {
            "params": dict(query),
            "headers": [*sent_headers.items(), *identity.headers],
            "allow_redirects": False,
            **more,
        }
        # Connections are pooled by TLS context, so a new certificate is used at once.
        options |= {"ssl": identity.tls or True}
        options |= {"proxy": self._proxy, "server_hostname": self._server_name}
        return session.request(method, URL(self.server + path, encoded=True), **options)

    @contextmanager
    def _exchange(self, method: str, path: str, data: bytes | None) -> Generator[TakeAnswer]:
        """Trace and measure a request; yield the function that checks its answer.

        If the server refused the request, the yielded function raises the matching error. If there
        is no answer, or the connection breaks, the `with` block raises `Unavailable`.
        """
        is_answered, now = False, asyncio.get_running_loop().time
        began, sent_at = now(), steady()

        async def take(
            answer: aiohttp.ClientResponse, headers: Mapping[str, str], max_size: int | None
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
                    await _read(answer, headers, max_size),
                )
                wait = float(after) if after.isdecimal() and len(after) < 6 else None
                raise answers.make_error(
                    answer.status, body, retry_after=wait, is_foreign=max_size is not None
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
    answer: aiohttp.ClientResponse, headers: Mapping[str, str], max_size: int | None
) -> bytes:
    """Return the body of an answer.

    `max_size` is given for a server that is not the API server. It limits the body to that many
    bytes. Values of the request's `headers`, such as tokens, that the body repeats are masked.
    """
    if max_size is None:
        return await answer.read()
    body = await untrusted.read(answer.headers, answer.content.iter_any(), most=max_size)
    for value in headers.values():
        body = untrusted.without(body, value.rpartition(" ")[2])
    return body
