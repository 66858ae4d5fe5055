"""The events of an upgrade, one of every kind and in an order that can happen, for those who read them."""

from datetime import UTC, datetime, timedelta
from typing import Final

from common import upgrade_events
from common.upgrade_events import (
    Aborted,
    CapacityChanged,
    Cause,
    ClusterCreated,
    Completed,
    Data,
    Direction,
    DrainStarted,
    Event,
    Failed,
    Paused,
    Promoted,
    Resumed,
    RolledBack,
    Share,
    Split,
    Stalled,
    Started,
    TrafficShifted,
)
from common.upgrade_receipt import Outcome, Receipt, Seconds

BEGAN: Final = datetime(2026, 1, 31, 10, 0, tzinfo=UTC)


def a_story(name: str = "greeter", *, namespace: str = "default", new: str = "greeter-new") -> list[Event]:
    """Return an upgrade in two steps, with a pause and a stall, from its start to its receipt."""
    of = upgrade_events.upgrade(f"uid-of-{namespace}-{name}", "greeter-old", new)
    idle, half, full = _split((100, 100), (0, 0)), _split((100, 50), (50, 50)), _split((0, 0), (100, 100))
    told: list[tuple[Data, str]] = [
        (
            Started(upgrade=of, reason=Cause.SPEC_CHANGED, strategy="NewClusterWithIncrementalUpgrade", generation=2),
            "",
        ),
        (ClusterCreated(upgrade=of, cluster=new, uid="uid-1"), "uid-1"),
        (CapacityChanged(upgrade=of, direction=Direction.FORWARD, before=idle, after=half), "1"),
        (TrafficShifted(upgrade=of, direction=Direction.FORWARD, before=idle, after=half), "1"),
        (Paused(upgrade=of, reason="Requested", message="raybus.io/pause is true"), "1"),
        (Resumed(upgrade=of), "1"),
        (Stalled(upgrade=of, reason="NoCapacity", message="2 pods wait for a node"), "1"),
        (TrafficShifted(upgrade=of, direction=Direction.FORWARD, before=half, after=full), "2"),
        (Promoted(upgrade=of), ""),
        (
            DrainStarted(upgrade=of, cluster="greeter-old", deletion_delay_seconds=60, drain_timeout_seconds=30),
            "",
        ),
        (Completed(upgrade=of, receipt=_receipt(new)), ""),
    ]
    return [_event(namespace, name, number, *each) for number, each in enumerate(told)]


def a_retreat(name: str = "greeter", *, namespace: str = "default") -> list[Event]:
    """Return what tells of upgrades that came to nothing."""
    of = upgrade_events.upgrade(f"uid-of-{namespace}-{name}", "greeter-old", "greeter-bad")
    half, back = _split((100, 50), (50, 50)), _split((100, 100), (50, 0))
    told: list[tuple[Data, str]] = [
        (Aborted(upgrade=of, reason="Requested", message="raybus.io/abort is true", over=False), ""),
        (TrafficShifted(upgrade=of, direction=Direction.BACK, before=half, after=back), "3"),
        (RolledBack(upgrade=of, outcome=Outcome.ROLLED_BACK), ""),
        (Failed(upgrade=of, reason="InitializingTimeout", message="not ready within 30 min"), ""),
    ]
    return [_event(namespace, name, 100 + number, *each) for number, each in enumerate(told)]


def _event(namespace: str, name: str, number: int, data: Data, fact: str) -> Event:
    identity = upgrade_events.identity(data.upgrade, type(data), *([fact] if fact else []))
    return Event(namespace=namespace, name=name, id=identity, time=BEGAN + timedelta(seconds=10 * number), data=data)


def _split(old: tuple[int, int], new: tuple[int, int]) -> Split:
    """Build from (capacity, traffic) of both."""
    sides = [Share(capacity_percent=capacity, traffic_percent=traffic) for capacity, traffic in (old, new)]
    return Split(old=sides[0], new=sides[1])


def _receipt(new: str) -> Receipt:
    return Receipt(
        old="greeter-old",
        new=new,
        outcome=Outcome.PROMOTED,
        started=BEGAN,
        finished=BEGAN + timedelta(seconds=100),
        seconds=Seconds(preparing=20, shifting=60, draining=20),
        peak_surge_percent=50,
        lowest_capacity_percent=100,
        requests_cut=0,
    )
