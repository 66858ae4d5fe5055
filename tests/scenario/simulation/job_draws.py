"""The random draw of one simulation of RayJobs: the jobs, the results of writes, and the external
events.
"""

from random import Random
from typing import Final

import msgspec

from scenario.simulation.boundaries import Fate, Strike
from support.builders.ray_job import SUBMITTING_MODES

HAPPENINGS: Final = ("hand-over", "silence", "head replaced", "submitter deleted", "lag")
MAX_WRITES: Final = 60
"""Number of writes among which strikes are drawn; most simulations have fewer."""
LASTS: Final = 60.0
"""Seconds in which external events happen."""


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A RayJob with the results of its drivers and the actions of its user."""

    name: str
    mode: str
    retries: int
    results: tuple[str, ...]
    """Ray's status at the end of each run; the last status repeats."""
    seconds: float
    """Duration of each run in seconds."""
    created: float = 0.0
    deadline: int | None = None
    suspended: float | None = None
    """Time in seconds at which the user suspends the job, to resume it some seconds later; None if
    never."""
    deleted: float | None = None
    shuts_down: bool = True


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """An event from outside."""

    at: float
    what: str
    seconds: float = 0.0


class JobDraw(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is drawn for one simulation."""

    seed: int
    jobs: tuple[JobPlan, ...]
    strikes: tuple[Strike, ...] = ()
    happenings: tuple[Happening, ...] = ()
    stops: float = 0.0
    """Probability that a pass stops at a boundary."""
    longest_stop: float = 0.0

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


def draw(seed: int) -> JobDraw:
    """Return the draw that belongs to a seed."""
    rng = Random(f"jobs {seed}")
    return JobDraw(
        seed=seed,
        jobs=tuple(_plan(rng, f"job{number}") for number in range(rng.choice((1, 1, 2)))),
        strikes=tuple(_strike(rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))),
        happenings=tuple(_happening(rng) for _ in range(rng.choice((0, 1, 2, 3)))),
        stops=rng.choice((0.0, 0.1, 0.4)),
        longest_stop=rng.choice((1.0, 5.0, 15.0)),
    )


def _plan(rng: Random, name: str) -> JobPlan:
    fate = rng.random()
    return JobPlan(
        name=name,
        mode=rng.choice(SUBMITTING_MODES),
        retries=rng.choice((0, 1, 2)),
        results=tuple(rng.choice(("SUCCEEDED", "SUCCEEDED", "FAILED")) for _ in range(3)),
        seconds=rng.choice((0.5, 3.0, 10.0)),
        created=rng.choice((0.0, 0.0, 5.0)),
        deadline=rng.choice((4, 8)) if fate < 0.15 else None,
        suspended=rng.uniform(0.5, 20.0) if 0.15 <= fate < 0.35 else None,
        deleted=rng.uniform(0.5, 20.0) if 0.35 <= fate < 0.5 else None,
        shuts_down=fate < 0.9,
    )


def _strike(rng: Random) -> Strike:
    return Strike(
        write=rng.randrange(1, MAX_WRITES),
        fate=rng.choice(list(Fate)),
        seconds=rng.choice((0.5, 3.0, 12.0)),
        down=rng.choice((0.0, 0.0, 5.0)),
    )


def _happening(rng: Random) -> Happening:
    return Happening(
        at=rng.choice((rng.uniform(0.0, 6.0), rng.uniform(0.0, LASTS / 2))),
        what=rng.choice(HAPPENINGS),
        seconds=rng.choice((1.0, 4.0, 10.0)),
    )
