"""The timeline of an upgrade, built from its events, and from samples where events are missing.

Does no I/O.

A point is valid until the next point. Unknown values are None: upgrades that move all traffic at
once have no capacities.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from common import untrusted
from common.bus.cloud_events import CloudEvent
from common.upgrade import events as upgrade_events
from common.upgrade import gate_record, traffic_record
from common.upgrade.events import (
    Aborted,
    CapacityChanged,
    Cause,
    Completed,
    Failed,
    GateEvaluated,
    ReportedSplit,
    RolledBack,
    Share,
    Started,
    TrafficShifted,
    UpgradeEventData,
)
from common.upgrade.gates import GateOutcome
from common.upgrade.receipt import Receipt, UpgradeOutcome
from common.upgrade.traffic_record import WHOLE, RecordedUpgrade
from raybus_cli.events import rendering

Event = CloudEvent[UpgradeEventData]


class Severity(StrEnum):
    """The severity of a line in the timeline."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class ClusterShare(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Traffic and capacity of one cluster in percent; None if unknown."""

    traffic: int | None = None
    capacity: int | None = None


class Point(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Traffic and capacity of both clusters from the time `at` on."""

    at: datetime
    old: ClusterShare
    new: ClusterShare


class TimelineLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An event of the timeline as text."""

    at: datetime
    kind: str
    text: str
    severity: Severity


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A gate that passed or failed at a weight, or that a step waits for."""

    at: datetime
    weight: int
    gate: str
    outcome: str
    text: str


class Timeline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The course of one upgrade: points, lines of text, verdicts of gates, and the outcome."""

    id: str
    old: str
    new: str
    began: datetime
    ended: datetime | None = None
    outcome: str = ""
    """Outcome of the upgrade; empty while it is in progress."""
    points: list[Point] = []
    lines: list[TimelineLine] = []
    verdicts: list[GateVerdict] = []
    receipt: Receipt | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an upgrade at a time; `over` is its outcome if it has ended."""

    at: datetime
    old: str
    new: str
    parts: tuple[ClusterShare, ClusterShare]
    over: str = ""


LAG: Final = timedelta(seconds=3)
"""Maximum delay between an event and the later write of the status with the same change."""

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
_ALL_OLD: Final = (ClusterShare(traffic=WHOLE), ClusterShare(traffic=0))


def from_events(events: Sequence[Event]) -> Timeline:
    """Build the timeline of one upgrade from its events in stream order; at least one is needed."""
    upgrade = events[0].data.upgrade
    end = next((event for event in events if _find_outcome(event.data)), None)
    return Timeline(
        id=upgrade.id,
        old=upgrade.old,
        new=upgrade.new,
        began=events[0].time,
        ended=end.time if end is not None else None,
        outcome=_find_outcome(end.data) if end is not None else "",
        points=list(_list_points(events)),
        lines=[_build_line(event) for event in events],
        verdicts=list(_list_verdicts(events)),
        receipt=next(
            (event.data.receipt for event in events if isinstance(event.data, Completed)), None
        ),
    )


def from_samples(samples: Sequence[Sample]) -> Timeline:
    """Build the timeline of one upgrade from its samples; at least one is needed."""
    first = samples[0]
    bare = Timeline(
        id=f"seen {first.old} {first.new}", old=first.old, new=first.new, began=first.at
    )
    return extend(bare, samples)


def extend(timeline: Timeline, samples: Sequence[Sample]) -> Timeline:
    """Extend a timeline by the samples after its last event.

    A finished timeline is returned unchanged.
    """
    if timeline.ended is not None:
        return timeline
    points, lines, ended, outcome = list(timeline.points), list(timeline.lines), None, ""
    for sample in _select_later(samples, timeline.lines[-1].at) if timeline.lines else samples:
        if not points or (points[-1].old, points[-1].new) != sample.parts:
            points.append(Point(at=sample.at, old=sample.parts[0], new=sample.parts[1]))
            lines.append(
                TimelineLine(
                    at=sample.at, kind="seen", text=_sample_text(sample), severity=Severity.PLAIN
                )
            )
        if sample.over:
            ended, outcome = sample.at, sample.over
            lines.append(
                TimelineLine(
                    at=sample.at,
                    kind="seen",
                    text=f"seen: the upgrade is over ({sample.over})",
                    severity=Severity.PLAIN,
                )
            )
    return msgspec.structs.replace(
        timeline, points=points, lines=lines, ended=ended, outcome=outcome
    )


def _select_later(samples: Sequence[Sample], last_event: datetime) -> list[Sample]:
    """Return the samples after the last event.

    Samples up to `LAG` after the event may show an older state; only the last of them is used.
    """
    late = [sample for sample in samples if sample.at > last_event + LAG]
    early = [sample for sample in samples if last_event < sample.at <= last_event + LAG]
    return [*(msgspec.structs.replace(sample, at=last_event + LAG) for sample in early[-1:]), *late]


def _list_points(events: Sequence[Event]) -> Iterator[Point]:
    """Yield the points in stream order.

    Event times come from several clocks, so they are adjusted to never decrease.
    """
    before: tuple[ClusterShare, ClusterShare] | None = None
    at = events[0].time
    for event in events:
        at = max(at, event.time)
        parts = _find_shares(event.data, events, before)
        if parts is not None and parts != before:
            yield Point(at=at, old=parts[0], new=parts[1])
            before = parts


def add_verdicts(timeline: Timeline, upgrade: RecordedUpgrade | None) -> Timeline:
    """Add the gate verdicts of the traffic record, if the timeline has none from events.

    `upgrade` is the upgrade's entry in the traffic record.
    """
    current = traffic_record.gates_of(upgrade)
    past = (
        (step.weight, gate) for step in traffic_record.past_steps(upgrade) for gate in step.gates
    )
    known = [(weight, gate) for weight, gate in past if gate.outcome != GateOutcome.INCONCLUSIVE]
    if current is not None:
        known += [(current.weight, gate) for gate in current.gates if gate_record.is_verdict(gate)]
    verdicts = [
        GateVerdict(at=gate.at, weight=weight, gate=gate.gate, outcome=gate.outcome, text=gate.text)
        for weight, gate in known
    ]
    return (
        timeline
        if timeline.verdicts or not verdicts
        else msgspec.structs.replace(timeline, verdicts=verdicts)
    )


def _list_verdicts(events: Sequence[Event]) -> Iterator[GateVerdict]:
    for event in events:
        data = event.data
        if isinstance(data, GateEvaluated):
            text = untrusted.clipped(data.message, gate_record.MAX_TEXT_LENGTH)
            gate, outcome = (
                untrusted.clipped(text, gate_record.MAX_NAME_LENGTH)
                for text in (data.gate, data.outcome)
            )
            yield GateVerdict(
                at=event.time, weight=data.traffic_percent, gate=gate, outcome=outcome, text=text
            )


def _find_shares(
    data: UpgradeEventData,
    events: Sequence[Event],
    before: tuple[ClusterShare, ClusterShare] | None,
) -> tuple[ClusterShare, ClusterShare] | None:
    """Return traffic and capacity of the old and the new cluster after an event.

    The result is None if the event has neither. `events` are all events of the upgrade, `before`
    are the shares before this event.
    """
    match data:
        case Started(reason=Cause.SPEC_CHANGED):
            first = next(
                (
                    event.data
                    for event in events
                    if isinstance(event.data, CapacityChanged | TrafficShifted)
                ),
                None,
            )
            return _ALL_OLD if first is None else _split(first.before)
        case CapacityChanged(after=after) | TrafficShifted(after=after):
            return _split(after)
        case upgrade_events.Promoted():
            return _move_shares(before, old=0, new=WHOLE)
        case RolledBack():
            return _move_shares(before, old=WHOLE, new=0)
        case _:
            return None


def _move_shares(
    before: tuple[ClusterShare, ClusterShare] | None, *, old: int, new: int
) -> tuple[ClusterShare, ClusterShare]:
    shares = before or (ClusterShare(), ClusterShare())
    return ClusterShare(traffic=old, capacity=shares[0].capacity), ClusterShare(
        traffic=new, capacity=shares[1].capacity
    )


def _split(split: ReportedSplit) -> tuple[ClusterShare, ClusterShare]:
    return _build_share(split.old), _build_share(split.new)


def _build_share(share: Share) -> ClusterShare:
    return ClusterShare(traffic=share.traffic_percent, capacity=share.capacity_percent)


def _find_outcome(data: UpgradeEventData) -> str:
    """Return the outcome of the upgrade if this event ends it, else an empty text."""
    match data:
        case Completed(receipt=receipt):
            return receipt.outcome
        case RolledBack(outcome=outcome):
            return outcome
        case Aborted(over=True):
            return UpgradeOutcome.ABORTED
        case Failed():
            return "Failed"
        case _:
            return ""


def _build_line(event: Event) -> TimelineLine:
    kind = upgrade_events.kind_of(event.type)
    severity = _SEVERITIES.get(kind, Severity.PLAIN)
    if isinstance(event.data, GateEvaluated):
        severity = next(
            (verdict for outcome, verdict in _VERDICTS.items() if outcome == event.data.outcome),
            severity,
        )
    return TimelineLine(at=event.time, kind=kind, text=rendering.describe(event), severity=severity)


def _sample_text(sample: Sample) -> str:
    sides = zip((sample.old, sample.new), sample.parts, strict=True)
    texts = [
        f"{name} traffic {_format_percent(part.traffic)}, capacity {_format_percent(part.capacity)}"
        for name, part in sides
    ]
    return f"seen: {'; '.join(texts)}"


def _format_percent(amount: int | None) -> str:
    return "not known" if amount is None else f"{amount} %"
