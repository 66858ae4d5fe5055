"""What the gates of an UpgradePolicy are judged by: the requests that both clusters answered since the weights last changed.

Serve's proxies count them, and each node of Ray exports its counters every 10 s. They are read in the background, so that a node which does
not answer delays no decision about health. What was read is forgotten with the process: then a window begins anew, and the gates wait
for as many requests again.

In a long step or bake the requests before an error would hide it, so another window begins each minute, and the last few count, too.
Where all traffic moves at once, the gates decide before: by all that the pending cluster ever counted, which is of warm-ups and previews,
and outlives a restart. Once all traffic has moved, the active cluster answers nothing: then the comparison is with its requests of the step
before, or after a restart with all that its nodes have counted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from common.clock import Clock
from common.ray import request_metrics
from common.ray.dashboard import Target
from common.ray.request_metrics import Sample
from common.ray.serve_api import ServeApi
from common.runtime.background import Background
from common.runtime.cache import Remembered
from common.upgrade.gates import Window

AGE: Final = 5.0
"""Seconds between two reads of a node."""
MOST_NODES: Final = 256
"""Nodes of a cluster that are read; their requests are a sample of all."""
AT_ONCE: Final = 16
REMEMBERED: Final = 1024
RESTARTED_EVERY: Final = 60.0
"""Seconds between the starts of two windows within a step."""
MOST_RECENT: Final = 5
"""Windows within a step that are judged beside its own; a regression that takes longer to show is left to that one."""

Nodes = Mapping[str, Target]
"""By the uid of the pod."""


class _Cluster(msgspec.Struct):
    """What was read of one cluster."""

    last: dict[str, Sample] = {}
    """The counters of each node at its last read."""
    answered: Sample = {}

    def add(
        self, read: Mapping[str, Sample], *, nodes: Nodes, is_new: bool, from_beginning: bool
    ) -> None:
        """Count what was answered since the last read, unless the weights changed meanwhile.

        Of a node that was never read before, nothing is known to be new, unless all that it ever answered counts.
        """
        new = [
            request_metrics.difference(each, self.last[uid])
            for uid, each in read.items()
            if uid in self.last
        ]
        if from_beginning:
            new += (each for uid, each in read.items() if uid not in self.last)
        self.answered = {} if is_new else request_metrics.total((self.answered, *new))
        self.last = {uid: each for uid, each in {**self.last, **read}.items() if uid in nodes}


class _Upgrade(msgspec.Struct):
    """What was read in one upgrade."""

    active: _Cluster = msgspec.field(default_factory=_Cluster)
    pending: _Cluster = msgspec.field(default_factory=_Cluster)
    moved_at: datetime | None = None
    is_whole: bool = False
    """Whether all traffic has moved to the pending cluster."""
    is_unused: bool = False
    """Whether the pending cluster never had a user's request before."""
    is_read: bool = False
    """Whether anything was read since the weights last changed."""
    restarted_at: float | None = None
    """When the last window within the step began, or the step's own."""
    marks: dict[int, tuple[Sample, Sample]] = {}
    """What both clusters had answered when each window within the step began, by its number."""
    recent: tuple[Window, ...] = ()
    read_at: float | None = None
    task: asyncio.Task[None] | None = None

    def restart(self, now: float) -> None:
        """Compute the windows within the step, and begin the next one when it is due."""
        active, pending = self.active.answered, self.pending.answered
        self.recent = tuple(
            Window(
                number=number,
                active=active
                if self.is_whole
                else request_metrics.difference(active, active_before),
                pending=request_metrics.difference(pending, pending_before),
            )
            for number, (active_before, pending_before) in self.marks.items()
        )
        if self.restarted_at is None:
            self.restarted_at = now
        elif now - self.restarted_at >= RESTARTED_EVERY:
            self.marks[max(self.marks, default=0) + 1] = active, pending
            self.marks.pop(max(self.marks) - MOST_RECENT, None)
            self.restarted_at = now


class Windows:
    """Reads the counters of clusters that share the traffic."""

    def __init__(self, serve: ServeApi, background: Background, clock: Clock) -> None:
        self._serve = serve
        self._background = background
        self._clock = clock
        self._upgrades = Remembered[str, _Upgrade](
            most=REMEMBERED, dropped=lambda each: each.task and each.task.cancel()
        )
        """By the uid of the pending cluster."""

    async def of(
        self,
        uid: str,
        active: Nodes,
        pending: Nodes,
        *,
        moved_at: datetime | None = None,
        is_whole: bool = False,
        is_unused: bool = False,
    ) -> Window | None:
        """Return what is known of an upgrade, by the uid of its pending cluster, and of its weights, which changed at `moved_at`; and read on."""
        held = self._upgrades[uid] = self._upgrades.get(uid) or _Upgrade(is_unused=is_unused)
        if held.moved_at != moved_at:
            held.moved_at, held.is_whole, held.is_read = moved_at, is_whole, False
            held.restarted_at, held.marks, held.recent, held.pending.answered = None, {}, (), {}
            if not is_whole:
                held.active.answered = {}
        is_idle = held.task is None or held.task.done()
        if is_idle and (held.read_at is None or self._clock.monotonic() - held.read_at >= AGE):
            held.read_at = self._clock.monotonic()
            held.task = await self._background.start(self._read(held, active, pending))
        if not held.is_read:
            return None
        return Window(
            active=held.active.answered, pending=held.pending.answered, recent=held.recent
        )

    def forget(self, uid: str) -> None:
        """Drop what is known of an upgrade."""
        self._upgrades.pop(uid, None)

    async def _read(self, held: _Upgrade, active: Nodes, pending: Nodes) -> None:
        moved_at = held.moved_at
        for cluster, nodes in ((held.pending, pending), (held.active, active)):
            read = await self._samples(sorted(nodes.items())[:MOST_NODES])
            is_over = cluster is held.active and held.is_whole  # it answers nothing any more
            from_beginning = (
                held.is_unused if cluster is held.pending else is_over and not cluster.last
            )
            is_new = held.moved_at != moved_at and not is_over
            cluster.add(read, nodes=nodes, is_new=is_new, from_beginning=from_beginning)
        if held.moved_at == moved_at:
            held.is_read = True
            held.restart(self._clock.monotonic())

    async def _samples(self, nodes: Sequence[tuple[str, Target]]) -> dict[str, Sample]:
        found: dict[str, Sample] = {}
        for first in range(0, len(nodes), AT_ONCE):
            batch = nodes[first : first + AT_ONCE]
            async with asyncio.TaskGroup() as group:
                asked = [
                    (uid, group.create_task(self._serve.metrics(node, uid))) for uid, node in batch
                ]
            read = ((uid, each.result()) for uid, each in asked)
            samples = ((uid, request_metrics.parse(each)) for uid, each in read if each is not None)
            found |= {uid: each for uid, each in samples if each is not None}
        return found
