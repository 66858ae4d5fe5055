"""Formats an event as one line: time, RayService or RayJob, description. Does no I/O."""

from datetime import UTC, timedelta
from functools import singledispatch
from typing import Any

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


@singledispatch
def describe_data(data: EventData) -> str:
    """Return the description of an event's data; each kind of data registers its own function."""
    return data.kind


@describe_data.register
def _(data: UpgradeEventData) -> str:
    return _format_shares(data)


@describe_data.register
def _(data: Started) -> str:
    return (
        f"upgrade started: {_format_shares(data)} ({data.reason}, {data.strategy}, generation "
        f"{data.generation})"
    )


@describe_data.register
def _(data: ClusterCreated) -> str:
    return f"cluster created: {data.cluster}"


@describe_data.register
def _(data: CapacityChanged) -> str:
    old = data.before.old.capacity_percent, data.after.old.capacity_percent
    new = data.before.new.capacity_percent, data.after.new.capacity_percent
    return f"capacity{_format_direction(data.direction)}: {_change(data.upgrade, old, new)}"


@describe_data.register
def _(data: TrafficShifted) -> str:
    old = data.before.old.traffic_percent, data.after.old.traffic_percent
    new = data.before.new.traffic_percent, data.after.new.traffic_percent
    return f"traffic{_format_direction(data.direction)}: {_change(data.upgrade, old, new)}"


@describe_data.register
def _(data: GateEvaluated) -> str:
    verb = {
        GateOutcome.PASS: "passed",
        GateOutcome.FAIL: "failed",
        GateOutcome.INCONCLUSIVE: "is waited for",
    }
    known = next((text for outcome, text in verb.items() if outcome == data.outcome), data.outcome)
    return f"gate {known} at {data.traffic_percent} %: {data.message}"


@describe_data.register
def _(data: Paused) -> str:
    return f"paused ({data.reason}): {data.message}"


@describe_data.register
def _(data: Resumed) -> str:
    return f"resumed: {_format_shares(data)}"


@describe_data.register
def _(data: Stalled) -> str:
    return f"stalled ({data.reason}): {data.message}"


@describe_data.register
def _(data: Promoted) -> str:
    return f"promoted: {data.upgrade.new} serves all requests"


@describe_data.register
def _(data: DrainStarted) -> str:
    return (
        f"draining: {data.cluster} gets no new requests; it is deleted after "
        f"{data.deletion_delay_seconds} s, "
        f"or {data.drain_timeout_seconds} s later while requests are in flight"
    )


@describe_data.register
def _(data: Completed) -> str:
    return f"completed: {data.receipt}"


@describe_data.register
def _(data: Aborted) -> str:
    return f"aborted ({data.reason}): {data.message}"


@describe_data.register
def _(data: RolledBack) -> str:
    return (
        f"rolled back ({data.outcome}): {data.upgrade.old} serves all requests, "
        f"{data.upgrade.new} is deleted"
    )


@describe_data.register
def _(data: Failed) -> str:
    return f"failed ({data.reason}): {data.message}"


@describe_data.register
def _(data: JobEventData) -> str:
    return f"attempt {data.attempt.number}"


@describe_data.register
def _(data: JobSubmitted) -> str:
    attempt = data.attempt
    run = f", run of RayCronJob {attempt.cron_job}" if attempt.cron_job else ""
    return f"attempt {attempt.number} of {data.max_attempts} begins: {attempt.cluster}{run}"


@describe_data.register
def _(data: JobRunning) -> str:
    return f"job runs: {data.attempt.submission_id} on {data.attempt.cluster}"


@describe_data.register
def _(data: JobSucceeded) -> str:
    return f"job succeeded{_format_duration(data.duration_seconds)}"


@describe_data.register
def _(data: JobStopped) -> str:
    return f"job stopped{_format_duration(data.duration_seconds)}"


@describe_data.register
def _(data: JobFailed) -> str:
    return (
        f"job failed in attempt {data.attempt.number}{_format_duration(data.duration_seconds)}"
        f"{_format_cause(data)}"
    )


@describe_data.register
def _(data: JobRetried) -> str:
    return f"attempt {data.attempt.number} failed, another one follows{_format_cause(data)}"


@describe_data.register
def _(data: JobSuspended) -> str:
    return f"job suspended in attempt {data.attempt.number}"


@describe_data.register
def _(data: JobDeleted) -> str:
    return f"job deleted ({data.state})"


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


def _change(upgrade: UpgradeReference, old: tuple[int, int], new: tuple[int, int]) -> str:
    sides = ((upgrade.old, old), (upgrade.new, new))
    return ", ".join(f"{name} {_format_step(*percent)} %" for name, percent in sides)


def _format_step(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _format_direction(direction: Direction) -> str:
    return " (rolling back)" if direction is Direction.BACK else ""


def format_object(source: str) -> str:
    """Return NAMESPACE/NAME of an event's source.

    A source that is no object of raybus is returned unchanged.
    """
    parsed = cloud_events.parse_source(source)
    return source if parsed is None else f"{parsed.namespace}/{parsed.name}"


def _escape(text: str) -> str:
    """Replace unprintable characters, because messages may quote text that an application wrote."""
    return "".join(character if character.isprintable() else " " for character in text)
