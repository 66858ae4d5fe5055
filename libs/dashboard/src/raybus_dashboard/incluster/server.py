"""Serves the dashboard page to many users.

Its files are public; data and actions require authentication and the user's rights.

Requests to the API server use this program's own credentials, so the SubjectAccessReview before
each of them is the only check of the user's rights.

Requests for data and actions must carry a header that only the page's script sends. A browser sends
such a header to another site only if that site permits it, and this server permits no site. So if a
proxy identifies users by a cookie, another site cannot use that cookie to read data or to perform
actions.
"""

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, Protocol

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE
from common.kube.rest_config import RestConfig
from raybus_cli.session import USER_AGENT
from raybus_dashboard import board, responses
from raybus_dashboard.board import PageFeed
from raybus_dashboard.incluster import attributes
from raybus_dashboard.incluster.attributes import Attributes
from raybus_dashboard.incluster.authentication import Authentication
from raybus_dashboard.incluster.connections import HANDSHAKE_SECONDS, IDLE_SECONDS, Connections
from raybus_dashboard.incluster.identity import InvalidCredentials, Refused, UserIdentity
from raybus_dashboard.incluster.places import UserLimit
from raybus_dashboard.incluster.sessions import BoardSessions
from raybus_dashboard.polling import Connect
from raybus_dashboard.responses import (
    ACTIONS,
    EVENT_STREAM,
    EVENTS,
    HEADERS,
    KEY,
    KEY_EXPECTED,
    LOGS,
    MAX_BODY_SIZE,
    ActionRequest,
    Actor,
    build_text_response,
)


class Rights(Protocol):
    """Checks the rights of users."""

    async def require(self, identity: UserIdentity, wanted: Attributes) -> None:
        """Return if the user has the right `wanted`; otherwise raise an error."""
        ...


def create_client(config: RestConfig, identity: UserIdentity, rights: Rights) -> KubeClient:
    """Create a client that checks the user's rights before each request."""

    async def authorize(method: str, path: str, query: Mapping[str, str]) -> None:
        await rights.require(identity, attributes.parse(method, path, query))

    return KubeClient(config, user_agent=USER_AGENT, authorize=authorize)


log = structlog.get_logger()

OWN: Final = "X-Raybus-Dashboard"
"""The header that the page's script sends."""
STREAM_SECONDS: Final = 300.0
"""Maximum length of an event stream; the page then has to authenticate again."""
BODY_SECONDS: Final = 5.0
FAREWELL_SECONDS: Final = 1.0
STREAMS: Final = (8, 256)
"""Maximum number of event streams per user, and in total."""
REQUESTS: Final = (4, 64)
"""Maximum number of concurrent actions and logs per user, and in total."""
STRICT_TRANSPORT: Final = {"Strict-Transport-Security": "max-age=31536000"}
"""HSTS header, valid for one year.

It applies to this host name only, because other names of the domain may serve without TLS.
"""
SWITCH_SECONDS: Final = 0.0005
"""Interval in seconds at which Python switches threads: a tenth of the default.

The event loop waits for running threads many times while it answers a request.
"""
STATUSES: Final = (
    (InvalidCredentials, 401),
    (Refused, 403),
    (errors.Forbidden, 403),
    (errors.InvalidSpec, 400),
    (errors.Rejected, 404),
    (errors.NotFound, 404),
    (errors.Throttled, 429),
)
AGAIN: Final = {"Retry-After": "5"}
_IDENTITY: Final = web.RequestKey("identity", UserIdentity)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The last event of a stream: why it ends."""

    problem: str


class HandlerDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of the request handlers."""

    authentication: Authentication
    rights: Rights
    sessions: BoardSessions
    connect: Callable[[UserIdentity], Connect]
    allows_actions: bool
    namespace: str | None
    """Default namespace of a page; None shows all namespaces."""


@contextlib.asynccontextmanager
async def serve(
    listening: socket.socket, tls: ssl.SSLContext | None, service: HandlerDependencies
) -> AsyncGenerator[str]:
    """Serve the page within a `with` block; yield its address."""
    connections = Connections()
    async with _switch_threads_quickly(), asyncio.TaskGroup() as group:
        pages = _Pages(service, group)
        guard = _Guard(service)
        app = web.Application(
            middlewares=[connections.note, guard.check], client_max_size=MAX_BODY_SIZE
        )
        responses.add_files(app)
        app.router.add_get(EVENTS, pages.stream_events, allow_head=False)
        app.router.add_post(ACTIONS, pages.perform_action)
        app.router.add_get(LOGS, pages.send_log, allow_head=False)
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            shutdown_timeout=FAREWELL_SECONDS,
        )
        await runner.setup()
        inner = runner.server
        if inner is None:
            raise errors.Invariant("the server was not set up")
        server = await asyncio.get_running_loop().create_server(
            lambda: connections.wrap_protocol(inner()),
            sock=listening,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
        )
        expiring = group.create_task(service.sessions.expire())
        try:
            host, port = listening.getsockname()[:2]
            scheme = "http" if tls is None else "https"
            yield f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
        finally:
            server.close()
            pages.end()
            service.sessions.end()
            await runner.cleanup()
            expiring.cancel()


def build_hsts_header(request: web.BaseRequest) -> dict[str, str]:
    """Return the HSTS header, by which a browser refuses to open the page without TLS from now on.

    Browsers ignore the header on a connection without TLS, so it is sent only if the request came
    by TLS, to this server or to a proxy that reports it. A forwarded port gets no header, because
    it would apply to all ports of `localhost`.
    """
    forwarded = request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    name = request.host.partition(":")[0].rstrip(".").lower()
    is_local = name == "localhost" or name.endswith(".localhost")
    is_secure = request.secure or forwarded == "https"
    return STRICT_TRANSPORT if is_secure and not is_local else {}


@contextlib.asynccontextmanager
async def _switch_threads_quickly() -> AsyncGenerator[None]:
    """Let threads release the interpreter lock sooner; the event loop often waits for it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class _Guard:
    """Authenticates requests, and converts errors to responses."""

    def __init__(self, service: HandlerDependencies) -> None:
        self._service = service

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request, or respond with the reason of its refusal.

        All responses carry the security headers.
        """
        try:
            response = await self._answer(request, handler)
        except (InvalidCredentials, Refused, errors.RaybusError) as problem:
            response = self._build_refusal(request, problem)
        except web.HTTPException as problem:
            response = build_text_response(problem.status, problem.reason)
        except ConnectionError:  # the client has disconnected
            raise
        except Exception as problem:
            log.exception("a request failed", path=request.path, error=str(problem))
            response = build_text_response(500, "an error of the dashboard; its log has the cause")
        if not response.prepared:
            response.headers.update(HEADERS | build_hsts_header(request))
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in responses.FILES:
            return await handler(request)
        if (
            request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
            or OWN not in request.headers
        ):
            return build_text_response(
                403,
                f"requests of other sites are rejected: the header {OWN} is missing, or the site "
                "is another one",
            )
        request[_IDENTITY] = await self._service.authentication.authenticate(request.headers)
        return await handler(request)

    def _build_refusal(self, request: web.Request, problem: Exception) -> web.Response:
        status = next((status for kind, status in STATUSES if isinstance(problem, kind)), None)
        if status is None:
            log.warning("cannot answer a request", path=request.path, error=str(problem))
            return build_text_response(503, "the API server cannot be read just now", **AGAIN)
        if status == 401 and self._service.authentication.tokens is not None:
            return build_text_response(status, str(problem), **{"WWW-Authenticate": "Bearer"})
        return build_text_response(status, str(problem), **(AGAIN if status == 429 else {}))


class _Pages:
    def __init__(self, service: HandlerDependencies, group: asyncio.TaskGroup) -> None:
        self._service = service
        self._group = group
        self._streams = UserLimit("pages", max_per_user=STREAMS[0], max_total=STREAMS[1])
        self._requests = UserLimit("requests", max_per_user=REQUESTS[0], max_total=REQUESTS[1])
        self._end = asyncio.Event()

    def end(self) -> None:
        self._end.set()

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        """Stream the state of a namespace and its changes.

        The stream ends when the user may no longer list the RayServices of the namespace.
        """
        service, identity = self._service, request[_IDENTITY]
        namespace, chosen = (
            request.query.get("namespace") or service.namespace,
            request.query.get("service"),
        )
        if chosen is not None and not KEY.fullmatch(chosen):
            return build_text_response(400, KEY_EXPECTED)
        lists = attributes.parse("GET", RAY_SERVICE.path(namespace))
        await service.rights.require(identity, lists)
        response = web.StreamResponse(headers=EVENT_STREAM | build_hsts_header(request))
        with (
            self._streams.occupy(identity.user),
            service.sessions.open_page(self._group, (identity, namespace), chosen) as session,
            contextlib.suppress(ConnectionError),
        ):
            await response.prepare(request)
            until = asyncio.get_running_loop().time() + STREAM_SECONDS

            async def check() -> bool:
                if await service.authentication.authenticate(request.headers) != identity:
                    raise InvalidCredentials("sign in again")
                await service.rights.require(identity, lists)
                return chosen is None or await self._is_readable(identity, chosen)

            def is_over() -> bool:
                return (
                    self._end.is_set()
                    or session.has_ended
                    or asyncio.get_running_loop().time() > until
                )

            try:
                await responses.send(
                    response, session.board, PageFeed(session.board, chosen), is_over, check
                )
            except (InvalidCredentials, Refused, errors.RaybusError) as problem:
                await response.write(board.encode_event("ended", Ended(problem=str(problem))))
        return response

    async def perform_action(self, request: web.Request) -> web.Response:
        """Perform an action with the user's rights; respond with its effect, or why it failed."""
        identity = request[_IDENTITY]
        if not self._service.allows_actions:
            return build_text_response(
                403, "this dashboard is read-only: --allow-actions is not set"
            )
        if request.content_type != "application/json":
            return build_text_response(415, "Content-Type: expected application/json")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                asked = msgspec.json.decode(await request.read(), type=ActionRequest)
        except TimeoutError:
            return build_text_response(408, "the request was not complete in time")
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            return build_text_response(400, str(problem))
        if not KEY.fullmatch(asked.service):
            return build_text_response(400, KEY_EXPECTED)
        with self._requests.occupy(identity.user):
            actor = Actor(self._service.connect(identity))
            try:
                answer = await actor.perform(asked)
            finally:
                await actor.close()
        # The API server's audit log has this program as the user, so this line records the real
        # user.
        log.info(
            "action",
            user=identity.user,
            verb=asked.verb,
            service=asked.service,
            status=int(answer.status),
        )
        self._service.sessions.request_read(asked.service)
        return build_text_response(answer.status, answer.text)

    async def send_log(self, request: web.Request) -> web.Response:
        """Respond with the end of a log that the user may read."""
        identity = request[_IDENTITY]
        with self._requests.occupy(identity.user):
            return await responses.answer(self._service.connect(identity), request)

    async def _is_readable(self, identity: UserIdentity, key: str) -> bool:
        namespace, _, name = key.partition("/")
        try:
            await self._service.rights.require(
                identity, attributes.parse("GET", RAY_SERVICE.path(namespace, name))
            )
        except errors.Forbidden:
            return False
        return True
