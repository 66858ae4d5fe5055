"""What the record holds of the gates of an upgrade, and how often it is written for that. Pure.

Gates are evaluated each second, and figures change with each read. A write for each would be a hot loop, so the record follows
at once only when a gate of the step has its first outcome; figures follow after `MOST_OFTEN`, and ever less often the longer the step lasts. So does
an outcome that changes to and fro. What a step came to is written with the weights of the next one, so a step costs no write by itself.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import UNSET

from common import untrusted
from common.upgrade import verdicts
from common.upgrade.gate_record import LONGEST_NAME, LONGEST_TEXT, Current, Figures, State, Verdict
from common.upgrade.gate_types import MOST_GATES
from common.upgrade.gates import Outcome, Result

MOST_OFTEN: Final = timedelta(seconds=15)
"""Between two writes of figures."""
LEAST_OFTEN: Final = timedelta(minutes=5)
PART: Final = 20
"""Figures are at most as old as this part of their step's age."""


def begun(gates: Iterable[Verdict], weight: int, *, now: datetime) -> Current:
    """Return a step that begins now, for the same gates as the last one."""
    states = [
        State(gate=each.gate, outcome=Outcome.INCONCLUSIVE, at=now, text=f"{each.gate}: not evaluated yet")
        for each in gates
    ]
    return Current(weight=weight, since=now, written_at=now, gates=tuple(states))


def updated(
    held: Current | None, results: Sequence[Result], weight: int, since: datetime, *, waits: bool, now: datetime
) -> Current:
    """Return a step with these results; `waits` is whether it lasts for the gates alone."""
    is_same = held is not None and (held.weight, held.since) == (weight, since)
    before = held.gates if held is not None and is_same else ()
    states = [
        _state(before[index] if index < len(before) else None, each, waits=waits, now=now)
        for index, each in enumerate(results[:MOST_GATES])
    ]
    return Current(weight=weight, since=since, written_at=now, gates=tuple(states))


def passed(held: Current | None, results: Sequence[Result]) -> list[str]:
    """Return the texts of gates that pass now, and did not by the record."""
    before = held.gates if held is not None else ()
    return [
        untrusted.clipped(each.text, LONGEST_TEXT)
        for index, each in enumerate(results[:MOST_GATES])
        if each.outcome is Outcome.PASS and not _passed(before[index] if index < len(before) else None, each)
    ]


def _passed(was: State | None, result: Result) -> bool:
    """Return whether a gate has passed already; another one may have had its position before an edit."""
    is_same = was is not None and was.gate == untrusted.clipped(result.gate.title, LONGEST_NAME)
    return is_same and was is not None and was.outcome == Outcome.PASS


def is_due(held: Current | None, new: Current, *, now: datetime) -> bool:
    """Return whether a step is worth a write of its own."""
    if held is None or (held.weight, held.since, len(held.gates)) != (new.weight, new.since, len(new.gates)):
        return True
    pause = min(max((now - held.since) / PART, MOST_OFTEN), LEAST_OFTEN)
    for was, state in zip(held.gates, new.gates, strict=True):
        is_first = was.at == held.since  # a later change waits like figures
        if is_first and (was.outcome, was.waits) != (state.outcome, state.waits):
            return True
    return held.gates != new.gates and now - held.written_at >= pause


def _state(was: State | None, result: Result, *, waits: bool, now: datetime) -> State:
    title, figures = untrusted.clipped(result.gate.title, LONGEST_NAME), _figures(result)
    is_waited_for = waits and result.outcome is Outcome.INCONCLUSIVE
    if was is None or (was.gate, was.outcome, was.waits) != (title, result.outcome, is_waited_for):
        return State(gate=title, outcome=result.outcome, at=now, waits=is_waited_for, **_fields(figures))
    if not verdicts.is_one(was):
        return msgspec.structs.replace(was, **_fields(figures))
    return msgspec.structs.replace(was, latest=UNSET if _fields(was) == _fields(figures) else figures)


def _figures(result: Result) -> Figures:
    return Figures(
        requests=result.requests,
        value=_finite(result.value),
        limit=_finite(result.limit),
        text=untrusted.clipped(result.text, LONGEST_TEXT),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _fields(figures: Figures) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in Figures.__struct_fields__}
