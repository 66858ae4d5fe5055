"""Keeps the history of upgrades from events, which a listener consumes, and from samples: the newest few of each RayService, each event once.

Events take precedence over samples, since they are complete and carry the cluster's own time. Samples fill in where the bus is
out of reach, and where it has discarded an upgrade.

An unreachable bus is retried again and again: the page shows what the API server shows.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, Protocol

import msgspec

from common import errors
from common.api.ray_service import RayService
from common.bus import subjects
from common.bus.consumer import from_sequence
from common.bus.nats import Stored
from common.upgrade import events as upgrade_events
from common.upgrade.receipt import Outcome
from raybus_cli import session
from raybus_cli.dashboard import timeline
from raybus_cli.dashboard.board import EventFeed
from raybus_cli.dashboard.timeline import Event, Part, Sample, Timeline
from raybus_cli.events import rendering, run
from raybus_cli.events.run import Read, Way
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import tree

KEPT: Final = 5
"""Upgrades of each RayService."""
MOST_EVENTS: Final = 1000
"""Of one upgrade: a hundred steps have some four hundred."""
MOST_EVENTS_OF_ALL: Final = 50_000
MOST_SAMPLES: Final = 500
"""Of one RayService."""
MOST_SAMPLES_OF_ALL: Final = 50_000
MOST_SERVICES: Final = 1000
"""RayServices with events, or with samples.

The one without a new one for the longest time is dropped, as for too many of all.
"""


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
        return [
            timeline.from_events(list(events.values()))
            for events in self._events.get(key, {}).values()
        ]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the upgrade of a RayService is."""

    old: str
    """The name of the active cluster; empty without one."""
    new: str
    """The name of the pending cluster; empty without one."""
    parts: tuple[Part, Part] | None = None
    """None without an upgrade in progress."""


def progress_of(service: RayService) -> Progress:
    """Return how far the upgrade of a RayService is, by its status."""
    status = service.status
    active, pending = sides = (status.active_service_status, status.pending_service_status)
    old, new = (each.ray_cluster_name for each in sides)
    if not (old and new):
        return Progress(old=old, new=new)
    snapshot = Snapshot(service=service)
    parts = (
        Part(traffic=tree.weight(snapshot, old), capacity=active.target_capacity),
        Part(traffic=tree.weight(snapshot, new), capacity=pending.target_capacity),
    )
    return Progress(old=old, new=new, parts=parts)


class History:
    """The known upgrades: those of an event log, and samples of its own."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._samples: dict[str, deque[Sample]] = {}
        """By RayService; the one with the newest sample is last."""
        self._count = 0

    def see(self, key: str, progress: Progress, *, now: datetime) -> None:
        """Keep a sample of a RayService's upgrade."""
        samples = self._samples.get(key)
        last = samples[-1] if samples else None
        found = _sample(progress, last, now=now)
        if found is None or (last is not None and _same(found, last)):
            return
        samples = self._samples[key] = self._samples.pop(key, deque(maxlen=MOST_SAMPLES))
        self._count += len(samples) < MOST_SAMPLES
        samples.append(found)
        while len(self._samples) > MOST_SERVICES or self._count > MOST_SAMPLES_OF_ALL:
            self._count -= len(self._samples.pop(next(iter(self._samples))))

    def timelines(self, key: str, *, has_all_events: bool) -> list[Timeline]:
        """Return the upgrades of a RayService, newest first; `has_all_events` means that all events have arrived."""
        found = self._events.upgrades(key)
        pairs: dict[tuple[str, str], list[Sample]] = {}
        for each in self._samples.get(key, ()):
            pairs.setdefault((each.old, each.new), []).append(each)
        known = {(each.old, each.new) for each in found}
        if not has_all_events:
            found = [timeline.extended(each, pairs.get((each.old, each.new), [])) for each in found]
        found += [
            timeline.from_samples(samples) for pair, samples in pairs.items() if pair not in known
        ]
        return sorted(found, key=lambda each: each.began, reverse=True)[:KEPT]


def _sample(progress: Progress, last: Sample | None, *, now: datetime) -> Sample | None:
    """Return a sample of an upgrade in progress, or of the end of one that was in progress at the last sample."""
    old, new = progress.old, progress.new
    if progress.parts is not None:
        return Sample(at=now, old=old, new=new, parts=progress.parts)
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


AGAIN: Final = 10.0
"""Seconds until an unreachable bus is retried."""
EVERY: Final = "*"

Through = Callable[[Read], Awaitable[None]]
"""Connects to NATS, and reads there."""


class Audience(Protocol):
    """What is shown follows the events."""

    def set_feed(self, event_feed: EventFeed, problem: str = "") -> None:
        """Note whether events arrive."""
        ...

    def request_read(self, key: str) -> None:
        """Note that a RayService has changed."""
        ...


class Listener:
    """Consumes events until it is cancelled."""

    def __init__(
        self, through: Through, namespace: str | None, audience: Audience, events: EventLog
    ) -> None:
        self._through = through
        self._subject = (
            subjects.ALL_EVENTS
            if namespace is None
            else subjects.upgrade_event(namespace, EVERY, EVERY)
        )
        self._audience = audience
        self._events = events

    async def listen(self) -> None:
        """Hand events on to the event log; show an error and retry."""
        while True:
            try:
                await self._through(self._read)
            except errors.RaybusError as problem:
                self._miss(problem)
            except BaseExceptionGroup as met:
                problem = session.first(met)
                if not isinstance(problem, errors.RaybusError):
                    raise
                self._miss(problem)
            await asyncio.sleep(AGAIN)

    async def _read(self, way: Way) -> None:
        async with run.reached(way) as reach:
            await reach.read(
                self._subject,
                from_sequence(1),
                self._events,
                is_patient=True,
                report=lambda line: self._audience.set_feed(EventFeed.AWAY, line),
            )

    def _miss(self, problem: BaseException) -> None:
        self._audience.set_feed(EventFeed.AWAY, " ".join(str(problem).split()))
