"""What fails when: a list drawn from a seed. Pure: the same seed, length and largest scale give the same list.

One fault after the other, each with the time that it takes and a while to recover in, so that a gap has one cause. All kinds come
before any comes again. Each reconciler runs once at first, then `most` times from an eighth of the time on, then twice from
three quarters on.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

import msgspec

RECONCILERS: Final = ("cluster-reconciler", "service-reconciler", "traffic-manager")
WATCHER: Final = "watcher"
GROWN_AFTER: Final = 1 / 8
SHRUNK_AFTER: Final = 3 / 4
FEWER: Final = 2


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A sort of fault; seconds."""

    name: str
    lasts: float = 0.0
    recovers: float = 8.0
    targets: tuple[str, ...] = ()
    """Services of which one is struck; none when it strikes what they stand on."""


CRASH: Final = Kind(name="kill -9", recovers=14.0, targets=RECONCILERS)
"""A container that is started again at once, in its pod."""
LOSS: Final = Kind(name="node loss", lasts=12.0, targets=RECONCILERS)
"""A replica that is gone without a message; another one comes later."""
TERM: Final = Kind(name="SIGTERM", lasts=2.0, recovers=6.0, targets=RECONCILERS)
"""A replica after the deletion of its pod; another one comes as soon as a kubelet has started it."""
FREEZE: Final = Kind(name="SIGSTOP", lasts=12.0, targets=RECONCILERS)
PARTITION: Final = Kind(name="cut off from the API server", lasts=12.0, targets=RECONCILERS)
SCALE: Final = Kind(name="scale", recovers=20.0)
WATCHER_TERM: Final = Kind(name="SIGTERM of a watcher", lasts=2.0, recovers=6.0, targets=(WATCHER,))
KINDS: Final = (
    CRASH,
    LOSS,
    TERM,
    FREEZE,
    PARTITION,
    WATCHER_TERM,
    Kind(name="kill -9 in a hand-over of watchers", lasts=2.0, recovers=14.0, targets=(WATCHER,)),
    Kind(name="kill -9 of a watcher", recovers=14.0, targets=(WATCHER,)),
    Kind(name="SIGSTOP of a watcher", lasts=12.0, targets=(WATCHER,)),
    Kind(name="NATS kill", lasts=1.0, recovers=12.0),
    Kind(name="NATS volume loss", lasts=1.0, recovers=14.0),
    Kind(name="API server restart", recovers=14.0),
    Kind(name="410", lasts=5.0, targets=(WATCHER,)),
    Kind(name="409", lasts=5.0, targets=RECONCILERS),
    Kind(name="429", lasts=5.0, targets=RECONCILERS),
    Kind(name="5xx", lasts=5.0, targets=RECONCILERS),
    Kind(name="lost answers", lasts=5.0, targets=RECONCILERS),
    Kind(name="latency", lasts=6.0, targets=RECONCILERS),
    Kind(name="black-holed watches", lasts=12.0, recovers=6.0, targets=(WATCHER,)),
)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that fails; times in seconds from the beginning of the run."""

    kind: str
    at: float
    lasts: float = 0.0
    over: float = 0.0
    """When it should be recovered from: the next one begins."""
    service: str = ""
    draw: int = 0
    """Chooses among the replicas of the service, whichever they are by then."""
    replicas: int = 0
    """What to scale the reconcilers to."""

    def __str__(self) -> str:
        what = f" to {self.replicas}" if self.replicas else ""
        return f"{self.kind}{what}{f' ({self.service})' if self.service else ''}"


def plan(seed: int, seconds: float, *, most: int) -> list[Fault]:
    """Draw the faults of a run; `most` is the largest number of replicas of each reconciler."""
    random = Random(seed)
    kinds, scales = _endless(random), _scales(seconds, most)
    found: list[Fault] = []
    at = 0.0
    while at < seconds:
        if scales and at >= scales[0][0]:
            fault = Fault(
                kind=SCALE.name, at=at, over=at + SCALE.recovers, replicas=scales.pop(0)[1]
            )
        else:
            fault = _drawn(random, next(kinds), at)
        found.append(fault)
        at = fault.over
    return found


def _scales(seconds: float, most: int) -> list[tuple[float, int]]:
    """Return when to scale to how many."""
    if most == 1:
        return []
    return [(seconds * GROWN_AFTER, most), (seconds * SHRUNK_AFTER, min(most, FEWER))]


def _endless(random: Random) -> Iterator[Kind]:
    while True:
        kinds = list(KINDS)
        random.shuffle(kinds)
        yield from kinds


def _drawn(random: Random, kind: Kind, at: float) -> Fault:
    return Fault(
        kind=kind.name,
        at=at,
        lasts=kind.lasts,
        over=at + kind.lasts + kind.recovers,
        service=random.choice(kind.targets) if kind.targets else "",
        draw=random.randrange(1000),
    )
