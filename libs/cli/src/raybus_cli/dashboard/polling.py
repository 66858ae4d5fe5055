"""Polls the API server: the list of RayServices with the pending clusters of their upgrades, and the details of those that pages have selected.

A cluster is read once for each weight, so a list of services at rest costs nothing, and neither does an upgrade that waits.

The interval follows from the cost of a read, so that a cluster with many RayServices is not overloaded; without an open
page it is long. A failed read is reported, and the last state stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from common import errors
from common.api.meta import Items
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE
from raybus_cli import session
from raybus_cli.dashboard import model
from raybus_cli.dashboard.board import Board
from raybus_cli.dashboard.history import History
from raybus_cli.dashboard.model import Detail
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot

MOST: Final = 20
"""Reads of one poll; the rest is read at the next ones."""

_Moment = tuple[str, int | None]
"""The name of the pending cluster, and its weight."""


class PendingClusters:
    """Reads pending clusters."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[_Moment, RayCluster | None]] = {}
        """By the key of the RayService; None for a cluster that could not be read."""

    async def of(self, kube: KubeClient, services: Sequence[RayService]) -> dict[str, RayCluster]:
        """Return the pending clusters of these RayServices, by the keys of those."""
        moving = {
            model.key_of(each): each
            for each in services
            if each.status.pending_service_status.ray_cluster_name
        }
        self._held = {
            key: held
            for key, held in self._held.items()
            if key in moving and held[0][0] == _moment(moving[key])[0]
        }
        due = [
            key
            for key, each in moving.items()
            if key not in self._held or self._held[key][0] != _moment(each)
        ]
        async with asyncio.TaskGroup() as group:
            for key in due[:MOST]:
                group.create_task(self._read(kube, key, moving[key]))
        return {key: cluster for key, (_, cluster) in self._held.items() if cluster is not None}

    async def _read(self, kube: KubeClient, key: str, service: RayService) -> None:
        moment = _moment(service)
        try:
            found = await reader.cluster(kube, service.metadata.namespace, moment[0])
        except (
            errors.RaybusError,
            msgspec.MsgspecError,
        ):  # the list is shown without the steps of its policy
            found = None
        self._held[key] = moment, found


def _moment(service: RayService) -> _Moment:
    pending = service.status.pending_service_status
    return pending.ray_cluster_name, pending.traffic_routed_percent


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
        self, connect: Connect, namespace: str | None, board: Board, history: History
    ) -> None:
        self._list = Connection(connect)
        self._details = Connection(connect)
        self._namespace = namespace
        self._board = board
        self._history = history
        self._pending = PendingClusters()
        self._last: dict[str, Snapshot] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._list.close()
        await self._details.close()

    async def read_list(self) -> None:
        """Read the list once; raise an error of the API server."""
        kube = await self._list.kube()
        services = msgspec.json.decode(
            await kube.list(RAY_SERVICE, self._namespace), type=Items[RayService]
        ).items
        now = session.now()
        for each in services:
            self._history.see(model.key_of(each), each, now=now)
        self._board.list(model.rows(services, await self._pending.of(kube, services), now=now))
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
            self._show(key, problem=self._details.describe(problem))
            return
        self._last[key] = snapshot
        self._show(key)

    def _show(self, key: str, *, problem: str = "") -> None:
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
            self._board.show(model.detail(snapshot, timelines, now=session.now(), problem=problem))

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
