"""Keeps the newest upgrades of each RayService, from upgrade events and from samples of its status.

Events take precedence, because they are complete and carry the cluster's own time. Samples are used
if the bus is unreachable or has discarded the events of an upgrade. An unreachable bus is retried
forever; meanwhile the page shows the state at the API server.
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
from common.bus.nats import StoredMessage
from common.upgrade import events as upgrade_events
from common.upgrade.receipt import Outcome
from raybus_cli import session
from raybus_cli.events import rendering, run
from raybus_cli.events.run import Read, Way
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import tree
from raybus_dashboard import timeline
from raybus_dashboard.board import EventFeed
from raybus_dashboard.timeline import Event, Part, Sample, Timeline

KEPT: Final = 5
"""Maximum number of upgrades kept for each RayService."""
MAX_EVENTS: Final = 1000
"""Maximum number of events of one upgrade. An upgrade in a hundred steps has about 400."""
MAX_TOTAL_EVENTS: Final = 50_000
MAX_SAMPLES: Final = 500
"""Maximum number of samples of one RayService."""
MAX_TOTAL_SAMPLES: Final = 50_000
MAX_SERVICES: Final = 1000
"""Maximum number of RayServices with events, and of those with samples.

If there are too many RayServices, events or samples, the RayService whose newest entry is oldest is
dropped.
"""


class EventLog:
    """The upgrade events of all RayServices, as received from the bus."""

    def __init__(self, changed: Callable[[str], None], caught_up: Callable[[], None]) -> None:
        self._changed = changed
        self._caught_up = caught_up
        self._count = 0
        self._events: dict[str, dict[str, dict[str, Event]]] = {}
        """RayService key to upgrade id to event id to event. The RayService with the newest event
        is last.
        """

    def take(self, event: StoredMessage) -> bool:
        """Keep an event; ignore a message that is not an upgrade event.

        Always returns True, to read on.
        """
        try:
            read = upgrade_events.decode(event.payload)
        except msgspec.DecodeError:
            return True
        key = rendering.service(read.source)
        upgrades = self._events[key] = self._events.pop(key, {})
        events = upgrades.setdefault(read.data.upgrade.id, {})
        if read.id not in events and len(events) < MAX_EVENTS:
            events[read.id] = read
            self._count += 1
            self._changed(key)
        while len(upgrades) > KEPT:
            self._count -= len(upgrades.pop(next(iter(upgrades))))
        while len(self._events) > MAX_SERVICES or self._count > MAX_TOTAL_EVENTS:
            self._count -= sum(map(len, self._events.pop(next(iter(self._events))).values()))
        return True

    def caught_up(self) -> bool:
        """Report that all stored events have been received. Always returns True, to read on."""
        self._caught_up()
        return True

    def upgrades(self, key: str) -> list[Timeline]:
        return [
            timeline.from_events(list(events.values()))
            for events in self._events.get(key, {}).values()
        ]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of a RayService's upgrade."""

    old: str
    """Name of the active cluster; empty without one."""
    new: str
    """Name of the pending cluster; empty without one."""
    parts: tuple[Part, Part] | None = None
    """Traffic and capacity of both clusters; None without an upgrade in progress."""


def progress_of(service: RayService) -> Progress:
    """Derive the progress of a RayService's upgrade from its status."""
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
    """The known upgrades, from an event log and from samples."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._samples: dict[str, deque[Sample]] = {}
        """RayService key to samples; the RayService with the newest sample is last."""
        self._count = 0

    def see(self, key: str, progress: Progress, *, now: datetime) -> None:
        """Keep a sample of a RayService's upgrade, if it differs from the last one."""
        samples = self._samples.get(key)
        last = samples[-1] if samples else None
        found = _sample(progress, last, now=now)
        if found is None or (last is not None and _same(found, last)):
            return
        samples = self._samples[key] = self._samples.pop(key, deque(maxlen=MAX_SAMPLES))
        self._count += len(samples) < MAX_SAMPLES
        samples.append(found)
        while len(self._samples) > MAX_SERVICES or self._count > MAX_TOTAL_SAMPLES:
            self._count -= len(self._samples.pop(next(iter(self._samples))))

    def timelines(self, key: str, *, has_all_events: bool) -> list[Timeline]:
        """Return the upgrades of a RayService, newest first, at most `KEPT`.

        `has_all_events` means that all events have been received, so that samples need not extend
        upgrades that have events.
        """
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
    """Return a sample of the upgrade in progress, or of its end; None without either.

    The end is sampled if the last sample was in progress.
    """
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
"""Connects to NATS and runs a reader with the connection."""


class Audience(Protocol):
    """The receiver of news from the listener, such as a board."""

    def set_feed(self, event_feed: EventFeed, problem: str = "") -> None:
        """Report whether events arrive."""
        ...

    def request_read(self, key: str) -> None:
        """Report that a RayService has changed."""
        ...


class Listener:
    """Reads upgrade events from the bus until it is cancelled."""

    def __init__(
        self, through: Through, namespace: str | None, audience: Audience, events: EventLog
    ) -> None:
        self._through = through
        self._subject = (
            subjects.ALL_EVENTS
            if namespace is None
            else subjects.build_event_subject(namespace, EVERY, EVERY)
        )
        self._audience = audience
        self._events = events

    async def listen(self) -> None:
        """Pass events to the event log forever; errors are reported to the audience and retried."""
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
