"""Serves the dashboard page on the user's machine: files, events, and if enabled, actions and logs.

Other web sites have no access: the Host header reveals DNS rebinding, and the browser's origin
headers reveal requests from other sites. Actions and logs require a token that is generated at each
start, because other users of the machine can also reach the port.
"""

import asyncio
import contextlib
import errno
import secrets
import socket
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from common import errors
from raybus_cli import session
from raybus_dashboard import responses
from raybus_dashboard.board import Board, PageFeed
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

HOST: Final = "127.0.0.1"
NAMES: Final = (HOST, "localhost")
"""Accepted names in the Host header."""
FAREWELL_SECONDS: Final = 1.0


def listen(port: int) -> socket.socket:
    """Listen on a loopback port; 0 takes any free port.

    Raises `Terminal` if the port cannot be used.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as problem:
        listener.close()
        why = (
            "is taken"
            if problem.errno == errno.EADDRINUSE
            else f"cannot be used ({problem.strerror})"
        )
        raise errors.Terminal(
            f"port {port} of {HOST} {why}: is another dashboard open? --port names another, "
            "--port 0 takes any free one"
        ) from problem
    return listener


@contextlib.asynccontextmanager
async def serve(
    listening: socket.socket,
    board: Board,
    actor: Actor | None = None,
    reads_logs: Connect | None = None,
) -> AsyncGenerator[str]:
    """Serve the page within a `with` block; yield its address.

    `actor` enables actions and `reads_logs` enables logs; with either, the address has a token.
    """
    port = int(listening.getsockname()[1])
    token = None if actor is None and reads_logs is None else secrets.token_urlsafe(32)
    guard = _Guard(port, token)
    app = web.Application(middlewares=[guard.check], client_max_size=MAX_BODY_SIZE)
    pages = _Pages(board, actor, reads_logs)
    responses.add_files(app, responses.LOCAL_FILES)
    app.router.add_get(EVENTS, pages.stream_events, allow_head=False)
    if actor is not None:
        app.router.add_post(ACTIONS, pages.perform_action)
    if reads_logs is not None:
        app.router.add_get(LOGS, pages.send_log, allow_head=False)
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=FAREWELL_SECONDS
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield f"http://{HOST}:{port}/" + (f"?token={token}" if token else "")
    finally:
        pages.end()
        await runner.cleanup()


class _Guard:
    """Rejects requests that do not come from the page or its user."""

    def __init__(self, port: int, token: str | None) -> None:
        self._token = token
        self._hosts = {f"{name}:{port}" for name in NAMES}
        self._origins = {"same-origin", "none"}

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request, or respond with the reason of its refusal.

        All responses carry the security headers.
        """
        response = self._check_request(request)
        if response is None:
            try:
                response = await handler(request)
            except web.HTTPException as problem:
                response = build_text_response(problem.status, problem.reason)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _check_request(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Host", "").lower() not in self._hosts:
            return build_text_response(
                421, f"the address of this page is http://{min(self._hosts)}/"
            )
        if (
            request.headers.get("Sec-Fetch-Site", "none") not in self._origins
            and request.path != "/"
        ):
            return build_text_response(403, "requests of other sites are rejected")
        if self._token is not None and request.path in {ACTIONS, LOGS}:
            return self._check_token(request, self._token)
        return (
            None
            if request.method == "GET"
            else build_text_response(405, "only GET is supported", Allow="GET")
        )

    def _check_token(self, request: web.Request, token: str) -> web.Response | None:
        """Return the refusal of a request without the token, or of an action from another site.

        The result is None for a valid request.
        """
        given = request.headers.get("Authorization", "").encode(
            errors="surrogateescape"
        )  # a header may hold any bytes
        if not secrets.compare_digest(given, f"Bearer {token}".encode()):
            return build_text_response(
                401,
                "the token is missing or wrong: open the address that 'raybus dashboard' printed",
            )
        if request.method == "GET":
            return None
        origin = request.headers.get("Origin", "")
        if (
            origin.removeprefix("http://").lower() not in self._hosts
            or request.content_type != "application/json"
        ):
            return build_text_response(403, "actions are accepted from this page alone")
        return None


class _Pages:
    def __init__(self, board: Board, actor: Actor | None, reads_logs: Connect | None) -> None:
        self._board = board
        self._actor = actor
        self._reads_logs = reads_logs
        self._end = asyncio.Event()

    def end(self) -> None:
        self._end.set()

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        """Stream the state and its changes, until the page closes or the server ends."""
        chosen = request.query.get("service")
        if chosen is not None and not KEY.fullmatch(chosen):
            return build_text_response(400, KEY_EXPECTED)
        response = web.StreamResponse(headers=EVENT_STREAM)
        await response.prepare(request)
        with self._board.count_page(chosen), contextlib.suppress(ConnectionError):
            await responses.send(
                response,
                self._board,
                PageFeed(self._board, chosen),
                self._end.is_set,
                _show_all,
            )
        return response

    async def perform_action(self, request: web.Request) -> web.Response:
        """Perform an action; respond with its effect, or why it failed."""
        try:
            asked = msgspec.json.decode(await request.read(), type=ActionRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            return build_text_response(400, str(problem))
        if self._actor is None or not KEY.fullmatch(asked.service):
            return build_text_response(400, KEY_EXPECTED)
        answer = await self._actor.perform(asked)
        self._board.request_read(asked.service)
        return build_text_response(answer.status, answer.text)

    async def send_log(self, request: web.Request) -> web.Response:
        """Respond with the end of a log, or why it cannot be read."""
        if self._reads_logs is None:
            return build_text_response(404, "this dashboard shows no logs: --logs is not set")
        try:
            return await responses.answer(self._reads_logs, request)
        except errors.RaybusError as problem:
            return build_text_response(422, session.format_error(problem))


async def _show_all() -> bool:
    return True
