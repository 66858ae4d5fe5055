"""Shared code of the two dashboard servers: files, security headers, event stream, logs, actions.

Actions are performed with the rights of the page's user, by the same code as the command line. The
Content-Security-Policy lets the page load only its own files, and keeps it from turning text into
markup or script.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from importlib import resources
from typing import Final

import msgspec
import re2
from aiohttp import web

from common import errors
from common.api.ray_service import RayService
from raybus_cli import session
from raybus_cli.control import performing
from raybus_cli.control.actions import ControlAction
from raybus_cli.logs import finding, reading
from raybus_cli.logs.reading import Tail
from raybus_cli.logs.selection import LogChoice, LogExtent
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import NamedTarget
from raybus_dashboard.board import BEAT, Board, PageFeed
from raybus_dashboard.model import ANNOTATING, UNDO, VERBS
from raybus_dashboard.polling import Connect, Connection

FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/stream.js": ("stream.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
    "/jobs.js": ("jobs.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/server.js": ("server.js", "text/javascript"),
}
LOCAL_FILES: Final = {**FILES, "/server.js": ("server_local.js", "text/javascript")}
"""Files of the server on the user's machine; its script takes a token from the page's address."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
    "'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
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
EVENT_STREAM: Final = {**HEADERS, "Content-Type": "text/event-stream"}
KEY: Final = re2.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Matches NAMESPACE/NAME of a RayService."""
KEY_EXPECTED: Final = "service: expected NAMESPACE/RAYSERVICE, such as default/chat"
EVENTS: Final = "/events"
ACTIONS: Final = "/actions"
LOGS: Final = "/logs"
MAX_BODY_SIZE: Final = 4096
"""Maximum bytes of a request body."""
BEAT_SECONDS: Final = 5.0
LULL: Final = 0.2
"""Seconds between two batches of changes, so that a page is not flooded."""
Check = Callable[[], Awaitable[bool]]
"""Function that returns whether the selected RayService may be shown.

It raises an error to end the stream."""


def build_text_response(status: int, text: str, **headers: str) -> web.Response:
    """Build a response with one line of text."""
    return web.Response(status=status, text=f"{text}\n", headers=headers)


def add_files(app: web.Application, files: Mapping[str, tuple[str, str]] = FILES) -> None:
    """Serve the files of the page at their paths."""

    async def send_file(request: web.Request) -> web.Response:
        name, kind = files[request.path]
        body = resources.files("raybus_dashboard").joinpath("page", name).read_bytes()
        return web.Response(body=body, content_type=kind, charset="utf-8")

    for path in files:
        app.router.add_get(path, send_file, allow_head=False)


async def send(
    response: web.StreamResponse,
    board: Board,
    feed: PageFeed,
    is_over: Callable[[], bool],
    check: Check,
) -> None:
    """Stream the board's state and its changes to a page until `is_over` returns True.

    `check` is called before each batch of changes. If it returns False, the selected RayService is
    left out.
    """
    version = -1
    while not is_over():
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                version = await board.wait_for_change(version)
        except TimeoutError:
            await response.write(BEAT)
        has_detail = await check()
        if changes := feed.encode_changes(has_detail=has_detail):
            await response.write(changes)
        await asyncio.sleep(LULL)


_NAME: Final = re2.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The log that a page requests: by default of the head pod of the active cluster."""

    service: str = ""
    """The RayService as NAMESPACE/NAME; empty for none."""
    cluster: str | None = None
    pod: str | None = None


async def answer(connect: Connect, request: web.Request) -> web.Response:
    """Respond with the end of the log that is given in the request's query."""
    given = request.query
    wanted = LogRequest(
        service=given.get("service", ""), cluster=given.get("cluster"), pod=given.get("pod")
    )
    body = msgspec.json.encode(await read(connect, wanted))
    return web.Response(body=body, content_type="application/json")


async def read(connect: Connect, wanted: LogRequest) -> Tail:
    """Read the end of the log that a page requests.

    Raise `InvalidSpec` for an invalid name, `Rejected` if there is no such log.
    """
    if not KEY.fullmatch(wanted.service):
        raise errors.InvalidSpec(KEY_EXPECTED)
    for field, name in (("cluster", wanted.cluster), ("pod", wanted.pod)):
        if name is not None and not _NAME.fullmatch(name):
            raise errors.InvalidSpec(f"{field}: expected a name")
    namespace, _, name = wanted.service.partition("/")
    choice = LogChoice(cluster=wanted.cluster, pod=wanted.pod)
    target, extent = NamedTarget(kinds.SERVICE, name), LogExtent(tail=reading.MAX_TAIL_LINES)
    kube = await connect()
    try:
        found_logs = await finding.find(kube, namespace, target, choice, extent, report=_ignore)
        return await reading.read(kube, found_logs.logs[0])
    finally:
        await kube.close()


def _ignore(_text: str) -> None:
    """Ignore notes about the selection, because the response names the pod."""


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action that the page requests.

    `generation` is that of the RayService that the user saw.
    """

    service: str
    """The RayService as NAMESPACE/NAME."""
    verb: str
    generation: int


class ActionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an action in one sentence."""

    status: HTTPStatus
    text: str


class _Outdated(errors.Rejected):
    """Raised if the RayService changed after the user saw it."""


class Actor:
    """Performs what a user requests on the page, with the client that `connect` creates."""

    def __init__(self, connect: Connect) -> None:
        self._connection = Connection(connect)

    async def close(self) -> None:
        await self._connection.close()

    async def perform(self, asked: ActionRequest) -> ActionResponse:
        """Perform an action and return its result; errors become a result, too.

        The action is refused with 409 if the RayService's generation is not the one that the user
        saw.
        """
        namespace, _, name = asked.service.partition("/")
        if asked.verb not in VERBS:
            return ActionResponse(
                status=HTTPStatus.BAD_REQUEST, text=f"verb: expected one of {', '.join(VERBS)}"
            )

        def expect_unchanged(service: RayService) -> None:
            if service.metadata.generation != asked.generation:
                raise _Outdated(
                    f"{name} was changed meanwhile: see its present state, then decide again"
                )

        def decide(service: RayService) -> ControlAction:
            expect_unchanged(service)
            return ANNOTATING[asked.verb](service)

        if asked.verb == UNDO:
            write = performing.build_restoring_write(
                None, show=lambda snapshot, _plan: expect_unchanged(snapshot.service)
            )
        else:
            write = performing.by_annotations(decide)
        try:
            done = await write(await self._connection.get_client(), namespace, name)
        except _Outdated as problem:
            return ActionResponse(status=HTTPStatus.CONFLICT, text=str(problem))
        except session.AccessDenied as problem:
            return ActionResponse(status=HTTPStatus.FORBIDDEN, text=str(problem))
        except errors.RaybusError as problem:
            return ActionResponse(
                status=HTTPStatus.UNPROCESSABLE_ENTITY, text=self._connection.describe(problem)
            )
        finally:
            await self._connection.renew()
        return ActionResponse(
            status=HTTPStatus.OK,
            text=f"{name} {done.effect}" + (f": {done.note}" if done.note else ""),
        )
