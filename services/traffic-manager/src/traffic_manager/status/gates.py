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
    GateState,
    RecordedFigures,
    Verdict,
)
from common.upgrade.gate_types import MAX_GATES
from common.upgrade.gates import GateOutcome, GateResult

MIN_WRITE_INTERVAL: Final = timedelta(seconds=15)
"""Shortest time between two writes of changed gate results."""
MAX_WRITE_INTERVAL: Final = timedelta(minutes=5)
"""Longest time until changed gate results are written."""
STEP_AGE_DIVISOR: Final = 20
"""The pause between two writes of changed figures is the age of the step divided by this number."""


def begin_step(gates: Iterable[Verdict], weight: int, *, now: datetime) -> Current:
    """Return the record of a step that begins now at `weight`, with the gates of the last step."""
    states = [
        GateState(
            gate=gate.gate,
            outcome=GateOutcome.INCONCLUSIVE,
            at=now,
            text=f"{gate.gate}: not evaluated yet",
        )
        for gate in gates
    ]
    return Current(weight=weight, since=now, written_at=now, gates=tuple(states))


def update_step(
    current: Current | None,
    results: Sequence[GateResult],
    weight: int,
    since: datetime,
    *,
    waits: bool,
    now: datetime,
) -> Current:
    """Return the record of the current step with new gate results.

    `weight` and `since` identify the step. `waits` is True if the step waits only for its gates.
    """
    is_same = current is not None and (current.weight, current.since) == (weight, since)
    compared = _compare(current if is_same else None, results)
    states = [
        _build_state(was, title, result, waits=waits, now=now) for result, title, was in compared
    ]
    return Current(weight=weight, since=since, written_at=now, gates=tuple(states))


def list_newly_passed(current: Current | None, results: Sequence[GateResult]) -> list[str]:
    """Return the texts of gates that pass now and had not passed according to the record."""
    return [
        untrusted.clipped(result.text, MAX_TEXT_LENGTH)
        for result, _, was in _compare(current, results)
        if result.outcome is GateOutcome.PASS and (was is None or was.outcome != GateOutcome.PASS)
    ]


def _compare(
    current: Current | None, results: Sequence[GateResult]
) -> Iterator[tuple[GateResult, str, GateState | None]]:
    """Yield each result with its gate's title and the recorded state of that gate.

    The state is None if the gate was not recorded at this position of the policy.
    """
    before = chain(() if current is None else current.gates, repeat(None))
    for result, was in zip(results[:MAX_GATES], before, strict=False):
        title = untrusted.clipped(result.gate.title, MAX_NAME_LENGTH)
        yield result, title, was if was is not None and was.gate == title else None


def is_due(current: Current | None, new: Current, *, now: datetime) -> bool:
    """Return whether changed gate results justify a write of their own."""
    if current is None or (current.weight, current.since, len(current.gates)) != (
        new.weight,
        new.since,
        len(new.gates),
    ):
        return True
    pause = min(
        max((now - current.since) / STEP_AGE_DIVISOR, MIN_WRITE_INTERVAL), MAX_WRITE_INTERVAL
    )
    for was, state in zip(current.gates, new.gates, strict=True):
        is_first = was.at == current.since  # later changes are limited in rate, like figures
        if is_first and (was.outcome, was.waits) != (state.outcome, state.waits):
            return True
    return current.gates != new.gates and now - current.written_at >= pause


def _build_state(
    was: GateState | None, title: str, result: GateResult, *, waits: bool, now: datetime
) -> GateState:
    value, limit = (
        x if x is not None and math.isfinite(x) else None for x in (result.value, result.limit)
    )
    text = untrusted.clipped(result.text, MAX_TEXT_LENGTH)
    figures = RecordedFigures(requests=result.requests, value=value, limit=limit, text=text)
    fields = msgspec.structs.asdict(figures)
    is_waited_for = waits and result.outcome is GateOutcome.INCONCLUSIVE
    if was is None or (was.outcome, was.waits) != (result.outcome, is_waited_for):
        return GateState(gate=title, outcome=result.outcome, at=now, waits=is_waited_for, **fields)
    if not gate_record.is_verdict(was):
        return msgspec.structs.replace(was, **fields)
    is_unchanged = fields.items() <= msgspec.structs.asdict(was).items()
    return msgspec.structs.replace(was, latest=UNSET if is_unchanged else figures)
