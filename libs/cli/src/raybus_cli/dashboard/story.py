"""What an upgrade was like, made from its events, or from what was seen of it where nobody tells; pure.

A point holds from its time until the next one. What nobody tells is None, never a guess: upgrades that move all traffic at once
have no capacities.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from common import upgrade_events
from common.traffic_record import WHOLE
from common.upgrade_events import (
    Aborted,
    CapacityChanged,
    Cause,
    CloudEvent,
    Completed,
    Data,
    Failed,
    RolledBack,
    Share,
    Split,
    Started,
    TrafficShifted,
)
from common.upgrade_receipt import Outcome, Receipt
from raybus_cli.events import words

Event = CloudEvent[Data]


class Mood(StrEnum):
    """How a line of the timeline is to be taken."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster's part, in percent; None is not known."""

    traffic: int | None = None
    capacity: int | None = None


class Point(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How it was from a moment on."""

    at: datetime
    old: Part
    new: Part


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of the timeline."""

    at: datetime
    kind: str
    text: str
    mood: Mood


class Story(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One upgrade."""

    id: str
    old: str
    new: str
    began: datetime
    ended: datetime | None = None
    outcome: str = ""
    """Empty while it goes on."""
    points: list[Point] = []
    lines: list[Line] = []
    receipt: Receipt | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of an upgrade at a moment; `over` is its outcome, once it is not there any more."""

    at: datetime
    old: str
    new: str
    parts: tuple[Part, Part]
    over: str = ""


LAG: Final = timedelta(seconds=3)
"""By so much a status may be behind an event, which is told first."""

_MOODS: Final = {
    "promoted": Mood.GOOD,
    "completed": Mood.GOOD,
    "paused": Mood.WARN,
    "rolled-back": Mood.WARN,
    "stalled": Mood.BAD,
    "aborted": Mood.BAD,
    "failed": Mood.BAD,
}
_ALL_OLD: Final = (Part(traffic=WHOLE), Part(traffic=0))


def tell(events: Sequence[Event]) -> Story:
    """Return the story of one upgrade's events, in their order; there is at least one."""
    upgrade = events[0].data.upgrade
    end = next((each for each in events if _outcome(each.data)), None)
    return Story(
        id=upgrade.id,
        old=upgrade.old,
        new=upgrade.new,
        began=events[0].time,
        ended=end.time if end is not None else None,
        outcome=_outcome(end.data) if end is not None else "",
        points=list(_points(events)),
        lines=[_line(each) for each in events],
        receipt=next((each.data.receipt for each in events if isinstance(each.data, Completed)), None),
    )


def seen(samples: Sequence[Sample]) -> Story:
    """Return the story of what was seen of one upgrade; there is at least one sample."""
    first = samples[0]
    bare = Story(id=f"seen {first.old} {first.new}", old=first.old, new=first.new, began=first.at)
    return go_on(bare, samples)


def go_on(story: Story, samples: Sequence[Sample]) -> Story:
    """Return a story that goes on with what was seen after its last event."""
    if story.ended is not None:
        return story
    points, lines, ended, outcome = list(story.points), list(story.lines), None, ""
    for each in _news(samples, story.lines[-1].at) if story.lines else samples:
        if not points or (points[-1].old, points[-1].new) != each.parts:
            points.append(Point(at=each.at, old=each.parts[0], new=each.parts[1]))
            lines.append(Line(at=each.at, kind="seen", text=_sight(each), mood=Mood.PLAIN))
        if each.over:
            ended, outcome = each.at, each.over
            lines.append(
                Line(at=each.at, kind="seen", text=f"seen: the upgrade is over ({each.over})", mood=Mood.PLAIN)
            )
    return msgspec.structs.replace(story, points=points, lines=lines, ended=ended, outcome=outcome)


def _news(samples: Sequence[Sample], told: datetime) -> list[Sample]:
    """Return what was seen since the last event; of what may be older than it, only the end counts."""
    late = [each for each in samples if each.at > told + LAG]
    early = [each for each in samples if told < each.at <= told + LAG]
    return [*(msgspec.structs.replace(each, at=told + LAG) for each in early[-1:]), *late]


def _points(events: Sequence[Event]) -> Iterator[Point]:
    """Yield the points in the order of the stream, which holds; times come from several clocks, and never go back here."""
    before: tuple[Part, Part] | None = None
    at = events[0].time
    for each in events:
        at = max(at, each.time)
        parts = _parts(each.data, events, before)
        if parts is not None and parts != before:
            yield Point(at=at, old=parts[0], new=parts[1])
            before = parts


def _parts(data: Data, events: Sequence[Event], before: tuple[Part, Part] | None) -> tuple[Part, Part] | None:
    """Return what holds from an event on; None where it says nothing of that."""
    match data:
        case Started(reason=Cause.SPEC_CHANGED):
            first = next(
                (each.data for each in events if isinstance(each.data, CapacityChanged | TrafficShifted)), None
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
    return Part(traffic=old, capacity=held[0].capacity), Part(traffic=new, capacity=held[1].capacity)


def _split(split: Split) -> tuple[Part, Part]:
    return _part(split.old), _part(split.new)


def _part(share: Share) -> Part:
    return Part(traffic=share.traffic_percent, capacity=share.capacity_percent)


def _outcome(data: Data) -> str:
    """Return how an upgrade ended, empty when an event is not its end."""
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
    return Line(at=event.time, kind=kind, text=words.told(event), mood=_MOODS.get(kind, Mood.PLAIN))


def _sight(sample: Sample) -> str:
    sides = zip((sample.old, sample.new), sample.parts, strict=True)
    told = [f"{name} traffic {_percent(part.traffic)}, capacity {_percent(part.capacity)}" for name, part in sides]
    return f"seen: {'; '.join(told)}"


def _percent(amount: int | None) -> str:
    return "not known" if amount is None else f"{amount} %"
