"""Formats an upgrade event as one line: time, RayService, description. Pure."""

from datetime import UTC
from functools import singledispatch

import msgspec

from common.upgrade import events as upgrade_events
from common.upgrade.events import (
    Aborted,
    CapacityChanged,
    CloudEvent,
    ClusterCreated,
    Completed,
    Data,
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
    Upgrade,
)
from common.upgrade.gates import Outcome


def line(subject: str, payload: bytes) -> str:
    """Format a stored message as one line.

    A message that is not an upgrade event is described as such.
    """
    try:
        event = upgrade_events.decode(payload)
    except msgspec.DecodeError as problem:
        return _plain(f"{'(no time)':20}  {subject}  is no upgrade event: {problem}")
    return _plain(
        f"{event.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}  {service(event.source)}  "
        f"{describe(event)}"
    )


def describe(event: CloudEvent[Data]) -> str:
    """Return the description of an event, without time and RayService."""
    kind = upgrade_events.kind_of(event.type)
    return _plain(
        sentence(event.data) if kind in upgrade_events.KINDS else f"{kind}: {_both(event.data)}"
    )


@singledispatch
def sentence(data: Data) -> str:
    """Return the description of an event's data; each kind of data registers its own function."""
    return _both(data)


@sentence.register
def _(data: Started) -> str:
    return (
        f"upgrade started: {_both(data)} ({data.reason}, {data.strategy}, generation "
        f"{data.generation})"
    )


@sentence.register
def _(data: ClusterCreated) -> str:
    return f"cluster created: {data.cluster}"


@sentence.register
def _(data: CapacityChanged) -> str:
    old = data.before.old.capacity_percent, data.after.old.capacity_percent
    new = data.before.new.capacity_percent, data.after.new.capacity_percent
    return f"capacity{_way(data.direction)}: {_change(data.upgrade, old, new)}"


@sentence.register
def _(data: TrafficShifted) -> str:
    old = data.before.old.traffic_percent, data.after.old.traffic_percent
    new = data.before.new.traffic_percent, data.after.new.traffic_percent
    return f"traffic{_way(data.direction)}: {_change(data.upgrade, old, new)}"


@sentence.register
def _(data: GateEvaluated) -> str:
    verb = {Outcome.PASS: "passed", Outcome.FAIL: "failed", Outcome.INCONCLUSIVE: "is waited for"}
    known = next((text for outcome, text in verb.items() if outcome == data.outcome), data.outcome)
    return f"gate {known} at {data.traffic_percent} %: {data.message}"


@sentence.register
def _(data: Paused) -> str:
    return f"paused ({data.reason}): {data.message}"


@sentence.register
def _(data: Resumed) -> str:
    return f"resumed: {_both(data)}"


@sentence.register
def _(data: Stalled) -> str:
    return f"stalled ({data.reason}): {data.message}"


@sentence.register
def _(data: Promoted) -> str:
    return f"promoted: {data.upgrade.new} serves all requests"


@sentence.register
def _(data: DrainStarted) -> str:
    return (
        f"draining: {data.cluster} gets no new requests; it is deleted after "
        f"{data.deletion_delay_seconds} s, "
        f"or {data.drain_timeout_seconds} s later while requests are in flight"
    )


@sentence.register
def _(data: Completed) -> str:
    return f"completed: {data.receipt}"


@sentence.register
def _(data: Aborted) -> str:
    return f"aborted ({data.reason}): {data.message}"


@sentence.register
def _(data: RolledBack) -> str:
    return (
        f"rolled back ({data.outcome}): {data.upgrade.old} serves all requests, "
        f"{data.upgrade.new} is deleted"
    )


@sentence.register
def _(data: Failed) -> str:
    return f"failed ({data.reason}): {data.message}"


def _both(data: Data) -> str:
    return (
        f"{data.upgrade.old} → {data.upgrade.new}"
        if data.upgrade.old
        else f"first cluster {data.upgrade.new}"
    )


def _change(upgrade: Upgrade, old: tuple[int, int], new: tuple[int, int]) -> str:
    sides = ((upgrade.old, old), (upgrade.new, new))
    return ", ".join(f"{name} {_step(*percent)} %" for name, percent in sides)


def _step(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _way(direction: Direction) -> str:
    return " (rolling back)" if direction is Direction.BACK else ""


def service(source: str) -> str:
    """Return NAMESPACE/NAME of an event's source.

    A source that is not a RayService is returned unchanged.
    """
    match source.split("/"):
        case ["", "apis", "ray.io", "v1", "namespaces", namespace, "rayservices", name]:
            return f"{namespace}/{name}"
        case _:
            return source


def _plain(text: str) -> str:
    """Replace unprintable characters, because messages may quote text that an application wrote."""
    return "".join(character if character.isprintable() else " " for character in text)
