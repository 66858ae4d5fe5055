"""The faults of a run and their times, drawn from a seed. Pure.

The same seed, length and number of replicas give the same faults. Faults do not overlap, and each
is followed by a time for recovery, so that a long wait has one cause. Every kind of fault occurs
once before any kind occurs again. Each reconciler starts with one replica, has `most` replicas
after an eighth of the time, and two after three quarters.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

import msgspec

JOB_RECONCILER: Final = "job-reconciler"
RECONCILERS: Final = (
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    JOB_RECONCILER,
)
WATCHER: Final = "watcher"
GROWN_AFTER: Final = 1 / 8
SHRUNK_AFTER: Final = 3 / 4
FEWER: Final = 2


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault.

    It lasts `lasts` seconds, and the system gets `recovers` seconds to recover.
    """

    name: str
    lasts: float = 0.0
    recovers: float = 8.0
    targets: tuple[str, ...] = ()
    """Services that the fault may hit; it hits one replica. Empty for faults of a server."""


CRASH: Final = FaultKind(name="kill -9", recovers=14.0, targets=RECONCILERS)
"""A container is killed, and restarted at once in its pod."""
LOSS: Final = FaultKind(name="node loss", lasts=12.0, targets=RECONCILERS)
"""A replica disappears without a message, as with its node. Its replacement starts later."""
TERM: Final = FaultKind(name="SIGTERM", lasts=2.0, recovers=6.0, targets=RECONCILERS)
"""A replica's pod is deleted. Its replacement starts as soon as a kubelet would start it."""
FREEZE: Final = FaultKind(name="SIGSTOP", lasts=12.0, targets=RECONCILERS)
PARTITION: Final = FaultKind(name="cut off from the API server", lasts=12.0, targets=RECONCILERS)
SCALE: Final = FaultKind(name="scale", recovers=20.0)
WATCHER_TERM: Final = FaultKind(
    name="SIGTERM of a watcher", lasts=2.0, recovers=6.0, targets=(WATCHER,)
)
KINDS: Final = (
    CRASH,
    LOSS,
    TERM,
    FREEZE,
    PARTITION,
    WATCHER_TERM,
    FaultKind(
        name="kill -9 in a hand-over of watchers", lasts=2.0, recovers=14.0, targets=(WATCHER,)
    ),
    FaultKind(name="kill -9 of a watcher", recovers=14.0, targets=(WATCHER,)),
    FaultKind(name="SIGSTOP of a watcher", lasts=12.0, targets=(WATCHER,)),
    FaultKind(name="NATS kill", lasts=1.0, recovers=12.0),
    FaultKind(name="NATS volume loss", lasts=1.0, recovers=14.0),
    FaultKind(name="API server restart", recovers=14.0),
    FaultKind(name="410", lasts=5.0, targets=(WATCHER,)),
    FaultKind(name="409", lasts=5.0, targets=RECONCILERS),
    FaultKind(name="429", lasts=5.0, targets=RECONCILERS),
    FaultKind(name="5xx", lasts=5.0, targets=RECONCILERS),
    FaultKind(name="lost answers", lasts=5.0, targets=RECONCILERS),
    FaultKind(name="latency", lasts=6.0, targets=RECONCILERS),
    FaultKind(name="black-holed watches", lasts=12.0, recovers=6.0, targets=(WATCHER,)),
)

DASHBOARD_KINDS: Final = (
    FaultKind(name="dashboards answer 500", lasts=6.0, recovers=4.0),
    FaultKind(name="dashboards are silent", lasts=8.0, recovers=4.0),
    FaultKind(name="dashboards lose answers", lasts=6.0, recovers=4.0),
    FaultKind(name="head loss", lasts=0.0, recovers=10.0),
)
"""Faults of the dashboards and heads of RayJobs.

They may occur during other faults, because they delay no probe.
"""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Times are in seconds since the moment when the faults of the run begin."""

    kind: str
    at: float
    lasts: float = 0.0
    over: float = 0.0
    """Time by which the system should have recovered. The next fault begins then."""
    service: str = ""
    draw: int = 0
    """Random number that chooses the replica to fail among those running when the fault begins."""
    replicas: int = 0
    """Number of replicas to which the fault `scale` scales each reconciler; 0 for other faults."""

    def __str__(self) -> str:
        what = f" to {self.replicas}" if self.replicas else ""
        return f"{self.kind}{what}{f' ({self.service})' if self.service else ''}"


def plan(seed: int, seconds: float, *, most: int) -> list[Fault]:
    """Draw the faults of a run of this length.

    `most` is the maximum number of replicas of each reconciler.
    """
    random = Random(seed)
    kinds, scales = _draw_kinds(random), _draw_scales(seconds, most)
    faults: list[Fault] = []
    at = 0.0
    while at < seconds:
        if scales and at >= scales[0][0]:
            fault = Fault(
                kind=SCALE.name, at=at, over=at + SCALE.recovers, replicas=scales.pop(0)[1]
            )
        else:
            fault = _draw_fault(random, next(kinds), at)
        faults.append(fault)
        at = fault.over
    return faults


def plan_dashboards(seed: int, seconds: float) -> list[Fault]:
    """Draw the faults of dashboards and heads for a run of this length."""
    random = Random(f"dashboards {seed}")
    faults: list[Fault] = []
    at = 0.0
    while at < seconds:
        for kind in random.sample(DASHBOARD_KINDS, len(DASHBOARD_KINDS)):
            faults.append(_draw_fault(random, kind, at))
            at = faults[-1].over
    return [fault for fault in faults if fault.at < seconds]


def _draw_scales(seconds: float, most: int) -> list[tuple[float, int]]:
    """Return the times at which the reconcilers are scaled, with their number of replicas."""
    if most == 1:
        return []
    return [(seconds * GROWN_AFTER, most), (seconds * SHRUNK_AFTER, min(most, FEWER))]


def _draw_kinds(random: Random) -> Iterator[FaultKind]:
    while True:
        kinds = list(KINDS)
        random.shuffle(kinds)
        yield from kinds


def _draw_fault(random: Random, kind: FaultKind, at: float) -> Fault:
    return Fault(
        kind=kind.name,
        at=at,
        lasts=kind.lasts,
        over=at + kind.lasts + kind.recovers,
        service=random.choice(kind.targets) if kind.targets else "",
        draw=random.randrange(1000),
    )
