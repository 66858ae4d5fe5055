"""What the page's servers have in common: the files of the page, the headers of each answer, the stream of events, the end of a log, the verbs.

Verbs are performed with the rights of the page's user, by the writes of the command line.

The page may load nothing but itself, and turn no text into markup or script.
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
from raybus_cli.control.actions import Action
from raybus_cli.dashboard.board import BEAT, Board, Feed
from raybus_cli.dashboard.model import ANNOTATING, UNDO, VERBS
from raybus_cli.dashboard.polling import Connect, Connection
from raybus_cli.logs import finding, reading
from raybus_cli.logs.reading import Tail
from raybus_cli.logs.selection import Choice, Extent
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import Target

FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/stream.js": ("stream.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/server.js": ("server.js", "text/javascript"),
}
LOCAL_FILES: Final = {**FILES, "/server.js": ("server_local.js", "text/javascript")}
"""The files of the server on the user's machine, which takes a token from the page's address."""
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
EVENT_STREAM: Final = {**HEADERS, "Content-Type": "text/event-stream"}
KEY: Final = re2.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""NAMESPACE/RAYSERVICE."""
KEY_EXPECTED: Final = "service: expected NAMESPACE/RAYSERVICE, such as default/chat"
EVENTS: Final = "/events"
ACTIONS: Final = "/actions"
LOGS: Final = "/logs"
LARGEST: Final = 4096
"""Bytes of a request."""
BEAT_SECONDS: Final = 5.0
LULL: Final = 0.2
"""Seconds between two batches of changes, so that a page is not flooded."""
Check = Callable[[], Awaitable[bool]]
"""Returns whether the selected RayService may be shown; raises what ends the stream."""


def plain(status: int, text: str, **headers: str) -> web.Response:
    """Return an answer of one line."""
    return web.Response(status=status, text=f"{text}\n", headers=headers)


def add_files(app: web.Application, files: Mapping[str, tuple[str, str]] = FILES) -> None:
    """Serve the files of the page."""

    async def file(request: web.Request) -> web.Response:
        name, kind = files[request.path]
        body = resources.files("raybus_cli.dashboard").joinpath("page", name).read_bytes()
        return web.Response(body=body, content_type=kind, charset="utf-8")

    for path in files:
        app.router.add_get(path, file, allow_head=False)


async def send(
    response: web.StreamResponse,
    board: Board,
    feed: Feed,
    is_over: Callable[[], bool],
    check: Check,
) -> None:
    """Send the state and its changes until it is over; each time the check comes first."""
    version = -1
    while not is_over():
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                version = await board.changed_since(version)
        except TimeoutError:
            await response.write(BEAT)
        has_detail = await check()
        if changes := feed.changes(has_detail=has_detail):
            await response.write(changes)
        await asyncio.sleep(LULL)


_NAME: Final = re2.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A log: that of a pod, by default of the head, of a cluster, by default of the active one, of a RayService."""

    service: str = ""
    """NAMESPACE/RAYSERVICE."""
    cluster: str | None = None
    pod: str | None = None


async def answer(connect: Connect, request: web.Request) -> web.Response:
    """Answer a request with the end of the log that its query names."""
    given = request.query
    wanted = Wanted(
        service=given.get("service", ""), cluster=given.get("cluster"), pod=given.get("pod")
    )
    body = msgspec.json.encode(await read(connect, wanted))
    return web.Response(body=body, content_type="application/json")


async def read(connect: Connect, wanted: Wanted) -> Tail:
    """Return the end of a log; raise `InvalidSpec` for a name that is none, `Rejected` when there is no such log."""
    if not KEY.fullmatch(wanted.service):
        raise errors.InvalidSpec(KEY_EXPECTED)
    for field, name in (("cluster", wanted.cluster), ("pod", wanted.pod)):
        if name is not None and not _NAME.fullmatch(name):
            raise errors.InvalidSpec(f"{field}: expected a name")
    namespace, _, name = wanted.service.partition("/")
    choice = Choice(cluster=wanted.cluster, pod=wanted.pod)
    target, extent = Target(kinds.SERVICE, name), Extent(tail=reading.LINES)
    kube = await connect()
    try:
        found = await finding.find(kube, namespace, target, choice, extent, report=_ignore)
        return await reading.read(kube, found.logs[0])
    finally:
        await kube.close()


def _ignore(_text: str) -> None:
    """Leave out what the choice was: the answer names the pod."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page asks for."""

    service: str
    """NAMESPACE/RAYSERVICE."""
    verb: str
    generation: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, in one sentence."""

    status: HTTPStatus
    text: str


class _Outdated(errors.Rejected):
    """The RayService is not as the user saw it any more."""


class Actor:
    """Performs verbs."""

    def __init__(self, connect: Connect) -> None:
        self._connection = Connection(connect)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def perform(self, asked: Request) -> Answer:
        """Perform a verb, if the RayService that it is decided about is unchanged since the user saw it."""
        namespace, _, name = asked.service.partition("/")
        if asked.verb not in VERBS:
            return Answer(
                status=HTTPStatus.BAD_REQUEST, text=f"verb: expected one of {', '.join(VERBS)}"
            )

        def expect_unchanged(service: RayService) -> None:
            if service.metadata.generation != asked.generation:
                raise _Outdated(
                    f"{name} was changed meanwhile: see its present state, then decide again"
                )

        def decide(service: RayService) -> Action:
            expect_unchanged(service)
            return ANNOTATING[asked.verb](service)

        if asked.verb == UNDO:
            write = performing.restoring(
                None, show=lambda snapshot, _plan: expect_unchanged(snapshot.service)
            )
        else:
            write = performing.by_annotations(decide)
        try:
            done = await write(await self._connection.kube(), namespace, name)
        except _Outdated as problem:
            return Answer(status=HTTPStatus.CONFLICT, text=str(problem))
        except session.Denied as problem:
            return Answer(status=HTTPStatus.FORBIDDEN, text=str(problem))
        except errors.RaybusError as problem:
            return Answer(
                status=HTTPStatus.UNPROCESSABLE_ENTITY, text=self._connection.describe(problem)
            )
        finally:
            await self._connection.renew()
        return Answer(
            status=HTTPStatus.OK,
            text=f"{name} {done.effect}" + (f": {done.note}" if done.note else ""),
        )
