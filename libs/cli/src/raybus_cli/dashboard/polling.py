"""Polls the API server: the list of RayServices with the pending clusters of their upgrades, and the details of those that pages have selected.

A cluster is read once for each weight, so a list of services at rest costs nothing, and neither does an upgrade that waits.

The interval follows from the cost of a read, so that a cluster with many RayServices is not overloaded; without an open
page it is long. A failed read is reported, and the last state stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from common import errors
from common.api.ray_cluster import RayCluster
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE
from raybus_cli import session
from raybus_cli.dashboard import model
from raybus_cli.dashboard.board import Board
from raybus_cli.dashboard.history import History
from raybus_cli.dashboard.listing import Listing, Moment
from raybus_cli.dashboard.model import Detail
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot

log = structlog.get_logger()

MOST: Final = 20
"""Reads of one poll; the rest is read at the next ones."""


class PendingClusters:
    """Reads pending clusters."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Moment, RayCluster | None]] = {}
        """By the key of the RayService; None for a cluster that could not be read."""

    async def of(self, kube: KubeClient, moving: Mapping[str, Moment]) -> dict[str, RayCluster]:
        """Return the pending clusters of the RayServices with one, by the keys of those."""
        self._held = {
            key: held
            for key, held in self._held.items()
            if key in moving and held[0][0] == moving[key][0]
        }
        due = [
            key
            for key, moment in moving.items()
            if key not in self._held or self._held[key][0] != moment
        ]
        async with asyncio.TaskGroup() as group:
            for key in due[:MOST]:
                group.create_task(self._read(kube, key, moving[key]))
        return {key: cluster for key, (_, cluster) in self._held.items() if cluster is not None}

    async def _read(self, kube: KubeClient, key: str, moment: Moment) -> None:
        try:
            found = await reader.cluster(kube, key.partition("/")[0], moment[0])
        except (
            errors.RaybusError,
            msgspec.MsgspecError,
        ):  # the list is shown without the steps of its policy
            found = None
        self._held[key] = moment, found


EVERY: Final = 2.0
"""Seconds between two reads."""
EVERY_WITH_EVENTS: Final = 5.0
"""The same for the list while the bus delivers events."""
UNATTENDED: Final = 30.0
"""The same while no page is open."""
COST: Final = 5
"""The least pause as a multiple of the duration of a read."""
LULL: Final = 0.5
"""Seconds between reads that events request."""
UNAUTHORIZED: Final = "Unauthorized"

_MISSES: Final = (errors.RaybusError, msgspec.MsgspecError)


Connect = Callable[[], Awaitable[KubeClient]]
"""Returns a client with the rights of a page's user."""


class Connection:
    """A connection to the API server that is renewed after the expiry of a login."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._kube: KubeClient | None = None
        self._is_shut = False

    async def kube(self) -> KubeClient:
        """Return the connection."""
        if self._kube is None:
            self._kube = await self._connect()
        return self._kube

    def describe(self, problem: Exception) -> str:
        """Return a problem in one line, and note an expired login."""
        self._is_shut = self._is_shut or UNAUTHORIZED in str(problem)
        return session.line(problem)

    async def renew(self) -> None:
        """Close an unusable connection, once it is unused."""
        if self._is_shut:
            self._is_shut = False
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._kube is not None:
            await self._kube.close()
            self._kube = None


class Poller:
    """Polls until it is cancelled."""

    def __init__(
        self,
        connect: Connect,
        namespace: str | None,
        board: Board,
        history: History,
        listing: Listing,
    ) -> None:
        self._list = Connection(connect)
        self._details = Connection(connect)
        self._namespace = namespace
        self._board = board
        self._history = history
        self._listing = listing
        self._pending = PendingClusters()
        self._last: dict[str, Snapshot] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._list.close()
        await self._details.close()

    async def read_list(self) -> None:
        """Read the list once; raise an error of the API server."""
        kube = await self._list.kube()
        body = await kube.list(RAY_SERVICE, self._namespace)
        versions = await self._listing.split(self._namespace, body)
        entries = await self._listing.entries(versions, {})
        now = session.now()
        for key, entry in entries.items():
            self._history.see(key, entry.progress, now=now)
        moving = {key: each.pending for key, each in entries.items() if each.pending is not None}
        clusters = await self._pending.of(kube, moving)
        moved = [each for each in versions if each.metadata.key in clusters]
        entries |= await self._listing.entries(moved, clusters)
        self._board.list({key: entry.row for key, entry in entries.items()})
        self._set_sources(problem="")

    async def follow_list(self) -> None:
        """Read the list periodically."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.read_list()
            except session.Denied as problem:
                self._board.list({})
                self._set_sources(problem=str(problem))
            except _MISSES as problem:
                self._set_sources(problem=self._list.describe(problem))
                await self._list.renew()
            await self._wait(
                "list", began, EVERY_WITH_EVENTS if self._board.has_all_events else EVERY
            )

    async def follow_details(self) -> None:
        """Read the details of what pages have selected, periodically."""
        while True:
            began, wanted = asyncio.get_running_loop().time(), self._board.wanted
            self._forget(wanted)
            async with asyncio.TaskGroup() as group:
                for key in wanted:
                    group.create_task(self._read_detail(key))
            await self._details.renew()
            await self._wait("details", began, EVERY if wanted else UNATTENDED)

    async def _read_detail(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            snapshot = await reader.read(await self._details.kube(), namespace, name)
        except errors.NotFound:
            self._last.pop(key, None)
            timelines = self._history.timelines(key, has_all_events=self._board.has_all_events)
            self._board.show(Detail(key=key, timelines=timelines))
            return
        except (
            session.Denied
        ) as problem:  # nothing of what was read before the right was revoked stays
            self._last.pop(key, None)
            self._board.show(Detail(key=key, problem=str(problem)))
            return
        except _MISSES as problem:
            await self._show(key, problem=self._details.describe(problem))
            return
        self._last[key] = snapshot
        await self._show(key)

    async def _show(self, key: str, *, problem: str = "") -> None:
        """Show the last snapshot, with an error if the read failed, and the known upgrades."""
        snapshot, timelines = (
            self._last.get(key),
            self._history.timelines(key, has_all_events=self._board.has_all_events),
        )
        if snapshot is None:
            self._board.show(
                Detail(key=key, problem=problem, row=self._board.rows.get(key), timelines=timelines)
            )
        else:
            compute = partial(model.detail, snapshot, timelines, now=session.now(), problem=problem)
            namespace = snapshot.service.metadata.namespace
            try:
                detail = await self._listing.details.run(namespace, compute)
            except Exception as wrong:  # one object of a tenant may not end the session
                log.exception("a RayService cannot be shown", key=key, error=str(wrong))
                detail = Detail(key=key, problem=model.why_unreadable(wrong))
            self._board.show(detail)

    def _forget(self, wanted: Sequence[str]) -> None:
        for key in [key for key in self._last if key not in wanted]:
            del self._last[key]

    async def _wait(self, what: str, began: float, seconds: float) -> None:
        """Wait before the next read; events may request it earlier, though never without a pause."""
        spent = asyncio.get_running_loop().time() - began
        await asyncio.sleep(max(LULL, spent))
        await self._board.wait(
            what, max(UNATTENDED if not self._board.pages else seconds, COST * spent)
        )

    def _set_sources(self, *, problem: str) -> None:
        sources = self._board.sources
        seen = sources.seen_at if problem else session.now()
        self._board.set_sources(msgspec.structs.replace(sources, problem=problem, seen_at=seen))
