"""Count the requests of both clusters since the weights last changed, as evidence for gates.

Serve's proxies count the requests, and each Ray node exports its counters every 10 s. The counters
are read in the background, so that a node which does not answer delays no decision about health.
The counts are lost when the process ends; then a window begins again, and the gates wait for as
many requests again.

In a long step or bake, the earlier requests would hide later errors. Therefore an additional window
begins every minute, and the last few of these are evaluated as well. If all traffic moves at once,
the gates are evaluated before the move, over all requests that the pending cluster has ever
answered: these come from warm-ups and previews, and Ray's counters still have them after a restart
of raybus. After all traffic has moved, the active cluster answers no requests. Then its requests of
the previous step are used or, after a restart, everything that its nodes have counted.

`common.upgrade.increases` computes the requests between two reads of a node.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from common.clock import Clock
from common.ray import request_metrics
from common.ray.dashboard import Target
from common.ray.serve_api import ServeApi
from common.runtime.background import Background
from common.runtime.cache import BoundedDict
from common.upgrade import increases
from common.upgrade.candidate import Candidate
from common.upgrade.gates import Window
from common.upgrade.increases import Increase, Node, Nodes, Tally

AGE: Final = 5.0
"""Minimum seconds between two reads of the counters."""
MAX_NODES: Final = 256
"""Maximum number of nodes of a cluster whose request counters are read.

In a larger cluster, the requests of these nodes are a sample.
"""
EXPORT_INTERVAL: Final = 10.0
"""Seconds between two exports of its counters by a node (Ray's `metrics_report_interval_ms`)."""
MAX_CONCURRENT_READS: Final = 16
"""Maximum number of nodes of one cluster whose counters are read concurrently."""
REMEMBERED: Final = 1024
RESTARTED_EVERY: Final = 60.0
"""Seconds from the start of one window within a step to the start of the next."""
MAX_RECENT_POLLS: Final = 5
"""Maximum number of shorter windows that are evaluated in addition to the window of the whole step.

A new shorter window begins every `RESTARTED_EVERY` seconds. The window of the whole step detects
slower regressions.
"""

MAX_ALL_VALUES: Final = 2**20
"""Maximum number of counter values to remember for all upgrades together (about 250 MB).

If there are more, the counts of the upgrade with the most values are dropped and begin again."""

Targets: TypeAlias = Mapping[str, Target]
"""Metrics endpoints of a cluster's nodes, by the UID of their pod."""


class _Cluster(msgspec.Struct):
    """The request counts of one cluster."""

    nodes: Nodes = msgspec.field(default_factory=Nodes)
    step: Tally = msgspec.field(default_factory=Tally)
    within: dict[int, Tally] = {}
    """The counts in the later windows of the step, by the number of the window."""

    def begin_step(self) -> None:
        self.step = Tally(since=self.nodes.read)

    def count(self, new_increases: list[Increase]) -> None:
        increases.count([self.step, *self.within.values()], new_increases)

    @property
    def size(self) -> int:
        tallies = (self.step, *self.within.values())
        requests = (answers for tally in tallies for answers in tally.answered.values())
        return self.nodes.size + sum(map(request_metrics.size, requests))


class _Upgrade(msgspec.Struct):
    """The request counts of both clusters of one upgrade."""

    candidate: Candidate
    active: _Cluster = msgspec.field(default_factory=_Cluster)
    pending: _Cluster = msgspec.field(default_factory=_Cluster)
    moved_at: datetime | None = None
    is_whole: bool = False
    """Whether all traffic has moved to the pending cluster."""
    is_unused: bool = False
    """Whether the pending cluster had not answered any user's request when the counts began."""
    is_read: bool = False
    """Whether the counters were read since the weights or the candidate last changed."""
    begins_at: float = 0.0
    """When counting may begin, in monotonic seconds.

    By then the nodes have exported all requests that ran with the previous Serve config."""
    restarted_at: float | None = None
    """When the newest window began, in monotonic seconds; None before the first read."""
    read_at: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return self.active.size + self.pending.size

    def begin_step(self, moved_at: datetime | None, *, is_whole: bool) -> None:
        """Begin new windows because the weights or the candidate have changed.

        If all traffic has moved, the counts of the active cluster are kept for comparison.
        """
        self.moved_at, self.is_whole = moved_at, is_whole
        self.is_read, self.restarted_at = False, None
        for cluster in (self.active, self.pending):
            cluster.within = {}
        self.pending.begin_step()
        if not is_whole:
            self.active.begin_step()

    def begin_candidate(self, candidate: Candidate, *, is_unused: bool, now: float) -> None:
        """Discard the requests that the pending cluster answered with an earlier Serve config."""
        self.candidate, self.is_unused = candidate, is_unused
        self.pending, self.begins_at = _Cluster(), now + EXPORT_INTERVAL

    def restart(self, now: float) -> None:
        """Begin an additional window within the step if it is due."""
        if self.restarted_at is None:
            self.restarted_at = now
        elif now - self.restarted_at >= RESTARTED_EVERY:
            number = max(self.pending.within, default=0) + 1
            for cluster in (self.active, self.pending):
                cluster.within[number] = Tally(since=cluster.nodes.read)
                cluster.within.pop(number - MAX_RECENT_POLLS - 1, None)
            self.restarted_at = now

    def window(self) -> Window:
        """Return the window of the whole step, with the last windows that began within the step."""
        active, pending = self.active, self.pending
        recent = [
            Window(
                number=number,
                active=(active.step if self.is_whole else active.within[number]).answered,
                pending=tally.answered,
            )
            for number, tally in pending.within.items()
            if tally.since < pending.nodes.read
        ]
        return Window(
            active=active.step.answered,
            pending=pending.step.answered,
            recent=tuple(recent[-MAX_RECENT_POLLS:]),
        )


class Windows:
    """The request counts of the upgrades that this replica reconciles."""

    def __init__(self, serve: ServeApi, background: Background, clock: Clock) -> None:
        self._serve = serve
        self._background = background
        self._clock = clock
        self._upgrades = BoundedDict[str, _Upgrade](
            max_entries=REMEMBERED, dropped=lambda upgrade: upgrade.task and upgrade.task.cancel()
        )
        """The request counts of each upgrade, by the UID of the pending cluster."""

    async def read_window(
        self,
        candidate: Candidate,
        active: Targets,
        pending: Targets,
        *,
        moved_at: datetime | None = None,
        is_whole: bool = False,
        is_unused: bool = False,
    ) -> Window | None:
        """Return the windows of the present step, and start the next read of counters if due.

        Returns None until the counters have been read in this step. `active` and `pending` are the
        metrics endpoints of the two clusters, and `moved_at` is when the weights last changed.
        `is_whole` means that the pending cluster has all traffic, and `is_unused` that it has never
        answered a user's request.
        """
        uid, now = candidate.cluster_uid, self._clock.monotonic()
        upgrade = self._upgrades.get(uid) or _Upgrade(candidate=candidate, is_unused=is_unused)
        self._upgrades[uid] = upgrade
        is_same = upgrade.candidate == candidate
        if not is_same:
            upgrade.begin_candidate(candidate, is_unused=is_unused, now=now)
        if not is_same or upgrade.moved_at != moved_at:
            upgrade.begin_step(moved_at, is_whole=is_whole)
        is_idle = upgrade.task is None or upgrade.task.done()
        due_at = (
            upgrade.begins_at
            if upgrade.read_at is None
            else max(upgrade.begins_at, upgrade.read_at + AGE)
        )
        if is_idle and now >= due_at:
            upgrade.read_at = now
            upgrade.task = await self._background.start(self._read(upgrade, active, pending))
        return upgrade.window() if upgrade.is_read else None

    def forget(self, uid: str) -> None:
        """Drop the counts of the upgrade to the cluster with this UID."""
        self._upgrades.pop(uid, None)

    async def _read(self, upgrade: _Upgrade, active: Targets, pending: Targets) -> None:
        began = upgrade.candidate, upgrade.moved_at
        is_unread = upgrade.active.nodes.size == 0
        for cluster in (upgrade.pending, upgrade.active):
            cluster.nodes.read += 1
        await self._count(upgrade.pending, pending, is_new=upgrade.is_unused)
        # After all traffic has moved, all requests that the active cluster has ever answered may be
        # used for comparison.
        await self._count(upgrade.active, active, is_new=upgrade.is_whole and is_unread)
        if (upgrade.candidate, upgrade.moved_at) == began:
            upgrade.is_read = True
            upgrade.restart(self._clock.monotonic())
        self._limit()

    async def _count(self, cluster: _Cluster, targets: Targets, *, is_new: bool) -> None:
        """Read the counters of a cluster's nodes and add the requests since the last read.

        With `is_new`, all requests that an unknown node has ever answered are added.
        """
        nodes, new_increases = cluster.nodes, list[Increase]()

        async def read(uid: str, target: Target) -> None:
            node, number = nodes.get(uid), nodes.read

            def advance(page: bytes) -> tuple[Node, list[Increase]] | None:
                series = request_metrics.parse(page)
                if series is None:
                    return None
                is_first = is_new and not nodes.is_cut
                return increases.advance(node, series, read=number, is_new=is_first)

            advanced = await self._serve.metrics(target, uid, advance)
            if advanced is not None:
                nodes.put(uid, advanced[0])
                new_increases.extend(advanced[1])

        read_now = sorted(targets.items())[:MAX_NODES]
        for first in range(0, len(read_now), MAX_CONCURRENT_READS):
            async with asyncio.TaskGroup() as group:
                for uid, target in read_now[first : first + MAX_CONCURRENT_READS]:
                    group.create_task(read(uid, target))
        cluster.count(new_increases)

    def _limit(self) -> None:
        """Drop the counts of the largest upgrades until the rest is within `MAX_ALL_VALUES`."""
        sizes = {uid: upgrade.size for uid, upgrade in self._upgrades.items()}
        while sum(sizes.values()) > MAX_ALL_VALUES:
            largest = max(sizes, key=sizes.__getitem__)
            del sizes[largest], self._upgrades[largest]
