"""Polls the API server for the list of RayServices, and for details of selected ones.

The pending cluster of an upgrade is read again only after its traffic weight has changed, so
services without an upgrade, and upgrades that wait, cost no extra requests. The interval grows with
the duration of a read, so that many RayServices do not overload the API server, and is long without
an open page. A failed read is reported, and the last state stays visible.
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
from common.kube.resources import RAY_CRON_JOB, RAY_JOB, RAY_SERVICE
from raybus_cli import session
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot
from raybus_dashboard import jobs, model
from raybus_dashboard.board import Board
from raybus_dashboard.history import History
from raybus_dashboard.jobs import ShownJobs
from raybus_dashboard.listing import Moment, SharedListing
from raybus_dashboard.model import Detail

log = structlog.get_logger()

MAX_PENDING_CLUSTERS: Final = 20
"""Maximum number of clusters read in one poll; the others are read in the next polls."""


class PendingClusters:
    """Reads the pending clusters of upgrades, again after each change of their traffic weights."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Moment, RayCluster | None]] = {}
        """Traffic weight and pending cluster by RayService key.

        The cluster is None if it could not be read."""

    async def read_pending(
        self, kube: KubeClient, moving: Mapping[str, Moment]
    ) -> dict[str, RayCluster]:
        """Return the pending clusters by RayService key.

        `moving` has the names and traffic weights of these clusters, by the same keys. A cluster
        that was not read yet, or could not be read, is left out.
        """
        self._held = {
            key: entry
            for key, entry in self._held.items()
            if key in moving and entry[0][0] == moving[key][0]
        }
        due = [
            key
            for key, moment in moving.items()
            if key not in self._held or self._held[key][0] != moment
        ]
        async with asyncio.TaskGroup() as group:
            for key in due[:MAX_PENDING_CLUSTERS]:
                group.create_task(self._read(kube, key, moving[key]))
        return {key: cluster for key, (_, cluster) in self._held.items() if cluster is not None}

    async def _read(self, kube: KubeClient, key: str, moment: Moment) -> None:
        try:
            cluster = await reader.read_ray_cluster(kube, key.partition("/")[0], moment[0])
        except (
            errors.RaybusError,
            msgspec.MsgspecError,
        ):  # the row is shown without the steps of its policy
            cluster = None
        self._held[key] = moment, cluster


EVERY: Final = 2.0
"""Seconds between two polls while a page is open."""
EVERY_WITH_EVENTS: Final = 5.0
"""Seconds between two polls of the list while the bus delivers events."""
UNATTENDED: Final = 30.0
"""Seconds between two polls while no page is open."""
COST: Final = 5
"""Minimum pause after a read, as a multiple of the duration of the read."""
LULL: Final = 0.5
"""Minimum seconds between two reads, also if upgrade events request the next read earlier."""

_EMPTY: Final = b'{"items": []}'
"""List response used for a kind that the cluster does not have or the user may not read."""
_MISSES: Final = (errors.RaybusError, msgspec.MsgspecError)


Connect = Callable[[], Awaitable[KubeClient]]
"""Function that creates a client with the rights of a page's user."""


class Connection:
    """A connection to the API server that is renewed when the login has expired."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._kube: KubeClient | None = None
        self._is_shut = False

    async def get_client(self) -> KubeClient:
        """Return the client; connect at the first call."""
        if self._kube is None:
            self._kube = await self._connect()
        return self._kube

    def describe(self, problem: Exception) -> str:
        """Format an error as one line, and remember an expired login until `renew`."""
        self._is_shut = self._is_shut or isinstance(problem, errors.Unauthorized)
        return session.format_error(problem)

    async def renew(self) -> None:
        """Close the connection if the login has expired.

        The caller ensures that no request uses the connection.
        """
        if self._is_shut:
            self._is_shut = False
            await self.close()

    async def close(self) -> None:
        if self._kube is not None:
            await self._kube.close()
            self._kube = None


class Poller:
    """Polls the API server and writes the board until it is cancelled."""

    def __init__(
        self,
        connect: Connect,
        namespace: str | None,
        board: Board,
        history: History,
        listing: SharedListing,
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
        await self._list.close()
        await self._details.close()

    async def read_list(self) -> None:
        """Read the list once and update the board; raise the error of a failed read."""
        kube = await self._list.get_client()
        body = await kube.list(RAY_SERVICE, self._namespace)
        versions = await self._listing.split(self._namespace, body)
        entries = await self._listing.update_entries(versions, {})
        now = session.read_clock()
        for key, entry in entries.items():
            self._history.record(key, entry.progress, now=now)
        moving = {key: entry.pending for key, entry in entries.items() if entry.pending is not None}
        clusters = await self._pending.read_pending(kube, moving)
        moved = [version for version in versions if version.metadata.key in clusters]
        entries |= await self._listing.update_entries(moved, clusters)
        self._board.list({key: entry.row for key, entry in entries.items()})
        await self._read_jobs(kube)
        self._set_sources(problem="")

    async def _read_jobs(self, kube: KubeClient) -> None:
        """Read the jobs and update the board.

        If the kinds do not exist or may not be read, the page shows only RayServices.
        """
        bodies: list[bytes] = []
        problems: list[str] = []
        for resource in (RAY_JOB, RAY_CRON_JOB):
            try:
                bodies.append(await kube.list(resource, self._namespace))
            except errors.NotFound:
                bodies.append(_EMPTY)
            except errors.Forbidden as problem:
                bodies.append(_EMPTY)
                problems.append(f"{resource.plural}: {problem}")
        compute = partial(
            jobs.build_jobs, *bodies, now=session.read_clock(), problem="; ".join(problems)
        )
        self._board.show_jobs(await self._listing.compute(self._namespace, compute))

    async def follow_list(self) -> None:
        """Read the list periodically; errors are shown on the board."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.read_list()
            except session.AccessDenied as problem:
                self._board.list({})
                self._board.show_jobs(ShownJobs())
                self._set_sources(problem=str(problem))
            except _MISSES as problem:
                self._set_sources(problem=self._list.describe(problem))
                await self._list.renew()
            await self._wait(
                "list", began, EVERY_WITH_EVENTS if self._board.has_all_events else EVERY
            )

    async def follow_details(self) -> None:
        """Read the details of the selected RayServices periodically."""
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
            snapshot = await reader.read(await self._details.get_client(), namespace, name)
        except errors.NotFound:
            self._last.pop(key, None)
            timelines = self._history.list_timelines(key, has_all_events=self._board.has_all_events)
            self._board.show(Detail(key=key, timelines=timelines))
            return
        except (
            session.AccessDenied
        ) as problem:  # after the right was revoked, nothing that was read before is shown
            self._last.pop(key, None)
            self._board.show(Detail(key=key, problem=str(problem)))
            return
        except _MISSES as problem:
            await self._show(key, problem=self._details.describe(problem))
            return
        self._last[key] = snapshot
        await self._show(key)

    async def _show(self, key: str, *, problem: str = "") -> None:
        """Show the last snapshot and the known upgrades of a RayService.

        `problem` is the error of a failed read.
        """
        snapshot, timelines = (
            self._last.get(key),
            self._history.list_timelines(key, has_all_events=self._board.has_all_events),
        )
        if snapshot is None:
            self._board.show(
                Detail(key=key, problem=problem, row=self._board.rows.get(key), timelines=timelines)
            )
        else:
            compute = partial(
                model.build_detail, snapshot, timelines, now=session.read_clock(), problem=problem
            )
            namespace = snapshot.service.metadata.namespace
            try:
                detail = await self._listing.details.run(namespace, compute)
            # An unreadable object of one tenant must not end the session.
            except Exception as wrong:
                log.exception("cannot show a RayService", key=key, error=str(wrong))
                detail = Detail(key=key, problem=model.explain_unreadable(wrong))
            self._board.show(detail)

    def _forget(self, wanted: Sequence[str]) -> None:
        for key in [key for key in self._last if key not in wanted]:
            del self._last[key]

    async def _wait(self, what: str, began: float, seconds: float) -> None:
        """Wait before the next read of `what`, which is `list` or `details`.

        `began` is the time at which the last read began. An upgrade event can request the next read
        earlier, but not before `LULL` seconds.
        """
        spent = asyncio.get_running_loop().time() - began
        await asyncio.sleep(max(LULL, spent))
        await self._board.wait(
            what, max(UNATTENDED if not self._board.pages else seconds, COST * spent)
        )

    def _set_sources(self, *, problem: str) -> None:
        sources = self._board.sources
        seen = sources.seen_at if problem else session.read_clock()
        self._board.set_sources(msgspec.structs.replace(sources, problem=problem, seen_at=seen))
