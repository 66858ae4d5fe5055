"""Gate results in the traffic record, and when changed results justify a write; no I/O.

Gates are evaluated every second, and their figures change with each read. A write for each change
would be a hot loop. The record is therefore updated at once only for the first outcome of a gate at
the current step. Changed figures, and outcomes that change again, are written at most once per
`MIN_WRITE_INTERVAL`, and less often the longer the step lasts. The results of a finished step are
written together with the weights of the next step and need no write of their own.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Final

import msgspec
from msgspec import UNSET

from common import untrusted
from common.upgrade import gate_record
from common.upgrade.gate_record import (
    MAX_NAME_LENGTH,
    MAX_TEXT_LENGTH,
    Current,
    Figures,
    State,
    Verdict,
)
from common.upgrade.gate_types import MAX_GATES
from common.upgrade.gates import Outcome, Result

MIN_WRITE_INTERVAL: Final = timedelta(seconds=15)
"""Shortest time between two writes of figures."""
MAX_WRITE_INTERVAL: Final = timedelta(minutes=5)
"""Longest time between two writes of figures that have changed."""
PART: Final = 20
"""Recorded figures are at most as old as the age of their step divided by this number."""


def begun(gates: Iterable[Verdict], weight: int, *, now: datetime) -> Current:
    """Return the record of a step that begins now, with the gates of the last step."""
    states = [
        State(
            gate=each.gate,
            outcome=Outcome.INCONCLUSIVE,
            at=now,
            text=f"{each.gate}: not evaluated yet",
        )
        for each in gates
    ]
    return Current(weight=weight, since=now, written_at=now, gates=tuple(states))


def updated(
    held: Current | None,
    results: Sequence[Result],
    weight: int,
    since: datetime,
    *,
    waits: bool,
    now: datetime,
) -> Current:
    """Return the record of the current step with new gate results.

    `waits` tells whether the step waits for nothing but its gates.
    """
    is_same = held is not None and (held.weight, held.since) == (weight, since)
    compared = _compared(held if is_same else None, results)
    states = [_state(was, title, each, waits=waits, now=now) for each, title, was in compared]
    return Current(weight=weight, since=since, written_at=now, gates=tuple(states))


def passed(held: Current | None, results: Sequence[Result]) -> list[str]:
    """Return the texts of gates that pass now and had not passed in the record."""
    return [
        untrusted.clipped(each.text, MAX_TEXT_LENGTH)
        for each, _, was in _compared(held, results)
        if each.outcome is Outcome.PASS and (was is None or was.outcome != Outcome.PASS)
    ]


def _compared(
    held: Current | None, results: Sequence[Result]
) -> Iterator[tuple[Result, str, State | None]]:
    """Yield each result with its gate's name and the recorded state of that gate.

    The state is None for a new gate, and if an edit of the policy put another gate in its position.
    """
    before = chain(() if held is None else held.gates, repeat(None))
    for result, was in zip(results[:MAX_GATES], before, strict=False):
        title = untrusted.clipped(result.gate.title, MAX_NAME_LENGTH)
        yield result, title, was if was is not None and was.gate == title else None


def is_due(held: Current | None, new: Current, *, now: datetime) -> bool:
    """Return whether changed gate results justify a write of their own."""
    if held is None or (held.weight, held.since, len(held.gates)) != (
        new.weight,
        new.since,
        len(new.gates),
    ):
        return True
    pause = min(max((now - held.since) / PART, MIN_WRITE_INTERVAL), MAX_WRITE_INTERVAL)
    for was, state in zip(held.gates, new.gates, strict=True):
        is_first = was.at == held.since  # later changes are limited in rate, like figures
        if is_first and (was.outcome, was.waits) != (state.outcome, state.waits):
            return True
    return held.gates != new.gates and now - held.written_at >= pause


def _state(was: State | None, title: str, result: Result, *, waits: bool, now: datetime) -> State:
    value, limit = (
        x if x is not None and math.isfinite(x) else None for x in (result.value, result.limit)
    )
    text = untrusted.clipped(result.text, MAX_TEXT_LENGTH)
    figures = Figures(requests=result.requests, value=value, limit=limit, text=text)
    fields = msgspec.structs.asdict(figures)
    is_waited_for = waits and result.outcome is Outcome.INCONCLUSIVE
    if was is None or (was.outcome, was.waits) != (result.outcome, is_waited_for):
        return State(gate=title, outcome=result.outcome, at=now, waits=is_waited_for, **fields)
    if not gate_record.is_verdict(was):
        return msgspec.structs.replace(was, **fields)
    is_unchanged = fields.items() <= msgspec.structs.asdict(was).items()
    return msgspec.structs.replace(was, latest=UNSET if is_unchanged else figures)
