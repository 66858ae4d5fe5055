"""Keeps the newest upgrades of each RayService, from upgrade events and from samples of its status.

Events take precedence, because they are complete and contain the time of each change. Samples are
used if the bus is unreachable or has discarded the events of an upgrade. An unreachable bus is
retried forever; meanwhile the page shows the state at the API server.
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
from common.upgrade.receipt import UpgradeOutcome
from raybus_cli import session
from raybus_cli.events import rendering, run
from raybus_cli.events.run import NatsAccess, ReadEvents
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import tree
from raybus_dashboard import timeline
from raybus_dashboard.board import EventFeed
from raybus_dashboard.timeline import ClusterShare, Event, Sample, Timeline

KEPT: Final = 5
"""Maximum number of upgrades kept for each RayService."""
MAX_EVENTS: Final = 1000
"""Maximum number of events of one upgrade. An upgrade in a hundred steps has about 400."""
MAX_TOTAL_EVENTS: Final = 50_000
MAX_SAMPLES: Final = 500
"""Maximum number of samples of one RayService."""
MAX_TOTAL_SAMPLES: Final = 50_000
MAX_SERVICES: Final = 1000
"""Maximum number of RayServices whose events are kept; the same limit applies to samples.

If there are too many RayServices, events or samples, those of the RayService that has had no new
entry for the longest time are dropped.
"""


class EventLog:
    """The upgrade events of all RayServices, as received from the bus.

    `changed` is called with the key of a RayService that has a new event, `caught_up` when all
    stored events have been received.
    """

    def __init__(self, changed: Callable[[str], None], caught_up: Callable[[], None]) -> None:
        self._changed = changed
        self._caught_up = caught_up
        self._count = 0
        self._events: dict[str, dict[str, dict[str, Event]]] = {}
        """The events by RayService key, upgrade id and event id.

        The RayService with the newest event is last."""

    def receive(self, event: StoredMessage) -> bool:
        """Keep an event; ignore a message that is not an upgrade event.

        Always returns True, so that the reader continues.
        """
        try:
            read = upgrade_events.decode(event.payload)
        except msgspec.DecodeError:
            return True
        key = rendering.format_object(read.source)
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

    def finish_stored(self) -> bool:
        """Report that all stored events have been received.

        Always returns True, so that the reader continues.
        """
        self._caught_up()
        return True

    def list_upgrades(self, key: str) -> list[Timeline]:
        return [
            timeline.from_events(list(events.values()))
            for events in self._events.get(key, {}).values()
        ]


class ObservedUpgrade(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of a RayService's upgrade."""

    old: str
    """Name of the active cluster; empty without one."""
    new: str
    """Name of the pending cluster; empty without one."""
    parts: tuple[ClusterShare, ClusterShare] | None = None
    """Traffic and capacity of both clusters; None without an upgrade in progress."""


def derive_progress(service: RayService) -> ObservedUpgrade:
    """Derive the progress of a RayService's upgrade from its status."""
    status = service.status
    active, pending = sides = (status.active_service_status, status.pending_service_status)
    old, new = (status.ray_cluster_name for status in sides)
    if not (old and new):
        return ObservedUpgrade(old=old, new=new)
    snapshot = Snapshot(service=service)
    parts = (
        ClusterShare(traffic=tree.find_weight(snapshot, old), capacity=active.target_capacity),
        ClusterShare(traffic=tree.find_weight(snapshot, new), capacity=pending.target_capacity),
    )
    return ObservedUpgrade(old=old, new=new, parts=parts)


class History:
    """The upgrades that the dashboard knows, from an event log and from samples."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._samples: dict[str, deque[Sample]] = {}
        """The samples of each RayService, by its key.

        The RayService with the newest sample is last."""
        self._count = 0

    def record(self, key: str, progress: ObservedUpgrade, *, now: datetime) -> None:
        """Keep a sample of a RayService's upgrade, if it differs from the last one."""
        samples = self._samples.get(key)
        last = samples[-1] if samples else None
        sample = _take_sample(progress, last, now=now)
        if sample is None or (last is not None and _is_same(sample, last)):
            return
        samples = self._samples[key] = self._samples.pop(key, deque(maxlen=MAX_SAMPLES))
        self._count += len(samples) < MAX_SAMPLES
        samples.append(sample)
        while len(self._samples) > MAX_SERVICES or self._count > MAX_TOTAL_SAMPLES:
            self._count -= len(self._samples.pop(next(iter(self._samples))))

    def list_timelines(self, key: str, *, has_all_events: bool) -> list[Timeline]:
        """Return the upgrades of a RayService, newest first, at most `KEPT`.

        An upgrade without events is built from samples of the status. Without `has_all_events`, an
        upgrade with events is extended by samples that are newer than its last event.
        """
        upgrades = self._events.list_upgrades(key)
        pairs: dict[tuple[str, str], list[Sample]] = {}
        for sample in self._samples.get(key, ()):
            pairs.setdefault((sample.old, sample.new), []).append(sample)
        known = {(upgrade.old, upgrade.new) for upgrade in upgrades}
        if not has_all_events:
            upgrades = [
                timeline.extend(upgrade, pairs.get((upgrade.old, upgrade.new), []))
                for upgrade in upgrades
            ]
        upgrades += [
            timeline.from_samples(samples) for pair, samples in pairs.items() if pair not in known
        ]
        return sorted(upgrades, key=lambda upgrade: upgrade.began, reverse=True)[:KEPT]


def _take_sample(progress: ObservedUpgrade, last: Sample | None, *, now: datetime) -> Sample | None:
    """Return a sample of an upgrade; None if none runs or has ended since the `last` sample."""
    old, new = progress.old, progress.new
    if progress.parts is not None:
        return Sample(at=now, old=old, new=new, parts=progress.parts)
    if last is None or last.over or old not in {last.old, last.new}:
        return None
    is_new = old == last.new
    parts = [
        msgspec.structs.replace(part, traffic=weight)
        for part, weight in zip(last.parts, _find_ends(is_new=is_new), strict=True)
    ]
    over = UpgradeOutcome.PROMOTED if is_new else UpgradeOutcome.ROLLED_BACK
    return Sample(at=now, old=last.old, new=last.new, parts=(parts[0], parts[1]), over=over)


def _find_ends(*, is_new: bool) -> tuple[int, int]:
    return (0, 100) if is_new else (100, 0)


def _is_same(one: Sample, other: Sample) -> bool:
    return msgspec.structs.replace(one, at=other.at) == other


AGAIN: Final = 10.0
"""Seconds until an unreachable bus is retried."""
EVERY: Final = "*"

ConnectToNats = Callable[[ReadEvents], Awaitable[None]]
"""Function that connects to NATS and runs a reader with the connection."""


class Audience(Protocol):
    """Receives the reports of the event listener; a `Board`, for example."""

    def set_feed(self, event_feed: EventFeed, problem: str = "") -> None:
        """Report whether events arrive."""
        ...

    def request_read(self, key: str) -> None:
        """Request a read of a RayService that has changed."""
        ...


class UpgradeEventListener:
    """Reads the upgrade events of a namespace (None: of every one) from the bus until cancelled."""

    def __init__(
        self, through: ConnectToNats, namespace: str | None, audience: Audience, events: EventLog
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
                self._record_failure(problem)
            except BaseExceptionGroup as met:
                problem = session.find_first(met)
                if not isinstance(problem, errors.RaybusError):
                    raise
                self._record_failure(problem)
            await asyncio.sleep(AGAIN)

    async def _read(self, way: NatsAccess) -> None:
        async with run.connect_to_bus(way) as reach:
            await reach.read(
                self._subject,
                from_sequence(1),
                self._events,
                is_patient=True,
                report=lambda line: self._audience.set_feed(EventFeed.AWAY, line),
            )

    def _record_failure(self, problem: BaseException) -> None:
        self._audience.set_feed(EventFeed.AWAY, " ".join(str(problem).split()))
