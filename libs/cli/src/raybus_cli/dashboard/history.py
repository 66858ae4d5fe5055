"""Keeps the history of upgrades from events and samples: the newest few of each RayService, each event once.

Events take precedence over samples, since they are complete and carry the cluster's own time. Samples fill in where the bus is
out of reach, and where it has discarded an upgrade.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from common.api.ray_service import RayService
from common.bus.nats import Stored
from common.upgrade import events as upgrade_events
from common.upgrade.receipt import Outcome
from raybus_cli.dashboard import timeline
from raybus_cli.dashboard.timeline import Event, Part, Sample, Timeline
from raybus_cli.events import rendering
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import tree

KEPT: Final = 5
"""Upgrades of each RayService."""
MOST_EVENTS: Final = 1000
"""Of one upgrade: a hundred steps have some four hundred."""
MOST_EVENTS_OF_ALL: Final = 50_000
MOST_SAMPLES: Final = 500
MOST_SERVICES: Final = 1000
"""RayServices with events; the one without an event for the longest time is dropped, as for too many events of all."""


class EventLog:
    """The events of the bus, of all RayServices."""

    def __init__(self, changed: Callable[[str], None], caught_up: Callable[[], None]) -> None:
        self._changed = changed
        self._caught_up = caught_up
        self._count = 0
        self._events: dict[str, dict[str, dict[str, Event]]] = {}
        """RayService → upgrade → event, by their ids; the RayService with the newest event is last."""

    def take(self, event: Stored) -> bool:
        """Keep an event; skip a foreign one."""
        try:
            read = upgrade_events.decode(event.payload)
        except msgspec.DecodeError:
            return True
        key = rendering.service(read.source)
        upgrades = self._events[key] = self._events.pop(key, {})
        events = upgrades.setdefault(read.data.upgrade.id, {})
        if read.id not in events and len(events) < MOST_EVENTS:
            events[read.id] = read
            self._count += 1
            self._changed(key)
        while len(upgrades) > KEPT:
            self._count -= len(upgrades.pop(next(iter(upgrades))))
        while len(self._events) > MOST_SERVICES or self._count > MOST_EVENTS_OF_ALL:
            self._count -= sum(map(len, self._events.pop(next(iter(self._events))).values()))
        return True

    def caught_up(self) -> bool:
        """Note that there are no more for now."""
        self._caught_up()
        return True

    def upgrades(self, key: str) -> list[Timeline]:
        """Return the upgrades of a RayService."""
        return [timeline.from_events(list(events.values())) for events in self._events.get(key, {}).values()]


class History:
    """The known upgrades: those of an event log, and samples of its own."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._samples: dict[str, deque[Sample]] = {}

    def see(self, key: str, service: RayService, *, now: datetime) -> None:
        """Keep a sample of a RayService's upgrade."""
        samples = self._samples.get(key)
        last = samples[-1] if samples else None
        found = _sample(service, last, now=now)
        if found is None or (last is not None and _same(found, last)):
            return
        self._samples.setdefault(key, deque(maxlen=MOST_SAMPLES)).append(found)

    def timelines(self, key: str, *, has_all_events: bool) -> list[Timeline]:
        """Return the upgrades of a RayService, newest first; `has_all_events` means that all events have arrived."""
        found = self._events.upgrades(key)
        pairs: dict[tuple[str, str], list[Sample]] = {}
        for each in self._samples.get(key, ()):
            pairs.setdefault((each.old, each.new), []).append(each)
        known = {(each.old, each.new) for each in found}
        if not has_all_events:
            found = [timeline.extended(each, pairs.get((each.old, each.new), [])) for each in found]
        found += [timeline.from_samples(samples) for pair, samples in pairs.items() if pair not in known]
        return sorted(found, key=lambda each: each.began, reverse=True)[:KEPT]


def _sample(service: RayService, last: Sample | None, *, now: datetime) -> Sample | None:
    """Return a sample of an upgrade in progress, or of the end of one that was in progress at the last sample."""
    status = service.status
    sides = (status.active_service_status, status.pending_service_status)
    old, new = (each.ray_cluster_name for each in sides)
    if old and new:
        snapshot = Snapshot(service=service)
        weights = [tree.weight(snapshot, each.ray_cluster_name) for each in sides]
        parts = [
            Part(traffic=weight, capacity=each.target_capacity) for weight, each in zip(weights, sides, strict=True)
        ]
        return Sample(at=now, old=old, new=new, parts=(parts[0], parts[1]))
    if last is None or last.over or old not in {last.old, last.new}:
        return None
    is_new = old == last.new
    parts = [
        msgspec.structs.replace(part, traffic=weight)
        for part, weight in zip(last.parts, _ends(is_new=is_new), strict=True)
    ]
    over = Outcome.PROMOTED if is_new else Outcome.ROLLED_BACK
    return Sample(at=now, old=last.old, new=last.new, parts=(parts[0], parts[1]), over=over)


def _ends(*, is_new: bool) -> tuple[int, int]:
    return (0, 100) if is_new else (100, 0)


def _same(one: Sample, other: Sample) -> bool:
    return msgspec.structs.replace(one, at=other.at) == other
