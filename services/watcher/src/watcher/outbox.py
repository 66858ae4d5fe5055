"""The desired last message of each subject, and the workers that publish missing messages.

A put is a request to make a subject hold a message.

At most one message per subject is in flight, so the messages of a subject stay in order. Many
subjects are served at once. Only the newest state counts: if a state waits and a newer one arrives,
the older is never sent. Each publish names the expected last sequence of its subject, so a replaced
leader cannot overwrite the messages of its successor. A publish without an answer is repeated until
there is an answer. This watcher therefore knows how many messages it has stored. Any additional
message in the stream comes from another writer.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Final

import msgspec
import structlog

from common import errors
from common.api.meta import version_number
from common.bus import messages
from common.bus.messages import Message, ObjectState, Quarantined, Synced, Tombstone
from common.observability import tracing
from watcher import metrics, publish_filter
from watcher.ports import StateStream, StreamEntry

log = structlog.get_logger()

MAX_IN_FLIGHT: Final = 64
"""Maximum number of subjects that are published at once.

An answer takes about 0.3 ms, so this is more than enough; the limit protects the NATS server.
"""
MIN_GATHER_SECONDS: Final = 0.02
"""Minimum seconds between two times at which changed subjects are given to the workers.

If many objects change, their messages share socket writes and their answers share reads. The more
subjects were given to the workers last time, the longer is the wait, up to `MAX_GATHER_SECONDS`.
"""
MAX_GATHER_SECONDS: Final = 0.1
"""Longest time for which subjects are gathered while many objects change (ADR 55).

In groups of twenty, a message costs NATS and its readers half as much as in groups of four.
"""
PAUSE_SECONDS: Final = 0.2
"""Seconds before an unanswered publish is repeated."""
FULL_SECONDS: Final = 1.0
"""Seconds for which states wait if the stream is full. Tombstones free space and do not wait."""
EMPTY_ENTRY: Final = StreamEntry()


class _Put(msgspec.Struct, frozen=True):
    message: Message
    ticket: int
    """Number of the put; a later put has a higher number."""
    at: int
    """Time of the put in nanoseconds, for its trace."""
    is_unanswered: bool = False
    """Whether an earlier attempt got no answer, so that the message may already be stored."""


class Outbox:
    """The desired last message of each subject; publishes each message that the stream lacks."""

    def __init__(
        self,
        stream: StateStream,
        entries: dict[str, StreamEntry],
        end_session: Callable[[str], None],
        *,
        is_open: bool = True,
    ) -> None:
        """Start from `entries`, the content of the stream; if not `is_open`, only collect puts.

        `end_session` is called with a reason when the session of this outbox cannot continue.
        """
        self._stream = stream
        self._held = entries
        self._end_session = end_session
        self._next: dict[str, _Put] = {}
        self._tickets: dict[str, int] = {}
        """Number of the newest put of each subject that is waiting or in flight."""
        self.in_flight = 0
        """Number of messages that may already be stored, but are not confirmed."""
        self._queue: deque[str] = deque()
        """Subjects for the workers in the order of their puts.

        Timers that expire at the same time fire in any order, so the order is kept here.
        """
        self._handed_out = asyncio.Semaphore(0)
        """Number of subjects in `_queue` that the workers may take."""
        self._handed_out_at = float("-inf")
        """Loop time of the last or next moment at which subjects are given to the workers."""
        self._gathered = 1
        """Number of subjects that are given to the workers at `_handed_out_at`."""
        self._deferred: dict[str, asyncio.TimerHandle] = {}
        """Subjects whose newest state is held back, with the timer that ends the wait."""
        self._puts = 0
        self.is_open = is_open
        self._ahead: dict[str, StreamEntry] = {}
        """Entries that the previous leader stored after this watcher had loaded the stream.

        This watcher's watches may still report older states of these objects.
        """
        self._run = token_hex(4)
        """Random part of each message id, new for each session.

        If an object returns to a subject in the same version, its message would otherwise have an
        old id, and the NATS server would drop it as a duplicate.
        """
        self._awaited: dict[str, int] = {}
        self._arrived = asyncio.Event()
        self.problem: str | None = None
        """Why the last publish failed; None if it succeeded."""
        self._full_until = float("-inf")
        """Loop time until which no state is sent, because the stream was full."""
        self.last_sequence = 0
        """Newest known sequence; a stream with a lower sequence has lost messages."""
        self.stored_count = 0
        """Number of messages that this session stored; each adds one to the stream's sequence."""

    def __len__(self) -> int:
        return len(self._tickets)

    def list_stored(self) -> dict[str, str]:
        """Return, by subject, the kind of the object that the subject holds or will hold."""
        waiting = ((subject, put.message) for subject, put in self._next.items())
        kinds = {subject: entry.kind for subject, entry in self._held.items() if entry.kind}
        return kinds | {
            subject: message.kind
            for subject, message in waiting
            if isinstance(message, ObjectState | Quarantined)
        }

    async def get_newest(self, subject: str) -> Message | None:
        """Return the message that a subject holds or will hold.

        None if there is none, or while a message of the subject is in flight.
        """
        if (put := self._next.get(subject)) is not None:
            return put.message
        return None if subject in self._tickets else await self._stream.read(subject)

    def put(self, subject: str, message: Message, *, received: int = 0, wait: float = 0.0) -> None:
        """Make a subject hold a message; does nothing if the subject already holds it.

        `received` is the time in nanoseconds at which the watcher got the object, for the trace.
        The message is sent after `wait` seconds, unless a newer one replaces it; a put without a
        wait is sent at once.
        """
        ahead = self._ahead.get(subject)
        if ahead is not None and not isinstance(message, Synced):
            if version_number(ahead.version) > version_number(message.version):
                return
            del self._ahead[subject]
        is_at_rest = subject not in self._tickets
        if is_at_rest and _is_same(self._held.get(subject, EMPTY_ENTRY), message):
            metrics.UNCHANGED.labels(message.kind).inc()
            return
        self._puts += 1
        self._tickets[subject] = self._puts
        self._next[subject] = _Put(message, self._puts, tracing.now())
        timer = None if wait else self._deferred.pop(subject, None)
        if timer is not None:
            timer.cancel()
        is_due = is_at_rest and self.is_open
        if is_due and wait:
            self._deferred[subject] = asyncio.get_running_loop().call_later(
                wait, self._hand_out, subject
            )
        elif is_due or timer is not None:
            self._hand_out(subject)
        if tracing.is_on() and not isinstance(message, Synced):
            about = f"{message.kind} {message.namespace}/{message.name}"
            traceparent = messages.get_traceparent(message)
            tracing.root("watch", traceparent, received, object=about, version=message.version)

    def open(self, stored: Mapping[str, StreamEntry]) -> None:
        """Start to publish the collected puts, because the previous leader has stopped publishing.

        `stored` are the entries that the previous leader has stored since this watcher loaded the
        stream. A put is dropped if the stored entry of its subject has the same state or a newer
        one.
        """
        self._ahead = dict(stored)
        for subject, entry in stored.items():
            if entry.is_gone:
                self._held.pop(subject, None)
            else:
                self._held[subject] = entry
            put = self._next.get(subject)
            if (
                put is not None
                and not isinstance(put.message, Synced)
                and _is_superseded(entry, put.message)
            ):
                del self._next[subject], self._tickets[subject]
        self.is_open = True
        for subject in self._next:
            self._hand_out(subject)

    def _hand_out(self, subject: str) -> None:
        """Let a worker take a subject, together with subjects that change a short time later."""
        self._deferred.pop(subject, None)
        self._queue.append(subject)
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now > self._handed_out_at:
            pause = min(MAX_GATHER_SECONDS, MIN_GATHER_SECONDS * self._gathered)
            self._handed_out_at, self._gathered = max(now, self._handed_out_at + pause), 0
        self._gathered += 1
        if now < self._handed_out_at:
            loop.call_at(self._handed_out_at, self._handed_out.release)
        else:
            self._handed_out.release()

    async def flush(self) -> None:
        """Wait until every earlier put is stored, or a newer put of the same subject.

        Only one caller may wait at a time.
        """
        self._awaited = dict(self._tickets)
        self._arrived.clear()
        while self._awaited:
            await self._arrived.wait()
            self._arrived.clear()

    async def work(self) -> None:
        """Publish changed subjects until cancelled; `MAX_IN_FLIGHT` workers run at once.

        A message is retried until it is stored, or until a newer one replaces it. A message that
        may have been stored is never replaced before its answer is known. If a worker ends, the
        outcome of its message is unknown, so the session ends too.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._handed_out.acquire()
                subject = self._queue.popleft()
                self.in_flight += 1
                while (put := self._next.pop(subject, None)) is not None:
                    if not isinstance(put.message, Tombstone) and loop.time() < self._full_until:
                        self._next[subject] = put  # served later, after other subjects
                        loop.call_later(FULL_SECONDS, self._hand_out, subject)
                        break
                    began, trying = loop.time(), put
                    while trying is not None and (
                        trying.is_unanswered or subject not in self._next
                    ):
                        message, expected = (
                            trying.message,
                            self._held.get(subject, EMPTY_ENTRY).sequence,
                        )
                        version = message.epoch if isinstance(message, Synced) else message.version
                        name = f"{subject}@{version}@{expected}@{self._run}-{trying.ticket}"
                        try:
                            wire = messages.encode(message)
                            sequence = await self._stream.publish(
                                subject,
                                wire.payload,
                                wire.headers,
                                expected=expected,
                                message_id=name,
                            )
                        except Exception as problem:  # noqa: BLE001  (a state may break anything)
                            trying = await self._handle_failure(subject, trying, problem, began)
                        else:
                            self._settle(subject, trying, sequence, began)
                            trying = None
                    metrics.PENDING.set(len(self._tickets))
                self.in_flight -= 1
        finally:
            self._end_session("a worker of the outbox ended")

    async def _handle_failure(
        self, subject: str, put: _Put, problem: Exception, began: float
    ) -> _Put | None:
        """Handle a failed publish; return the put to publish next on the subject, or None.

        If the stream is full, a tombstone frees space by purging its subject, and any other message
        waits. A state that the server rejects is replaced by a quarantine message. `began` is the
        loop time of the first attempt.
        """
        match problem:
            case errors.Conflict():
                return await self._handle_conflict(subject, put, began)
            case errors.OutOfRoom():
                self.problem, retry = (
                    str(problem),
                    msgspec.structs.replace(put, is_unanswered=False),
                )
                metrics.FULL.set(1)
                if not isinstance(put.message, Tombstone):
                    self._full_until = asyncio.get_running_loop().time() + FULL_SECONDS
                    self._next.setdefault(subject, retry)
                    return None
                if sequence := self._held.get(subject, EMPTY_ENTRY).sequence:
                    with contextlib.suppress(errors.Retryable):
                        await self._stream.purge(subject, up_to=sequence)
                        self._held.pop(subject, None)
                await asyncio.sleep(PAUSE_SECONDS)
                return retry
            case errors.Retryable():
                if (
                    self.problem is None
                ):  # logged once for many subjects with the same problem and many attempts
                    log.warning("publishing again", subject=subject, why=str(problem))
                self.problem = str(problem)
                await asyncio.sleep(PAUSE_SECONDS)
                return msgspec.structs.replace(put, is_unanswered=True)
            case _:
                reason = str(problem) or repr(problem)
                metrics.REFUSED.labels(put.message.kind).inc()
                log.error("cannot publish a message", subject=subject, why=reason)
                if isinstance(put.message, ObjectState):
                    metrics.QUARANTINED.labels(put.message.kind).inc()
                    instead = publish_filter.quarantine_state(
                        put.message, f"its state cannot be published: {reason}"
                    )
                    return msgspec.structs.replace(put, message=instead)
        self._settle(subject, put, None, began)
        return None

    def _settle(self, subject: str, put: _Put, sequence: int | None, began: float) -> None:
        """Record that a put is complete, and that its message is stored at `sequence`.

        `sequence` is None if the message did not have to be stored. `began` is the loop time of the
        first attempt.
        """
        metrics.PUBLISH_SECONDS.observe(asyncio.get_running_loop().time() - began)
        if self._tickets.get(subject) == put.ticket:
            del self._tickets[subject]
        if self._awaited.get(subject, put.ticket + 1) <= put.ticket:
            del self._awaited[subject]
            self._arrived.set()
        if sequence is None:
            return
        message = put.message
        self.problem = None
        metrics.FULL.set(0)
        self._full_until = float("-inf")
        if isinstance(message, Tombstone):
            self._held.pop(subject, None)  # the server removes tombstones too
        else:
            self._held[subject] = _build_entry(sequence, message)
        self.last_sequence = max(self.last_sequence, sequence)
        self.stored_count += 1
        metrics.PUBLISHED.labels(message.kind).inc()
        if tracing.is_on() and not isinstance(message, Synced):
            tracing.child("publish", messages.get_traceparent(message), put.at)

    async def _handle_conflict(self, subject: str, put: _Put, began: float) -> _Put | None:
        """Handle a publish that failed because the subject has a different sequence than expected.

        Returns the put to publish next on the subject, or None. The server checks the sequence
        before the message id. If an earlier attempt of this watcher was stored without an answer,
        its message therefore looks like another writer's. It is recognized here and counted as this
        watcher's own. Otherwise the session would end because of an unknown writer, and every
        reader would load the state again.
        """
        metrics.CONFLICTS.inc()
        try:
            entry = await self._stream.last(subject)
        except errors.Retryable:
            await asyncio.sleep(PAUSE_SECONDS)
            return put
        message = put.message
        is_our_marker = isinstance(message, Synced) and entry.uid == message.epoch
        if not is_our_marker:
            is_lost = entry.sequence < self._held.get(subject, EMPTY_ENTRY).sequence
            if is_lost or isinstance(
                message, Synced
            ):  # written by an earlier or later leader, whose epoch must not mix with this one
                self._end_session(
                    f"the stream lost {subject}"
                    if is_lost
                    else f"another watcher has marked {subject}"
                )
                while True:
                    await asyncio.Event().wait()  # until the session is cancelled
            self._held[subject] = entry
            if not _is_superseded(entry, message):
                return msgspec.structs.replace(put, is_unanswered=False)
        is_ours = put.is_unanswered and (is_our_marker or _is_same(entry, message))
        self._settle(subject, put, entry.sequence if is_ours else None, began)
        return None


def _build_entry(sequence: int, message: ObjectState | Quarantined | Synced) -> StreamEntry:
    if isinstance(message, Synced):
        return StreamEntry(sequence=sequence)
    return StreamEntry(
        sequence=sequence,
        kind=message.kind,
        version=message.version,
        form=message.form,
        uid=message.uid,
    )


def _is_superseded(entry: StreamEntry, message: ObjectState | Quarantined | Tombstone) -> bool:
    """Return whether the stream's entry already has the state of a message, or a newer state."""
    return version_number(entry.version) > version_number(message.version) or _is_same(
        entry, message
    )


def _is_same(entry: StreamEntry, message: Message) -> bool:
    match message:
        case ObjectState() | Quarantined():
            return entry == _build_entry(entry.sequence, message)
        case Tombstone():
            return entry.is_gone or entry.sequence == 0
        case Synced():
            return False
