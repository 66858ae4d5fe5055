"""The state that all pages show, and the Server-Sent Events that one page receives.

The poller and the event listener write the board. A page receives the whole state first, then
changes:

sources   the age of the shown state, and the errors of its sources
rows      the changed rows and the names of removed ones; `all` is true in the first event
jobs      all RayJobs and RayCronJobs
detail    the selected RayService
beat      a heartbeat while nothing changes
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from raybus_dashboard.jobs import ShownJobs
from raybus_dashboard.model import Detail, ListedService


class EventFeed(StrEnum):
    """State of the connection to the upgrade events."""

    CONNECTING = "connecting"
    LIVE = "live"
    AWAY = "away"
    OFF = "off"
    """The dashboard has no connection to NATS."""


class PageSources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of the data sources of the dashboard page, time of the last read, and errors."""

    context: str = ""
    namespace: str | None = None
    """The shown namespace; None if all namespaces are shown."""
    problem: str = ""
    """Why the last read of the API server failed; empty if it succeeded."""
    seen_at: datetime | None = None
    """Time of the last successful read."""
    event_feed: EventFeed = EventFeed.CONNECTING
    feed_problem: str = ""
    """Why no upgrade events arrive; empty if they do."""
    has_controls: bool = False
    """Whether the page may control upgrades: pause, promote, undo and so on."""
    has_logs: bool = False
    """Whether the page may show logs."""
    user: str = ""
    """The authenticated user, whose rights apply; empty on a server for a single user."""


class Board:
    """The state that several pages share; a change wakes the pages that wait for it."""

    def __init__(self, sources: PageSources) -> None:
        self.sources = sources
        self.rows: Mapping[str, ListedService] = {}
        self.is_listed = False
        """Whether the list of RayServices was read at least once."""
        self.jobs: ShownJobs | None = None
        """The jobs; None before they were read for the first time."""
        self.details: dict[str, Detail] = {}
        self._wanted: Counter[str] = Counter()
        self._pages = 0
        self._version = 0
        self._changed = asyncio.Event()
        self._requested = {"list": asyncio.Event(), "details": asyncio.Event()}

    @property
    def pages(self) -> int:
        """Number of open pages."""
        return self._pages

    @property
    def wanted(self) -> list[str]:
        """The RayServices that pages have selected, as NAMESPACE/NAME."""
        return list(self._wanted)

    @property
    def has_all_events(self) -> bool:
        """Whether all stored upgrade events have been received and new events arrive."""
        return self.sources.event_feed is EventFeed.LIVE

    @contextlib.contextmanager
    def count_page(self, chosen: str | None) -> Generator[None]:
        """Count an open page within a `with` block.

        `chosen` is the RayService that the page has selected, as NAMESPACE/NAME.
        """
        self._pages += 1
        if chosen is not None:
            self._wanted[chosen] += 1
        self.request_read()
        try:
            yield
        finally:
            self._pages -= 1
            if chosen is not None:
                self._wanted[chosen] -= 1
                self._wanted += Counter()
            for key in [key for key in self.details if key not in self._wanted]:
                del self.details[key]

    def list(self, rows: Mapping[str, ListedService]) -> None:
        """Set the list of RayServices, keyed by NAMESPACE/NAME; notify pages if it changed."""
        is_first, self.is_listed = not self.is_listed, True
        if is_first or rows != self.rows:
            self.rows = rows
            self._notify()

    def show_jobs(self, jobs: ShownJobs) -> None:
        """Replace the jobs, and notify pages if they changed."""
        if jobs != self.jobs:
            self.jobs = jobs
            self._notify()

    def show(self, detail: Detail) -> None:
        """Replace the detail of a RayService, if a page has it selected."""
        if detail.key in self._wanted and self.details.get(detail.key) != detail:
            self.details[detail.key] = detail
            self._notify()

    def set_sources(self, sources: PageSources) -> None:
        if sources != self.sources:
            self.sources = sources
            self._notify()

    def set_feed(self, event_feed: EventFeed, problem: str = "") -> None:
        """Set the state of the event feed, and request a read of the API server.

        The read finds changes whose events were missed.
        """
        self.set_sources(
            msgspec.structs.replace(self.sources, event_feed=event_feed, feed_problem=problem)
        )
        self.request_read()

    async def wait_for_change(self, since: int) -> int:
        """Wait until the state is newer than version `since`, and return its version."""
        while self._version <= since:
            await self._changed.wait()
        return self._version

    def request_read(self, key: str | None = None) -> None:
        """Request an immediate read of the list of RayServices, and of the details on pages.

        With a `key`, details are read only if a page has selected that RayService.
        """
        self._requested["list"].set()
        if key is None or key in self._wanted:
            self._requested["details"].set()

    async def wait(self, what: str, seconds: float) -> None:
        """Wait `seconds` before the next read, or until a read is requested.

        `what` is `list` or `details`.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._requested[what].wait()
        self._requested[what].clear()

    def _notify(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()


BEAT: Final = b"event: beat\ndata: {}\n\n"
"""The heartbeat event, which keeps the connection open."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The data of the event `rows`.

    `rows` are the changed rows, `gone` the keys of removed rows. `all` is true in the first event.
    """

    all: bool
    rows: list[ListedService]
    gone: list[str]


class PageFeed:
    """Encodes the differences between the board and what one page has received.

    `chosen` is the RayService that the page has selected, as NAMESPACE/NAME.
    """

    def __init__(self, board: Board, chosen: str | None) -> None:
        self._board = board
        self._chosen = chosen
        self._sources: PageSources | None = None
        self._rows: dict[str, ListedService] | None = None
        self._jobs: ShownJobs | None = None
        self._detail: Detail | None = None

    def encode_changes(self, *, has_detail: bool = True) -> bytes:
        """Return the changes that the page has not received, as Server-Sent Events.

        The result is empty without changes. Without `has_detail` the selected RayService is left
        out.
        """
        return (
            self._encode_sources()
            + self._encode_rows()
            + self._encode_jobs()
            + (self._encode_detail() if has_detail else b"")
        )

    def _encode_sources(self) -> bytes:
        if self._board.sources == self._sources:
            return b""
        self._sources = self._board.sources
        return encode_event("sources", self._sources)

    def _encode_rows(self) -> bytes:
        if not self._board.is_listed or self._board.rows == self._rows:
            return b""
        before, self._rows = self._rows, dict(self._board.rows)
        known = before or {}
        changed = [row for key, row in self._rows.items() if known.get(key) != row]
        gone = [key for key in known if key not in self._rows]
        return encode_event("rows", Rows(all=before is None, rows=changed, gone=gone))

    def _encode_jobs(self) -> bytes:
        if self._board.jobs is None or self._board.jobs == self._jobs:
            return b""
        self._jobs = self._board.jobs
        return encode_event("jobs", self._jobs)

    def _encode_detail(self) -> bytes:
        detail = self._board.details.get(self._chosen or "")
        if detail is None or detail == self._detail:
            return b""
        self._detail = detail
        return encode_event("detail", detail)


def encode_event(name: str, data: msgspec.Struct) -> bytes:
    """Encode a Server-Sent Event.

    The data fits one line, because JSON escapes line breaks in strings.
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
