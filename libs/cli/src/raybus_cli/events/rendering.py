"""Formats an event as one line: time, RayService or RayJob, description. Does no I/O."""

from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import Any, Final

import msgspec

from common import durations, event_catalogue
from common.bus import cloud_events
from common.bus.cloud_events import CloudEvent, EventData
from common.ray.job_events import (
    JobDeleted,
    JobEventData,
    JobFailed,
    JobRetried,
    JobRunning,
    JobStopped,
    JobSubmitted,
    JobSucceeded,
    JobSuspended,
)
from common.upgrade.events import (
    Aborted,
    CapacityChanged,
    ClusterCreated,
    Completed,
    Direction,
    DrainStarted,
    Failed,
    GateEvaluated,
    Paused,
    Promoted,
    Resumed,
    RolledBack,
    Stalled,
    Started,
    TrafficShifted,
    UpgradeEventData,
    UpgradeReference,
)
from common.upgrade.gates import GateOutcome


def format_line(subject: str, payload: bytes) -> str:
    """Format a stored message as one line.

    A message that is not an event of raybus is described as such.
    """
    try:
        event = event_catalogue.decode(payload)
    except msgspec.DecodeError as problem:
        return _escape(f"{'(no time)':20}  {subject}  is no event of raybus: {problem}")
    return _escape(
        f"{event.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}  {format_object(event.source)}  "
        f"{describe(event)}"
    )


def describe(event: CloudEvent[Any]) -> str:
    """Return the description of an event, without time and object."""
    kind, text = event_catalogue.kind_of(event.type), describe_data(event.data)
    return _escape(text if kind in event_catalogue.KINDS else f"{kind}: {text}")


TEXTS: Final[Mapping[type[EventData], str]] = {
    Started: (
        "upgrade started: {shares} ({data.reason}, {data.strategy}, generation {data.generation})"
    ),
    ClusterCreated: "cluster created: {data.cluster}",
    CapacityChanged: "capacity{direction}: {capacities}",
    TrafficShifted: "traffic{direction}: {weights}",
    GateEvaluated: "gate {outcome} at {data.traffic_percent} %: {data.message}",
    Paused: "paused ({data.reason}): {data.message}",
    Resumed: "resumed: {shares}",
    Stalled: "stalled ({data.reason}): {data.message}",
    Promoted: "promoted: {data.upgrade.new} serves all requests",
    DrainStarted: (
        "draining: {data.cluster} gets no new requests; it is deleted after "
        "{data.deletion_delay_seconds} s, "
        "or {data.drain_timeout_seconds} s later while requests are in flight"
    ),
    Completed: "completed: {data.receipt}",
    Aborted: "aborted ({data.reason}): {data.message}",
    RolledBack: (
        "rolled back ({data.outcome}): {data.upgrade.old} serves all requests, "
        "{data.upgrade.new} is deleted"
    ),
    Failed: "failed ({data.reason}): {data.message}",
    JobSubmitted: (
        "attempt {data.attempt.number} of {data.max_attempts} begins: {data.attempt.cluster}{run}"
    ),
    JobRunning: "job runs: {data.attempt.submission_id} on {data.attempt.cluster}",
    JobSucceeded: "job succeeded{duration}",
    JobStopped: "job stopped{duration}",
    JobFailed: "job failed in attempt {data.attempt.number}{duration}{cause}",
    JobRetried: "attempt {data.attempt.number} failed, another one follows{cause}",
    JobSuspended: "job suspended in attempt {data.attempt.number}",
    JobDeleted: "job deleted ({data.state})",
}
"""Text for each kind of event. `_build_parts` computes the placeholders that do not name a field.
"""

_OUTCOMES: Final[Mapping[str, str]] = {
    GateOutcome.PASS: "passed",
    GateOutcome.FAIL: "failed",
    GateOutcome.INCONCLUSIVE: "is waited for",
}


def describe_data(data: EventData) -> str:
    """Describe the data of an event; of an unknown kind, only the fields that all kinds have."""
    text = TEXTS.get(type(data))
    if text is not None:
        return text.format(data=data, **_build_parts(data))
    match data:
        case UpgradeEventData():
            return _format_shares(data)
        case JobEventData():
            return f"attempt {data.attempt.number}"
        case _:
            return data.kind


def _build_parts(data: EventData) -> dict[str, str]:
    """Return the parts of a description that need more than one field."""
    parts: dict[str, str] = {}
    if isinstance(data, UpgradeEventData):
        parts["shares"] = _format_shares(data)
    match data:
        case CapacityChanged(before=before, after=after):
            old = before.old.capacity_percent, after.old.capacity_percent
            new = before.new.capacity_percent, after.new.capacity_percent
            parts["capacities"] = _format_change(data.upgrade, old, new)
            parts["direction"] = _format_direction(data.direction)
        case TrafficShifted(before=before, after=after):
            old = before.old.traffic_percent, after.old.traffic_percent
            new = before.new.traffic_percent, after.new.traffic_percent
            parts["weights"] = _format_change(data.upgrade, old, new)
            parts["direction"] = _format_direction(data.direction)
        case GateEvaluated():
            parts["outcome"] = _OUTCOMES.get(data.outcome, data.outcome)
        case JobSubmitted(attempt=attempt):
            is_scheduled = bool(attempt.cron_job)
            parts["run"] = f", run of RayCronJob {attempt.cron_job}" if is_scheduled else ""
        case JobSucceeded() | JobStopped():
            parts["duration"] = _format_duration(data.duration_seconds)
        case JobFailed():
            parts["duration"] = _format_duration(data.duration_seconds)
            parts["cause"] = _format_cause(data)
        case JobRetried():
            parts["cause"] = _format_cause(data)
        case _:
            pass
    return parts


def _format_duration(seconds: int | None) -> str:
    return "" if seconds is None else f" after {durations.text(timedelta(seconds=seconds))}"


def _format_cause(data: JobFailed | JobRetried) -> str:
    code = "" if data.exit_code is None else f", exit code {data.exit_code}"
    message = f": {data.message}" if data.message else ""
    return f" ({data.reason}{code}){message}"


def _format_shares(data: UpgradeEventData) -> str:
    return (
        f"{data.upgrade.old} → {data.upgrade.new}"
        if data.upgrade.old
        else f"first cluster {data.upgrade.new}"
    )


def _format_change(upgrade: UpgradeReference, old: tuple[int, int], new: tuple[int, int]) -> str:
    sides = ((upgrade.old, old), (upgrade.new, new))
    return ", ".join(f"{name} {_format_step(*percent)} %" for name, percent in sides)


def _format_step(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _format_direction(direction: Direction) -> str:
    return " (rolling back)" if direction is Direction.BACK else ""


def format_object(source: str) -> str:
    """Return the object of an event's source as NAMESPACE/NAME.

    A source that is no object of raybus is returned unchanged.
    """
    parsed = cloud_events.parse_source(source)
    return source if parsed is None else f"{parsed.namespace}/{parsed.name}"


def _escape(text: str) -> str:
    """Replace unprintable characters, because messages may quote text that an application wrote."""
    return "".join(character if character.isprintable() else " " for character in text)
