"""Laws of the events of one upgrade as any reader sees them, without repetitions."""

from collections.abc import Callable, Iterator
from typing import Final

from common.bus.cloud_events import CloudEvent
from common.upgrade import events as upgrade_events
from common.upgrade.events import (
    Aborted,
    CapacityChanged,
    Cause,
    ReportedSplit,
    Share,
    Started,
    TrafficShifted,
    UpgradeEventData,
)
from common.upgrade.traffic_record import WHOLE
from support.laws import Finding, Law, find_broken

Numbers = tuple[tuple[int, int], tuple[int, int]]
"""Capacity and weight of the old cluster, then of the new one."""
AT_FIRST: Numbers = ((WHOLE, WHOLE), (0, 0))
AT_LAST: Numbers = ((0, 0), (WHOLE, WHOLE))
Events = list[CloudEvent[UpgradeEventData]]
ENDS = {"completed", "rolled-back", "failed"}


def kinds(events: list[CloudEvent[UpgradeEventData]]) -> list[str]:
    """Return the kinds of events."""
    return [upgrade_events.kind_of(each.type) for each in events]


def numbers(split: ReportedSplit) -> Numbers:
    """Return a split as two pairs of numbers."""
    return (_part(split.old), _part(split.new))


def _order(events: list[CloudEvent[UpgradeEventData]]) -> Iterator[str]:
    order = kinds(events)
    ends = [
        kind
        for kind, event in zip(order, events, strict=True)
        if kind in ENDS or (isinstance(event.data, Aborted) and event.data.over)
    ]
    if order[0] not in {"started", "failed"} or order.count("started") > 1:
        yield f"it does not begin with started: {order}"
    if len(ends) != 1 or order[-1] not in {*ENDS, "aborted"}:
        yield f"it does not end once: {order}"
    if order[-1] == "completed" and "promoted" not in order:
        yield f"it is completed and was not promoted: {order}"
    later = [
        order.index(each)
        for each in ("capacity-changed", "traffic-shifted", "promoted")
        if each in order
    ]
    if later and ("cluster-created" not in order or order.index("cluster-created") > min(later)):
        yield f"cluster-created comes too late: {order}"


def _chain(events: list[CloudEvent[UpgradeEventData]]) -> Iterator[str]:
    """Yield the steps that do not begin where the previous step ended, so that an event is missing."""
    last: Numbers | None = AT_FIRST
    for each in events:
        if isinstance(each.data, Started) and each.data.reason is Cause.ACTIVE_CLUSTER_GONE:
            last = None  # the new cluster begins with everything, since there is no other
        if isinstance(each.data, CapacityChanged | TrafficShifted):
            before = numbers(each.data.before)
            if last is not None and before != last:
                yield f"a step begins at {before} after {last}"
            last = numbers(each.data.after)


def _part(part: Share) -> tuple[int, int]:
    return (part.capacity_percent, part.traffic_percent)


def splits(events: list[CloudEvent[UpgradeEventData]]) -> list[Numbers]:
    """Return the split after each step."""
    return [
        numbers(each.data.after)
        for each in events
        if isinstance(each.data, CapacityChanged | TrafficShifted)
    ]


def _of_events(check: Callable[[Events], Iterator[str]]) -> Callable[[Events], Iterator[Finding]]:
    return lambda events: (("the upgrade", text) for text in check(events))


LAWS: Final[tuple[Law[Events], ...]] = (
    Law(
        name="order",
        source="events/README.md",
        reads="the kinds of all events of an upgrade",
        check=_of_events(_order),
    ),
    Law(
        name="chain",
        source="events/README.md",
        reads="the capacities and weights before and after each step",
        check=_of_events(_chain),
    ),
)
"""Laws of the events of one upgrade."""


def broken(events: Events) -> Iterator[str]:
    """Yield the violations of the laws."""
    return (each.text for each in find_broken(LAWS, events))
