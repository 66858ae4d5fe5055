"""The timeline of an upgrade, built from its events, and from samples where events are missing.

Pure.

A point is valid until the next point. Unknown values are None: upgrades that move all traffic at
once have no capacities.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from common import untrusted
from common.upgrade import events as upgrade_events
from common.upgrade import gate_record, traffic_record
from common.upgrade.events import (
    Aborted,
    CapacityChanged,
    Cause,
    CloudEvent,
    Completed,
    Data,
    Failed,
    GateEvaluated,
    RolledBack,
    Share,
    Split,
    Started,
    TrafficShifted,
)
from common.upgrade.gates import Outcome as GateOutcome
from common.upgrade.receipt import Outcome, Receipt
from common.upgrade.traffic_record import WHOLE, Upgrade
from raybus_cli.events import rendering

Event = CloudEvent[Data]


class Severity(StrEnum):
    """The severity of a line."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Traffic and capacity of one cluster in percent; None if unknown."""

    traffic: int | None = None
    capacity: int | None = None


class Point(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Traffic and capacity of both clusters from a time on."""

    at: datetime
    old: Part
    new: Part


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An event of the timeline as text."""

    at: datetime
    kind: str
    text: str
    severity: Severity


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A gate that passed or failed at a weight, or that a step waits for."""

    at: datetime
    weight: int
    gate: str
    outcome: str
    text: str


class Timeline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One upgrade."""

    id: str
    old: str
    new: str
    began: datetime
    ended: datetime | None = None
    outcome: str = ""
    """Outcome of the upgrade; empty while it is in progress."""
    points: list[Point] = []
    lines: list[Line] = []
    verdicts: list[Verdict] = []
    receipt: Receipt | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an upgrade at a time; `over` is its outcome if it has ended."""

    at: datetime
    old: str
    new: str
    parts: tuple[Part, Part]
    over: str = ""


LAG: Final = timedelta(seconds=3)
"""Maximum delay of a status behind its event, which is published first."""

_SEVERITIES: Final = {
    "promoted": Severity.GOOD,
    "completed": Severity.GOOD,
    "paused": Severity.WARN,
    "rolled-back": Severity.WARN,
    "stalled": Severity.BAD,
    "aborted": Severity.BAD,
    "failed": Severity.BAD,
}
_VERDICTS: Final = {
    GateOutcome.PASS: Severity.GOOD,
    GateOutcome.FAIL: Severity.BAD,
    GateOutcome.INCONCLUSIVE: Severity.WARN,
}
_ALL_OLD: Final = (Part(traffic=WHOLE), Part(traffic=0))


def from_events(events: Sequence[Event]) -> Timeline:
    """Build the timeline of one upgrade from its events in stream order; at least one is needed."""
    upgrade = events[0].data.upgrade
    end = next((each for each in events if _outcome(each.data)), None)
    return Timeline(
        id=upgrade.id,
        old=upgrade.old,
        new=upgrade.new,
        began=events[0].time,
        ended=end.time if end is not None else None,
        outcome=_outcome(end.data) if end is not None else "",
        points=list(_points(events)),
        lines=[_line(each) for each in events],
        verdicts=list(_verdicts(events)),
        receipt=next(
            (each.data.receipt for each in events if isinstance(each.data, Completed)), None
        ),
    )


def from_samples(samples: Sequence[Sample]) -> Timeline:
    """Build the timeline of one upgrade from its samples; at least one is needed."""
    first = samples[0]
    bare = Timeline(
        id=f"seen {first.old} {first.new}", old=first.old, new=first.new, began=first.at
    )
    return extended(bare, samples)


def extended(timeline: Timeline, samples: Sequence[Sample]) -> Timeline:
    """Extend a timeline by the samples after its last event.

    A finished timeline is returned unchanged.
    """
    if timeline.ended is not None:
        return timeline
    points, lines, ended, outcome = list(timeline.points), list(timeline.lines), None, ""
    for each in _later(samples, timeline.lines[-1].at) if timeline.lines else samples:
        if not points or (points[-1].old, points[-1].new) != each.parts:
            points.append(Point(at=each.at, old=each.parts[0], new=each.parts[1]))
            lines.append(
                Line(at=each.at, kind="seen", text=_sample_text(each), severity=Severity.PLAIN)
            )
        if each.over:
            ended, outcome = each.at, each.over
            lines.append(
                Line(
                    at=each.at,
                    kind="seen",
                    text=f"seen: the upgrade is over ({each.over})",
                    severity=Severity.PLAIN,
                )
            )
    return msgspec.structs.replace(
        timeline, points=points, lines=lines, ended=ended, outcome=outcome
    )


def _later(samples: Sequence[Sample], last_event: datetime) -> list[Sample]:
    """Return the samples after the last event.

    Samples within `LAG` of the event may be older than it; only the last of them is used.
    """
    late = [each for each in samples if each.at > last_event + LAG]
    early = [each for each in samples if last_event < each.at <= last_event + LAG]
    return [*(msgspec.structs.replace(each, at=last_event + LAG) for each in early[-1:]), *late]


def _points(events: Sequence[Event]) -> Iterator[Point]:
    """Yield the points in stream order.

    Event times come from several clocks, so they are adjusted to never decrease.
    """
    before: tuple[Part, Part] | None = None
    at = events[0].time
    for each in events:
        at = max(at, each.time)
        parts = _parts(each.data, events, before)
        if parts is not None and parts != before:
            yield Point(at=at, old=parts[0], new=parts[1])
            before = parts


def judged(timeline: Timeline, upgrade: Upgrade | None) -> Timeline:
    """Add the verdicts of the traffic record, if no events contained any."""
    current = traffic_record.gates_of(upgrade)
    past = (
        (step.weight, each) for step in traffic_record.past_steps(upgrade) for each in step.gates
    )
    known = [(weight, each) for weight, each in past if each.outcome != GateOutcome.INCONCLUSIVE]
    if current is not None:
        known += [(current.weight, each) for each in current.gates if gate_record.is_verdict(each)]
    found = [
        Verdict(at=each.at, weight=weight, gate=each.gate, outcome=each.outcome, text=each.text)
        for weight, each in known
    ]
    return (
        timeline
        if timeline.verdicts or not found
        else msgspec.structs.replace(timeline, verdicts=found)
    )


def _verdicts(events: Sequence[Event]) -> Iterator[Verdict]:
    for event in events:
        data = event.data
        if isinstance(data, GateEvaluated):
            text = untrusted.clipped(data.message, gate_record.MAX_TEXT_LENGTH)
            gate, outcome = (
                untrusted.clipped(each, gate_record.MAX_NAME_LENGTH)
                for each in (data.gate, data.outcome)
            )
            yield Verdict(
                at=event.time, weight=data.traffic_percent, gate=gate, outcome=outcome, text=text
            )


def _parts(
    data: Data, events: Sequence[Event], before: tuple[Part, Part] | None
) -> tuple[Part, Part] | None:
    """Return traffic and capacity of both clusters after an event.

    The result is None if the event does not say.
    """
    match data:
        case Started(reason=Cause.SPEC_CHANGED):
            first = next(
                (
                    each.data
                    for each in events
                    if isinstance(each.data, CapacityChanged | TrafficShifted)
                ),
                None,
            )
            return _ALL_OLD if first is None else _split(first.before)
        case CapacityChanged(after=after) | TrafficShifted(after=after):
            return _split(after)
        case upgrade_events.Promoted():
            return _moved(before, old=0, new=WHOLE)
        case RolledBack():
            return _moved(before, old=WHOLE, new=0)
        case _:
            return None


def _moved(before: tuple[Part, Part] | None, *, old: int, new: int) -> tuple[Part, Part]:
    held = before or (Part(), Part())
    return Part(traffic=old, capacity=held[0].capacity), Part(
        traffic=new, capacity=held[1].capacity
    )


def _split(split: Split) -> tuple[Part, Part]:
    return _part(split.old), _part(split.new)


def _part(share: Share) -> Part:
    return Part(traffic=share.traffic_percent, capacity=share.capacity_percent)


def _outcome(data: Data) -> str:
    """Return the outcome of an upgrade; empty if the event is not its end."""
    match data:
        case Completed(receipt=receipt):
            return receipt.outcome
        case RolledBack(outcome=outcome):
            return outcome
        case Aborted(over=True):
            return Outcome.ABORTED
        case Failed():
            return "Failed"
        case _:
            return ""


def _line(event: Event) -> Line:
    kind = upgrade_events.kind_of(event.type)
    severity = _SEVERITIES.get(kind, Severity.PLAIN)
    if isinstance(event.data, GateEvaluated):
        severity = next(
            (held for outcome, held in _VERDICTS.items() if outcome == event.data.outcome), severity
        )
    return Line(at=event.time, kind=kind, text=rendering.describe(event), severity=severity)


def _sample_text(sample: Sample) -> str:
    sides = zip((sample.old, sample.new), sample.parts, strict=True)
    texts = [
        f"{name} traffic {_percent(part.traffic)}, capacity {_percent(part.capacity)}"
        for name, part in sides
    ]
    return f"seen: {'; '.join(texts)}"


def _percent(amount: int | None) -> str:
    return "not known" if amount is None else f"{amount} %"
