"""What is known now, and who waits for it to change: looking and listening write here, pages read."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from raybus_cli.dashboard.model import Detail, Row


class Hearing(StrEnum):
    """Whether events reach us."""

    CONNECTING = "connecting"
    LIVE = "live"
    AWAY = "away"


class Standing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far what is shown can be trusted."""

    context: str = ""
    namespace: str | None = None
    """None means all."""
    problem: str = ""
    """Why the API server could not be asked just now."""
    seen_at: datetime | None = None
    """When it answered last."""
    hearing: Hearing = Hearing.CONNECTING
    deaf: str = ""
    """Why no events come."""


class Board:
    """One for all pages."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.rows: Mapping[str, Row] = {}
        self.is_listed = False
        """Whether the list was read at all."""
        self.details: dict[str, Detail] = {}
        self._wanted: Counter[str] = Counter()
        self._pages = 0
        self._version = 0
        self._turned = asyncio.Event()
        self._called = {"list": asyncio.Event(), "details": asyncio.Event()}

    @property
    def pages(self) -> int:
        """Return how many pages are open."""
        return self._pages

    @property
    def wanted(self) -> list[str]:
        """Return the RayServices that pages have chosen."""
        return list(self._wanted)

    @property
    def is_told(self) -> bool:
        """Tell whether all events have arrived."""
        return self.standing.hearing is Hearing.LIVE

    @contextlib.contextmanager
    def page(self, chosen: str | None) -> Generator[None]:
        """Count a page for the length of a block, and what it has chosen."""
        self._pages += 1
        if chosen is not None:
            self._wanted[chosen] += 1
        self.call()
        try:
            yield
        finally:
            self._pages -= 1
            if chosen is not None:
                self._wanted[chosen] -= 1
                self._wanted += Counter()
            for each in [each for each in self.details if each not in self._wanted]:
                del self.details[each]

    def list(self, rows: Mapping[str, Row]) -> None:
        """Show another list."""
        is_first, self.is_listed = not self.is_listed, True
        if is_first or rows != self.rows:
            self.rows = rows
            self._turn()

    def tell(self, detail: Detail) -> None:
        """Show another look at a RayService, if a page has still chosen it."""
        if detail.key in self._wanted and self.details.get(detail.key) != detail:
            self.details[detail.key] = detail
            self._turn()

    def stand(self, standing: Standing) -> None:
        """Say how far what is shown can be trusted."""
        if standing != self.standing:
            self.standing = standing
            self._turn()

    async def turned(self, since: int) -> int:
        """Wait until there is more to show than there was at a version; return the version."""
        while self._version <= since:
            await self._turned.wait()
        return self._version

    def call(self, key: str | None = None) -> None:
        """Ask for a look at once: at the list, and at what pages have chosen unless it is something else."""
        self._called["list"].set()
        if key is None or key in self._wanted:
            self._called["details"].set()

    async def rest(self, what: str, seconds: float) -> None:
        """Wait some seconds between looks at the list or at the details, or until one is called for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._called[what].wait()
        self._called[what].clear()

    def _turn(self) -> None:
        self._version += 1
        self._turned.set()
        self._turned = asyncio.Event()
