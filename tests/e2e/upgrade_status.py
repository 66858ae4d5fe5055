"""What the statuses of one upgrade contain: shares, bounds, and how long each part took.

Does no I/O.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from common import names


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What the status contained from some time on; `at` in seconds since the epoch, capacities and shares in percent."""

    at: float
    active: str
    pending: str
    capacities: tuple[int | None, int | None]
    weights: tuple[int | None, int | None]
    conditions: tuple[str, ...]
    """Types of the conditions that are True."""

    def __str__(self) -> str:
        """Return it as one line."""
        numbers = f"capacity {self.capacities}, share {self.weights}"
        return f"{self.at:.2f} {self.active}/{self.pending or '-'} {numbers} {' '.join(self.conditions)}"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The shares that the route gave from some time on, by the Service of each cluster."""

    at: float
    weights: dict[str, int]


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of an upgrade that went forward."""

    ready: float
    """From the pending cluster's name to its first capacity."""
    carrying: float
    """From its first capacity to its first share of the traffic: Serve starts replicas."""
    moving: float
    """From its first share to promotion."""


def shares_of(history: Sequence[Moment], cluster: str) -> list[int]:
    """Return the shares that a cluster had, one after the other, beginning with 0."""
    shares = [0]
    for moment in history:
        sides = (moment.active, moment.pending)
        share = moment.weights[sides.index(cluster)] if cluster in sides else None
        if share is not None and share != shares[-1]:
            shares.append(share)
    return shares


def expect_sound(history: Sequence[Moment], *, surge: int) -> None:
    """Expect what holds at every moment: shares add up to 100, capacities to at most 100 and the surge."""
    for moment in history:
        if None not in moment.weights:
            assert sum(each or 0 for each in moment.weights) == 100, moment
        if moment.pending:
            assert sum(each or 0 for each in moment.capacities) <= 100 + surge, moment


def times(history: Sequence[Moment], moves: Sequence[Move], cluster: str) -> Times:
    """Return how long the parts of an upgrade to a cluster took; the route has a share before the status does."""
    named = first(history, lambda moment: moment.pending == cluster)
    raised = first(history, lambda moment: moment.pending == cluster and bool(moment.capacities[1]))
    carried = next(move.at for move in moves if move.weights.get(names.serve_service(cluster)))
    promoted = first(history, lambda moment: moment.active == cluster)
    ready, carrying, moving = (
        round(b - a, 2) for a, b in pairwise((named, raised, carried, promoted))
    )
    return Times(ready=ready, carrying=carrying, moving=moving)


def first(history: Sequence[Moment], holds: Callable[[Moment], bool]) -> float:
    """Return when something was first so."""
    return next(moment.at for moment in history if holds(moment))
