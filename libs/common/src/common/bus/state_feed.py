"""The state feed of a replica over NATS; implements `common.bus.feed.Feed`.

Each partition has its own consumer: the server's permissions can restrict a consumer only by the
subject of its create request, and that subject holds a single filter. A problem that all
partitions have is logged only once, although each partition is followed independently.

The sync markers of the first partition show, for all partitions together, whether the watcher still
confirms the state (ADR 56).
"""

import asyncio
import contextlib
from collections.abc import Set
from itertools import count
from secrets import token_hex
from typing import Final

import structlog
from msgspec.structs import replace

from common import errors
from common.bus import feed, forms, messages, subjects
from common.bus.consumer import ReadingInterrupted, RunningConsumer, StreamSource, consume
from common.bus.feed import NOT_READ, PartitionListener
from common.bus.messages import Message, Synced, Tombstone
from common.bus.nats import Bus, StoredMessage
from common.bus.subjects import PARTITIONS, TreeKind, TreeLocation
from common.observability import metrics, tasks, tracing

log = structlog.get_logger()

FIRST_RETRY: Final = 0.05
MAX_RETRY_DELAY: Final = 2.0
CHECK_SECONDS: Final = 0.5
"""Seconds that `check_forms` waits after a failure, before it reads the sync marker again."""
WARNING_INTERVAL_SECONDS: Final = 1.0
"""Minimum seconds between two warnings about partitions in the log."""
COMPLAINT_SECONDS: Final = 10.0
"""Seconds after which the log repeats why the load of a partition is not complete."""
MISSED: Final = 6.0
"""Number of missing confirmations from the watcher after which the state counts as stale."""
NOT_CONFIRMED: Final = (
    "the watcher has not confirmed the state in time: the stream may be full, or no watcher leads"
)
NO_MARKER: Final = "the watcher has not yet published 1 of 1 partitions"


class StateFeed:
    """The state stream as one replica follows it; implements `Feed`."""

    def __init__(
        self,
        bus: Bus,
        *,
        reader: str,
        tree: TreeKind | None = None,
        installation: str = "",
        kinds: Set[str] = frozenset(forms.FIRST_KINDS),
    ) -> None:
        """Prepare to read objects of `kinds` for the service `reader`.

        With `tree`, only objects under root owners of that kind are read. `installation` identifies
        this raybus installation, if known: the feed refuses the stream of a different one.
        """
        self._bus = bus
        self.tree = tree
        self.installation = installation
        self.kinds = kinds
        self._problem: str | None = None
        self.unreadable: str | None = None
        """Why this build cannot read what the watcher publishes; None if it can, or if nothing is
        published.

        Set by `check_forms`.
        """
        self.forms_checked = asyncio.Event()
        """Set once `check_forms` has read the sync marker that the stream held at the start."""
        self._names = (f"{reader}-{token_hex(4)}-{number}" for number in count())
        """Generator of consumer names, which are unique across replicas."""
        self._silent_until = float("-inf")
        self._loads: set[_Load] = set()
        """The present load of each followed partition."""
        self.is_stale = False
        """Whether the watcher has failed to confirm the state in time."""
        self._expiry: asyncio.TimerHandle | None = None
        """Timer that makes the state stale; None if the watcher does not repeat its marker."""
        self._confirmed_by = ("", 0)
        """Epoch and sequence of the newest marker that confirmed the state."""

    @property
    def problem(self) -> str | None:
        """Why the stream cannot be used for any partition; None if it can."""
        return self._problem or self.unreadable

    def confirm(self, marker: Synced, sequence: int) -> None:
        """Take a sync marker as the watcher's confirmation of the whole state.

        The watcher publishes a marker only after everything that the API server reports, so the
        marker of one partition confirms all. A marker that the server delivers again confirms
        nothing. `sequence` is the marker's sequence in the stream.
        """
        epoch, newest = self._confirmed_by
        if marker.epoch == epoch and sequence <= newest:
            return
        self._confirmed_by = marker.epoch, sequence
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = (
            asyncio.get_running_loop().call_later(MISSED * marker.renewed, self._expire)
            if marker.renewed
            else None
        )
        self.is_stale = False
        for load in list(self._loads):
            load.resume()

    def _expire(self) -> None:
        self.is_stale = True
        self.complain("state stale", NOT_CONFIRMED)
        for load in list(self._loads):
            load.suspend()

    async def check_forms(self) -> None:
        """Follow the sync marker of the first partition until cancelled.

        It shows whether this build can read the stream, and whether the watcher confirms the state.
        A replica waits for the first result before it acquires a partition.
        """
        while True:
            source = StreamSource(
                stream=subjects.STATE_STREAM,
                filter=subjects.build_marker_subject(0, self.tree),
                name=next(self._names),
            )
            with contextlib.suppress(errors.Retryable):
                async with consume(
                    self._bus, source, take=self._check_form, read=self.forms_checked.set
                ) as reading:
                    await reading.until_broken()
            await asyncio.sleep(CHECK_SECONDS)

    def _check_form(self, stored: StoredMessage) -> None:
        reason: str | None = None
        try:
            marker = _decode(stored, self.kinds)
        except messages.UndecodableMessage as problem:
            reason = str(problem)
        else:
            if isinstance(marker, Synced):
                self.confirm(marker, stored.sequence)
        if reason is None and self.unreadable is not None:
            log.info("messages of the watcher are readable again")
        elif reason != self.unreadable:
            log.warning("reconciles paused", why=reason)
        self.unreadable = reason
        metrics.STATE_UNREADABLE.set(reason is not None)

    async def follow(self, partition: int, listener: PartitionListener) -> None:
        reason, retry = "started", FIRST_RETRY
        load: _Load | None = None
        while True:
            async with tasks.survive_stray_cancellation(f"feed of partition {partition}"):
                listener.loading(reason)
                load = _Load(self, partition, listener, None if load is None else load.history)
                subject = subjects.build_partition_filter(partition, self.tree)
                source = StreamSource(
                    stream=subjects.STATE_STREAM, filter=subject, name=next(self._names)
                )
                self._loads.add(load)
                try:
                    reason = await load.run(self._bus, source)
                except errors.Retryable as problem:
                    reason = str(problem)
                finally:
                    self._loads.discard(load)
                self._problem = load.unusable
                metrics.STATE_RELOADS.labels("broken" if load.is_synced else "not loaded").inc()
                self.complain("reloading state", reason)
                retry = FIRST_RETRY if load.is_synced else min(MAX_RETRY_DELAY, retry * 2)
                await asyncio.sleep(retry)

    def complain(self, problem: str, reason: str, **where: str) -> None:
        """Log a problem of a partition, at most one per `WARNING_INTERVAL_SECONDS`.

        Partitions that fail at the same moment usually fail for the same reason.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._silent_until:
            self._silent_until = now + WARNING_INTERVAL_SECONDS
            log.warning(problem, why=reason, **where)


class _Load:
    """Loads one partition and follows its changes, until a message may have been missed.

    After that, `StateFeed.follow` begins a new load.
    """

    def __init__(
        self, state: StateFeed, partition: int, listener: PartitionListener, history: str | None
    ) -> None:
        self._state = state
        self._partition = partition
        self._marker_subject = subjects.build_marker_subject(partition, state.tree)
        self._listener = listener
        self._is_read = False
        """Whether all messages that the stream held at the start have been taken."""
        self._marker: Synced | None = None
        self._unreadable: dict[str, str] = {}
        """Subjects whose newest message this build cannot read, with the reason."""
        self._is_suspended = False
        self._reading: RunningConsumer | None = None
        self.unusable: str | None = None
        """Why a new load will not help: a different installation or release writes the stream."""
        self.is_synced = False
        self.history = history
        """`Synced.history` as of the last complete load; None before the first one."""

    async def run(self, bus: Bus, source: StreamSource) -> str:
        """Load and follow the partition until a message may have been missed; return the reason."""
        async with consume(bus, source, take=self.take, read=self.read) as reading:
            self._reading = reading
            if not self._state.is_stale:
                self.resume()
            while not self.is_synced:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(COMPLAINT_SECONDS):
                        return await reading.until_broken()
                if not self.is_synced:
                    missing = NO_MARKER if self._is_read else "the stream is still being read"
                    missing = NOT_CONFIRMED if self._state.is_stale else missing
                    missing = next(iter(self._unreadable.values()), missing)
                    self._state.complain("state incomplete", missing)
            return await reading.until_broken()

    def suspend(self) -> None:
        """Tell the listener to stop deciding, because the state is stale."""
        if self.is_synced and not self._is_suspended:
            metrics.STATE_RELOADS.labels("stale").inc()
            self._is_suspended = True
            self._listener.loading(NOT_CONFIRMED)

    def resume(self) -> None:
        """Reload after a suspension, or complete a load, since the watcher confirmed the state."""
        if self._is_suspended and self._reading is not None:
            self._reading.abort("the watcher confirms the state again")
        else:
            self._advance()

    def read(self) -> None:
        self._is_read = True
        self._advance()

    def take(self, stored: StoredMessage) -> None:
        received_at = tracing.now()
        kind = messages.get_kind(stored.headers)
        if kind and kind not in self._state.kinds and kind != messages.SYNCED:
            return  # ignored in any form
        try:
            message = _decode(stored, self._state.kinds)
        except messages.UndecodableMessage as problem:
            self._report_unreadable(stored.subject, kind, str(problem))
            return
        self._unreadable.pop(stored.subject, None)
        trace = stored.headers.get(messages.TRACE, "")
        match message:
            case Synced():
                self._take_marker(stored, message)
            case Tombstone(moved_to=TreeLocation(tree=tree)) if self._state.tree not in {
                None,
                tree,
            }:
                self._listener.take(
                    replace(message, moved_to=TreeLocation(NOT_READ, tree)), trace=trace
                )
            case Tombstone(moved_to=TreeLocation(partition=self._partition)):
                pass  # the object's new subject delivers its state
            case _:
                self._listener.take(message, trace=trace)
        if self.is_synced:  # a message of the initial load is not a change
            tracing.child("receive", trace, received_at)
        else:
            self._advance()

    def _report_unreadable(self, subject: str, kind: str, reason: str) -> None:
        """Stop deciding on a partition in which an object's state or the sync marker is unreadable.

        Unreadable messages under any other subject are skipped.
        """
        metrics.UNDECODABLE.labels("feed", kind).inc()
        if subjects.parse_state(subject) is None and subject != self._marker_subject:
            log.warning("message skipped", subject=subject, why=reason)
            return
        if not self._unreadable:
            self._state.complain("message not readable", reason, subject=subject)
        self._unreadable[subject] = reason
        if self.is_synced:
            self._listener.loading(reason)
            raise ReadingInterrupted(reason)

    def _take_marker(self, stored: StoredMessage, marker: Synced) -> None:
        if self.history not in {None, marker.history}:
            self.history = marker.history
            reason = (
                "versions began again at a lower one: the API server's store was restored from "
                "a backup"
            )
            self._listener.loading(reason)
            self._listener.rewound()
            raise ReadingInterrupted(reason)
        if (
            reason := feed.explain_foreign_epoch(marker.epoch, self._state.installation)
        ) is not None:
            self.unusable = reason
            raise ReadingInterrupted(reason)
        if marker.partitions != PARTITIONS:
            self.unusable = (
                f"the watcher divides into {marker.partitions} partitions, this release into "
                f"{PARTITIONS}: run all services in one version"
            )
            raise ReadingInterrupted(self.unusable)
        if stored.subject == self._marker_subject:
            if self.is_synced and self._marker is not None and self._marker.epoch != marker.epoch:
                raise ReadingInterrupted(f"the watcher began epoch {marker.epoch}")
            self._marker = marker
        if marker.renewed:  # else only the first partition's markers are repeated
            self._state.confirm(marker, stored.sequence)

    def _advance(self) -> None:
        """Call `synced` of the listener once, as soon as the loaded state is complete."""
        if (
            self._is_read
            and self._marker is not None
            and not self._unreadable
            and not self._state.is_stale
            and not self.is_synced
        ):
            self.is_synced = True
            self.history = self._marker.history
            self._listener.synced(self._marker.version)


def _decode(stored: StoredMessage, kinds: Set[str]) -> Message:
    """Decode a message.

    Raises `UndecodableMessage` for a message that is not of raybus, or in a form that this build
    cannot read.
    """
    kind = "Gone" if messages.GONE in stored.headers else stored.headers.get(messages.KIND, "")
    if (
        reason := forms.explain_unreadable(kind, stored.headers.get(messages.FORM, ""))
    ) is not None:
        raise messages.UndecodableMessage(reason)
    message = messages.decode(stored.subject, stored.headers, stored.payload)
    if (
        isinstance(message, Synced)
        and (reason := forms.explain_unreadable_marker(message.forms, kinds)) is not None
    ):
        raise messages.UndecodableMessage(reason)
    return message
