"""The invariants of the events of one upgrade, for any reader; repetitions are left out before."""

from collections.abc import Iterator

from common.upgrade import events as upgrade_events
from common.upgrade.events import (
    Aborted,
    CapacityChanged,
    Cause,
    CloudEvent,
    Data,
    Share,
    Split,
    Started,
    TrafficShifted,
)
from common.upgrade.traffic_record import WHOLE

Numbers = tuple[tuple[int, int], tuple[int, int]]
"""Capacity and weight, of the old and of the new cluster."""
AT_FIRST: Numbers = ((WHOLE, WHOLE), (0, 0))
AT_LAST: Numbers = ((0, 0), (WHOLE, WHOLE))
ENDS = {"completed", "rolled-back", "failed"}


def kinds(events: list[CloudEvent[Data]]) -> list[str]:
    """Return the kinds of events."""
    return [upgrade_events.kind_of(each.type) for each in events]


def broken(events: list[CloudEvent[Data]]) -> Iterator[str]:
    """Yield what does not hold."""
    yield from _order(events)
    yield from _chain(events)


def numbers(split: Split) -> Numbers:
    """Return a split as numbers."""
    return (_part(split.old), _part(split.new))


def _order(events: list[CloudEvent[Data]]) -> Iterator[str]:
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


def _chain(events: list[CloudEvent[Data]]) -> Iterator[str]:
    """Yield where a step does not begin where the last one ended, so that one is missing."""
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


def splits(events: list[CloudEvent[Data]]) -> list[Numbers]:
    """Return what each step led to."""
    return [
        numbers(each.data.after)
        for each in events
        if isinstance(each.data, CapacityChanged | TrafficShifted)
    ]
