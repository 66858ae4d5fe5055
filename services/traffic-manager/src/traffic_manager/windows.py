"""What the gates of an UpgradePolicy are judged by: the requests that both clusters answered since the weights last changed.

Serve's proxies count them, and each node of Ray exports its counters every 10 s. They are read in the background, so that a node which does
not answer delays no decision about health. What was read is forgotten with the process: then a window begins anew, and the gates wait
for as many requests again.
"""

import asyncio
from collections import OrderedDict
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
from traffic_manager.observed import Window

AGE: Final = 5.0
"""Seconds between two reads of a node."""
MOST_NODES: Final = 256
"""Nodes of a cluster that are read; their requests are a sample of all."""
AT_ONCE: Final = 16
REMEMBERED: Final = 1024

Nodes = Mapping[str, Target]
"""By the uid of the pod."""


class _Cluster(msgspec.Struct):
    """What was read of one cluster."""

    last: dict[str, Sample] = msgspec.field(default_factory=dict[str, Sample])
    """The counters of each node at its last read."""
    answered: Sample = msgspec.field(default_factory=dict[str, request_metrics.Requests])

    def add(self, read: Mapping[str, Sample], *, nodes: Nodes, is_new: bool) -> None:
        """Count what was answered since the last read, unless the weights changed meanwhile.

        Of a node that was never read before, nothing is known to be new.
        """
        new = (request_metrics.difference(each, self.last[uid]) for uid, each in read.items() if uid in self.last)
        self.answered = {} if is_new else request_metrics.total((self.answered, *new))
        self.last = {uid: each for uid, each in {**self.last, **read}.items() if uid in nodes}


class _Upgrade(msgspec.Struct):
    """What was read in one upgrade."""

    active: _Cluster = msgspec.field(default_factory=_Cluster)
    pending: _Cluster = msgspec.field(default_factory=_Cluster)
    moved_at: datetime | None = None
    is_read: bool = False
    """Whether anything was read since the weights last changed."""
    read_at: float | None = None
    task: asyncio.Task[None] | None = None


class Windows:
    """Reads the counters of clusters that share the traffic."""

    def __init__(self, serve: ServeApi, background: Background, clock: Clock) -> None:
        self._serve = serve
        self._background = background
        self._clock = clock
        self._upgrades: OrderedDict[str, _Upgrade] = OrderedDict()
        """By the uid of the pending cluster."""

    async def of(self, uid: str, active: Nodes, pending: Nodes, *, moved_at: datetime | None) -> Window | None:
        """Return what is known of an upgrade, by the uid of its pending cluster, and of its weights, which changed at `moved_at`; and read on."""
        held = self._upgrades.setdefault(uid, _Upgrade())
        self._upgrades.move_to_end(uid)
        while len(self._upgrades) > REMEMBERED:
            self.forget(next(iter(self._upgrades)))
        if held.moved_at != moved_at:
            held.moved_at, held.is_read = moved_at, False
            held.active.answered, held.pending.answered = {}, {}
        is_idle = held.task is None or held.task.done()
        if is_idle and (held.read_at is None or self._clock.monotonic() - held.read_at >= AGE):
            held.read_at = self._clock.monotonic()
            held.task = await self._background.start(self._read(held, active, pending))
        return Window(active=held.active.answered, pending=held.pending.answered) if held.is_read else None

    def forget(self, uid: str) -> None:
        """Drop what is known of an upgrade."""
        held = self._upgrades.pop(uid, None)
        if held is not None and held.task is not None:
            held.task.cancel()

    async def _read(self, held: _Upgrade, active: Nodes, pending: Nodes) -> None:
        moved_at = held.moved_at
        for cluster, nodes in ((held.pending, pending), (held.active, active)):
            read = await self._samples(sorted(nodes.items())[:MOST_NODES])
            cluster.add(read, nodes=nodes, is_new=held.moved_at != moved_at)
        held.is_read = held.is_read or held.moved_at == moved_at

    async def _samples(self, nodes: Sequence[tuple[str, Target]]) -> dict[str, Sample]:
        found: dict[str, Sample] = {}
        for first in range(0, len(nodes), AT_ONCE):
            batch = nodes[first : first + AT_ONCE]
            async with asyncio.TaskGroup() as group:
                asked = [(uid, group.create_task(self._serve.metrics(node, uid))) for uid, node in batch]
            read = ((uid, each.result()) for uid, each in asked)
            samples = ((uid, request_metrics.parse(each)) for uid, each in read if each is not None)
            found |= {uid: each for uid, each in samples if each is not None}
        return found
