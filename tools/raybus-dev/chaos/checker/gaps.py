"""How long probes (test objects) waited for the effect of a change, by the fault that delayed it.

The limits apply only while a second replica can take over. With a single replica, the wait depends
on how long a process takes to start. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from chaos.checker.evidence import Violation
from chaos.schedule import CRASH, FREEZE, LOSS, PARTITION, SCALE, TERM, WATCHER, WATCHER_TERM

RULE: Final = "no long gap"
STALLED: Final = "no stalled key"
STALLED_SECONDS: Final = 120.0
"""Seconds of waiting after which a change counts as forgotten. No fault lasts this long."""
CALM: Final = "none"
LIMITS: Final = {
    CRASH.name: 10.0,
    LOSS.name: 10.0,
    FREEZE.name: 10.0,
    PARTITION.name: 10.0,
    TERM.name: 1.0,
    WATCHER_TERM.name: 1.0,
    SCALE.name: 2.0,
}
"""Maximum wait in seconds, by kind of fault.

Scaling has a higher limit than SIGTERM, because new processes take processor time from the running
ones.
"""
LATE_SECONDS: Final = 1.0
"""A fault that begins more than this many seconds after the start of a wait is not its cause."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How long a change of a test object (the probe) waited for its effect.

    Times are in seconds since the run began.
    """

    probe: str
    service: str
    """The service that must react to the change."""
    asked: float
    """Time of the change."""
    done: float | None
    """Time of the effect; None if there was none before the end of the run."""


class Struck(msgspec.Struct, frozen=True, kw_only=True):
    """A fault as it was carried out. Times are in seconds since the run began."""

    kind: str
    service: str
    began: float
    over: float
    replicas: int
    """Desired replicas of each reconciler at the time of the fault."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """The waits that one kind of fault caused. Times are in seconds."""

    fault: str
    waits: int
    p50: float
    longest: float
    probe: str
    """The probe with the longest wait."""
    began: float
    limit: float | None = None
    over_limit: int = 0
    """Number of waits above the limit."""


def attribute(
    waits: Iterable[Wait], struck: Sequence[Struck], *, end: float
) -> list[tuple[Wait, Struck | None]]:
    """Return each wait with the fault that caused it, or with None.

    The cause is the last fault that was active during the wait and began at most `LATE_SECONDS`
    after the start of the wait.
    """
    return [(wait, _find_cause(wait, struck, end=end)) for wait in waits]


def summary(waits: Iterable[Wait], struck: Sequence[Struck], *, end: float) -> list[Gap]:
    """Summarise the waits by kind of fault; the fault with the longest wait comes first.

    `end` is the end of the run. A change without an effect has waited until then.
    """
    by_kind: dict[str, list[tuple[Wait, Struck | None]]] = {}
    for wait, cause in attribute(waits, struck, end=end):
        by_kind.setdefault(_get_name(cause), []).append((wait, cause))
    return sorted(
        (_build_gap(name, waits_of_kind, end) for name, waits_of_kind in by_kind.items()),
        key=lambda gap: -gap.longest,
    )


def judge(waits: Iterable[Wait], struck: Sequence[Struck], *, end: float) -> list[Violation]:
    """Return a violation for each wait above the limit of its fault."""
    return [
        Violation(
            rule=RULE,
            about=wait.probe,
            text=(
                f"{wait.probe} waited {_get_seconds(wait, end):.1f} s, allowed are {limit:g} s: "
                f"{_get_name(cause)} of {cause.service or 'all'}"
            ),
            at=wait.asked,
        )
        for wait, cause in attribute(waits, struck, end=end)
        if cause is not None
        and (limit := _get_limit(wait, cause)) is not None
        and _get_seconds(wait, end) > limit
    ]


def stalled(waits: Iterable[Wait], *, end: float) -> list[Violation]:
    """Return a violation for each wait that is too long for any fault to explain it."""
    return [
        Violation(
            rule=STALLED,
            about=wait.probe,
            text=f"{wait.probe} waited {_get_seconds(wait, end):.0f} s",
            at=wait.asked,
        )
        for wait in waits
        if _get_seconds(wait, end) > STALLED_SECONDS
    ]


def _find_cause(wait: Wait, struck: Sequence[Struck], *, end: float) -> Struck | None:
    until = end if wait.done is None else wait.done
    causes = [
        fault
        for fault in struck
        if fault.began <= min(until, wait.asked + LATE_SECONDS) and fault.over >= wait.asked
    ]
    return causes[-1] if causes else None


def _get_limit(wait: Wait, cause: Struck) -> float | None:
    """Return the limit of a wait in seconds; None if the wait is not limited.

    A wait is not limited if there was only one replica, or if the fault hit a service on which the
    reaction does not depend.
    """
    if cause.replicas < 2 or cause.service not in {"", WATCHER, wait.service}:
        return None
    return LIMITS.get(cause.kind)


def _get_name(cause: Struck | None) -> str:
    if cause is None:
        return CALM
    return f"{cause.kind}{'' if cause.replicas > 1 else ', one replica'}"


def _get_seconds(wait: Wait, end: float) -> float:
    return (end if wait.done is None else wait.done) - wait.asked


def _build_gap(name: str, waits: list[tuple[Wait, Struck | None]], end: float) -> Gap:
    longest = max((wait for wait, _ in waits), key=lambda wait: _get_seconds(wait, end))
    seconds = sorted(_get_seconds(wait, end) for wait, _ in waits)
    limits = [
        (wait, limit)
        for wait, cause in waits
        if cause is not None and (limit := _get_limit(wait, cause)) is not None
    ]
    return Gap(
        fault=name,
        waits=len(waits),
        p50=seconds[len(seconds) // 2],
        longest=seconds[-1],
        probe=longest.probe,
        began=longest.asked,
        limit=limits[0][1] if limits else None,
        over_limit=sum(_get_seconds(wait, end) > limit for wait, limit in limits),
    )
