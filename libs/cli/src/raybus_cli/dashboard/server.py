"""Serves the page on this machine: five files and one stream of events, to GET; with controls, verbs to POST.

Pages of other sites get nothing: a name that leads here by DNS rebinding is rejected by the Host header, another site's request by
the browser's origin headers. The page may load nothing but itself, and turn no text into markup or script.
"""

import asyncio
import contextlib
import errno
import re
import socket
from collections.abc import AsyncGenerator
from importlib import resources
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from common import errors
from raybus_cli.dashboard.acting import Actor, Request
from raybus_cli.dashboard.board import Board
from raybus_cli.dashboard.feed import BEAT, Feed

HOST: Final = "127.0.0.1"
NAMES: Final = (HOST, "localhost")
"""The names of this host that are accepted."""
FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KEY: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""NAMESPACE/RAYSERVICE."""
ACTIONS: Final = "/actions"
LARGEST: Final = 4096
"""Bytes of a request."""
BEAT_SECONDS: Final = 5.0
LULL: Final = 0.2
"""Seconds between two batches of changes, so that a page is not flooded."""
FAREWELL_SECONDS: Final = 1.0


def listen(port: int) -> socket.socket:
    """Return a socket of this machine alone; 0 takes any free port. Raise `Terminal` when it is in use."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen()
    except OSError as problem:
        found.close()
        why = "is taken" if problem.errno == errno.EADDRINUSE else f"cannot be used ({problem.strerror})"
        raise errors.Terminal(
            f"port {port} of {HOST} {why}: is another dashboard open? --port names another, --port 0 takes any free one"
        ) from problem
    return found


@contextlib.asynccontextmanager
async def serving(listening: socket.socket, board: Board, actor: Actor | None = None) -> AsyncGenerator[str]:
    """Serve for the length of a block; yield the page's address, with the token of `actor`, which performs the page's verbs."""
    port = int(listening.getsockname()[1])
    guard = _Guard(port, actor)
    app = web.Application(middlewares=[guard.check], client_max_size=LARGEST)
    pages = _Pages(board, actor)
    for path in FILES:
        app.router.add_get(path, pages.file, allow_head=False)
    app.router.add_get("/events", pages.events, allow_head=False)
    app.router.add_post(ACTIONS, pages.act)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=FAREWELL_SECONDS)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield f"http://{HOST}:{port}/" + (f"?token={actor.token}" if actor else "")
    finally:
        pages.end()
        await runner.cleanup()


class _Guard:
    """Rejects requests that do not come from the page itself or its user."""

    def __init__(self, port: int, actor: Actor | None) -> None:
        self._actor = actor
        self._hosts = {f"{name}:{port}" for name in NAMES}
        self._origins = {"same-origin", "none"}

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through, or answer with the reason; each answer carries the policy of the page."""
        response = self._refusal(request)
        if response is None:
            try:
                response = await handler(request)
            except web.HTTPException as problem:
                response = _plain(problem.status, problem.reason)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Host", "").lower() not in self._hosts:
            return _plain(421, f"the address of this page is http://{min(self._hosts)}/")
        if request.headers.get("Sec-Fetch-Site", "none") not in self._origins and request.path != "/":
            return _plain(403, "requests of other sites are rejected")
        if request.method == "POST" and request.path == ACTIONS and self._actor is not None:
            return self._refused_action(request, self._actor)
        return None if request.method == "GET" else _plain(405, "only GET is supported", Allow="GET")

    def _refused_action(self, request: web.Request, actor: Actor) -> web.Response | None:
        """Reject an action that the page's own script with its token has not sent: a form of another site has neither."""
        if not actor.is_known(request.headers.get("Authorization", "")):
            return _plain(
                401, "the token is missing or wrong: open the address that 'raybus dashboard --controls' printed"
            )
        origin = request.headers.get("Origin", "")
        if origin.removeprefix("http://").lower() not in self._hosts or request.content_type != "application/json":
            return _plain(403, "actions are accepted from this page alone")
        return None


class _Pages:
    """Answers."""

    def __init__(self, board: Board, actor: Actor | None) -> None:
        self._board = board
        self._actor = actor
        self._end = asyncio.Event()

    def end(self) -> None:
        """End all streams."""
        self._end.set()

    async def file(self, request: web.Request) -> web.Response:
        """Answer with a file of the page."""
        name, kind = FILES[request.path]
        body = resources.files("raybus_cli.dashboard").joinpath("page", name).read_bytes()
        return web.Response(body=body, content_type=kind, charset="utf-8")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send the state and its changes, until the page closes or the server ends."""
        chosen = request.query.get("service")
        if chosen is not None and not KEY.fullmatch(chosen):
            return _plain(400, "service: expected NAMESPACE/RAYSERVICE, such as default/chat")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        with self._board.page(chosen), contextlib.suppress(ConnectionError):
            await self._send(response, Feed(self._board, chosen))
        return response

    async def act(self, request: web.Request) -> web.Response:
        """Perform a verb and answer with its effect, or with the reason why it was not performed."""
        try:
            asked = msgspec.json.decode(await request.read(), type=Request)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            return _plain(400, str(problem))
        if self._actor is None or not KEY.fullmatch(asked.service):
            return _plain(400, "service: expected NAMESPACE/RAYSERVICE, such as default/chat")
        answer = await self._actor.perform(asked)
        self._board.request_read(asked.service)
        return _plain(answer.status, answer.text)

    async def _send(self, response: web.StreamResponse, feed: Feed) -> None:
        version = -1
        while not self._end.is_set():
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    version = await self._board.changed_since(version)
            except TimeoutError:
                await response.write(BEAT)
            if changes := feed.changes():
                await response.write(changes)
            await asyncio.sleep(LULL)


def _plain(status: int, text: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
