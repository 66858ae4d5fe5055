"""Serves the page to many users: its files to everybody, data and actions only to an authenticated user, with this user's rights.

The credentials of the request are those of this program, so this check is the only one of the user's rights.

Each request for data or an action needs a header that only the page's own script sends: a browser sends it to another site only if that
site allows it, and this one allows it to none. So the cookie of a proxy alone does not let another site act, or read.
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
from raybus_cli.dashboard import board, responses
from raybus_cli.dashboard.board import Feed
from raybus_cli.dashboard.incluster import attributes
from raybus_cli.dashboard.incluster.attributes import Attributes
from raybus_cli.dashboard.incluster.authentication import Authentication
from raybus_cli.dashboard.incluster.connections import HANDSHAKE_SECONDS, IDLE_SECONDS, Connections
from raybus_cli.dashboard.incluster.identity import Identity, Refused, Unauthenticated
from raybus_cli.dashboard.incluster.places import Places
from raybus_cli.dashboard.incluster.sessions import Sessions
from raybus_cli.dashboard.polling import Connect
from raybus_cli.dashboard.responses import (
    ACTIONS,
    EVENT_STREAM,
    EVENTS,
    HEADERS,
    KEY,
    KEY_EXPECTED,
    LARGEST,
    LOGS,
    Actor,
    Request,
    plain,
)
from raybus_cli.session import USER_AGENT


class Rights(Protocol):
    """The rights of users."""

    async def require(self, identity: Identity, wanted: Attributes) -> None:
        """Return if the user has a right; raise if not."""
        ...


def client_of(config: RestConfig, identity: Identity, rights: Rights) -> KubeClient:
    """Return the client of a user."""

    async def authorize(method: str, path: str, query: Mapping[str, str]) -> None:
        await rights.require(identity, attributes.parse(method, path, query))

    return KubeClient(config, user_agent=USER_AGENT, authorize=authorize)


log = structlog.get_logger()

OWN: Final = "X-Raybus-Dashboard"
"""The header of the page's own requests."""
STREAM_SECONDS: Final = 300.0
"""After which a page has to authenticate anew."""
BODY_SECONDS: Final = 5.0
FAREWELL_SECONDS: Final = 1.0
STREAMS: Final = (8, 256)
"""Of a user, and of all."""
REQUESTS: Final = (4, 64)
"""Actions and logs at once."""
STRICT_TRANSPORT: Final = {"Strict-Transport-Security": "max-age=31536000"}
"""For a year, and for this name alone: other names of the domain may serve without TLS."""
SWITCH_SECONDS: Final = 0.0005
"""A tenth of Python's default: an answer takes tens of turns beside threads that compute."""
STATUSES: Final = (
    (Unauthenticated, 401),
    (Refused, 403),
    (errors.Forbidden, 403),
    (errors.InvalidSpec, 400),
    (errors.Rejected, 404),
    (errors.NotFound, 404),
    (errors.Throttled, 429),
)
AGAIN: Final = {"Retry-After": "5"}
_IDENTITY: Final = web.RequestKey("identity", Identity)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """Why a stream ends."""

    problem: str


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What the answers need."""

    authentication: Authentication
    rights: Rights
    sessions: Sessions
    connect: Callable[[Identity], Connect]
    allows_actions: bool
    namespace: str | None
    """The namespace of a page that names none; None means all."""


@contextlib.asynccontextmanager
async def serving(
    listening: socket.socket, tls: ssl.SSLContext | None, service: Service
) -> AsyncGenerator[str]:
    """Serve for the length of a block; yield the address."""
    connections = Connections()
    async with _quick_switches(), asyncio.TaskGroup() as group:
        pages = _Pages(service, group)
        guard = _Guard(service)
        app = web.Application(middlewares=[connections.note, guard.check], client_max_size=LARGEST)
        responses.add_files(app)
        app.router.add_get(EVENTS, pages.events, allow_head=False)
        app.router.add_post(ACTIONS, pages.act)
        app.router.add_get(LOGS, pages.logs, allow_head=False)
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
            lambda: connections.protocol(inner()),
            sock=listening,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
        )
        expiring = group.create_task(service.sessions.expire())
        try:
            host, port = listening.getsockname()[:2]
            yield f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}/"
        finally:
            server.close()
            pages.end()
            service.sessions.end()
            await runner.cleanup()
            expiring.cancel()


def strict_transport(request: web.BaseRequest) -> dict[str, str]:
    """Return the header that keeps a browser from opening the page without TLS from now on.

    It needs a browser that came by TLS, to this server or to a proxy that says so, for a browser
    ignores it otherwise. A forwarded port gets none: it would hold for all ports of `localhost`.
    """
    forwarded = request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    name = request.host.partition(":")[0].rstrip(".").lower()
    is_local = name == "localhost" or name.endswith(".localhost")
    is_secure = request.secure or forwarded == "https"
    return STRICT_TRANSPORT if is_secure and not is_local else {}


@contextlib.asynccontextmanager
async def _quick_switches() -> AsyncGenerator[None]:
    """Let threads hand over the interpreter sooner, for the event loop waits for it at each turn."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class _Guard:
    """Authenticates requests, and turns errors into answers."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through, or answer with the reason; each answer carries the policy of the page."""
        try:
            response = await self._answer(request, handler)
        except (Unauthenticated, Refused, errors.RaybusError) as problem:
            response = self._refusal(request, problem)
        except web.HTTPException as problem:
            response = plain(problem.status, problem.reason)
        except ConnectionError:  # the client has left
            raise
        except Exception as problem:
            log.exception("a request failed", path=request.path, error=str(problem))
            response = plain(500, "an error of the dashboard; its log has the cause")
        if not response.prepared:
            response.headers.update(HEADERS | strict_transport(request))
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in responses.FILES:
            return await handler(request)
        if (
            request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
            or OWN not in request.headers
        ):
            return plain(
                403,
                f"requests of other sites are rejected: the header {OWN} is missing, or the site is another one",
            )
        request[_IDENTITY] = await self._service.authentication.authenticate(request.headers)
        return await handler(request)

    def _refusal(self, request: web.Request, problem: Exception) -> web.Response:
        """Return the answer that stands for a problem."""
        status = next((status for kind, status in STATUSES if isinstance(problem, kind)), None)
        if status is None:
            log.warning("a request could not be answered", path=request.path, error=str(problem))
            return plain(503, "the API server cannot be read just now", **AGAIN)
        if status == 401 and self._service.authentication.tokens is not None:
            return plain(status, str(problem), **{"WWW-Authenticate": "Bearer"})
        return plain(status, str(problem), **(AGAIN if status == 429 else {}))


class _Pages:
    """Answers."""

    def __init__(self, service: Service, group: asyncio.TaskGroup) -> None:
        self._service = service
        self._group = group
        self._streams = Places("pages", each=STREAMS[0], total=STREAMS[1])
        self._requests = Places("requests", each=REQUESTS[0], total=REQUESTS[1])
        self._end = asyncio.Event()

    def end(self) -> None:
        """End all streams."""
        self._end.set()

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send the state of a namespace and its changes, as long as the user may list its RayServices."""
        service, identity = self._service, request[_IDENTITY]
        namespace, chosen = (
            request.query.get("namespace") or service.namespace,
            request.query.get("service"),
        )
        if chosen is not None and not KEY.fullmatch(chosen):
            return plain(400, KEY_EXPECTED)
        lists = attributes.parse("GET", RAY_SERVICE.path(namespace))
        await service.rights.require(identity, lists)
        response = web.StreamResponse(headers=EVENT_STREAM | strict_transport(request))
        with (
            self._streams.taken(identity.user),
            service.sessions.page(self._group, (identity, namespace), chosen) as session,
            contextlib.suppress(ConnectionError),
        ):
            await response.prepare(request)
            until = asyncio.get_running_loop().time() + STREAM_SECONDS

            async def check() -> bool:
                if await service.authentication.authenticate(request.headers) != identity:
                    raise Unauthenticated("sign in again")
                await service.rights.require(identity, lists)
                return chosen is None or await self._may_read(identity, chosen)

            def is_over() -> bool:
                return (
                    self._end.is_set()
                    or session.has_ended
                    or asyncio.get_running_loop().time() > until
                )

            try:
                await responses.send(
                    response, session.board, Feed(session.board, chosen), is_over, check
                )
            except (Unauthenticated, Refused, errors.RaybusError) as problem:
                await response.write(board.event("ended", Ended(problem=str(problem))))
        return response

    async def act(self, request: web.Request) -> web.Response:
        """Perform a verb with the user's rights and answer with its effect, or with the reason why it was not performed."""
        identity = request[_IDENTITY]
        if not self._service.allows_actions:
            return plain(403, "this dashboard is read-only: --allow-actions is not set")
        if request.content_type != "application/json":
            return plain(415, "Content-Type: expected application/json")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                asked = msgspec.json.decode(await request.read(), type=Request)
        except TimeoutError:
            return plain(408, "the request was not complete in time")
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            return plain(400, str(problem))
        if not KEY.fullmatch(asked.service):
            return plain(400, KEY_EXPECTED)
        with self._requests.taken(identity.user):
            actor = Actor(self._service.connect(identity))
            try:
                answer = await actor.perform(asked)
            finally:
                await actor.close()
        # The API server's audit log has this program as the user; this line names the real user.
        log.info(
            "action",
            user=identity.user,
            verb=asked.verb,
            service=asked.service,
            status=int(answer.status),
        )
        self._service.sessions.request_read(asked.service)
        return plain(answer.status, answer.text)

    async def logs(self, request: web.Request) -> web.Response:
        """Answer with the end of a log that the user may read."""
        identity = request[_IDENTITY]
        with self._requests.taken(identity.user):
            return await responses.answer(self._service.connect(identity), request)

    async def _may_read(self, identity: Identity, key: str) -> bool:
        namespace, _, name = key.partition("/")
        try:
            await self._service.rights.require(
                identity, attributes.parse("GET", RAY_SERVICE.path(namespace, name))
            )
        except errors.Forbidden:
            return False
        return True
