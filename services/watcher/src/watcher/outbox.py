"""What the stream should hold, and the workers that see to it.

One message per subject is on its way at a time, so a subject's messages stay in order; many subjects are served at once.
Only the newest state counts: what was overtaken while it waited is never sent. Each publish names the sequence that the
subject must still be at, so a leader that was replaced cannot overwrite its successor. A publish that was not answered is
repeated until it is, so the number of our messages in the stream is known: any more are another writer's.
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
from common.bus.messages import Gone, Message, Quarantined, State, Synced
from common.observability import tracing
from watcher import metrics, published
from watcher.ports import Entry, Stream

log = structlog.get_logger()

IN_FLIGHT: Final = 64
"""Subjects served at once: at 0.3 ms an answer more than enough, and bounded for the server's sake."""
GATHERED_SECONDS: Final = 0.02
"""Between two hand-outs of subjects to the workers: where many objects change, their messages share writes to the socket, and their answers reads."""
PAUSE_SECONDS: Final = 0.2
"""Between tries when the stream does not answer."""
FULL_SECONDS: Final = 1.0
"""How long states wait when the stream has no room; deletions do not wait, they make room."""
NOTHING: Final = Entry()


class _Put(msgspec.Struct, frozen=True):
    message: Message
    ticket: int
    """Counts up with each put."""
    at: int
    """When it was put, for its trace."""
    is_unanswered: bool = False
    """Whether it may have been stored: the last answer was lost."""


class Outbox:
    """The difference between what was put and what the stream holds."""

    def __init__(
        self,
        stream: Stream,
        held: dict[str, Entry],
        end_session: Callable[[str], None],
        *,
        is_open: bool = True,
    ) -> None:
        """Begin with what the stream holds; one that is not open yet gathers what is put."""
        self._stream = stream
        self._held = held
        self._end_session = end_session
        self._next: dict[str, _Put] = {}
        self._tickets: dict[str, int] = {}
        """For each subject that waits or is on its way, the number of its newest put."""
        self.in_flight = 0
        """How many messages at most are stored without our knowing."""
        self._queue: deque[str] = deque()
        """Subjects for the workers, in the order of their puts: timers of one time end in any order."""
        self._handed_out = asyncio.Semaphore(0)
        """How many of them the workers may take."""
        self._handed_out_at = float("-inf")
        """When subjects were handed out last, or will be next."""
        self._deferred: dict[str, asyncio.TimerHandle] = {}
        """Subjects with a state that waits for a newer one, and for no worker; each with the end of its wait."""
        self._puts = 0
        self.is_open = is_open
        self._ahead: dict[str, Entry] = {}
        """What another watcher stored while this one prepared: our watches may still report older states of it."""
        self._run = token_hex(4)
        """Part of each message's id: an object that returns to a subject in the same version is no repetition."""
        self._awaited: dict[str, int] = {}
        self._arrived = asyncio.Event()
        self.problem: str | None = None
        """Why the newest publish was not taken; None after one that was."""
        self._full_until = float("-inf")
        """Until then no state is sent: the stream had no room a moment ago."""
        self.last_sequence = 0
        """The newest sequence that we know of; a stream that is behind it has lost something."""
        self.stored_count = 0
        """How many messages we have stored; each makes the stream longer by one."""

    def __len__(self) -> int:
        return len(self._tickets)

    def stored(self) -> dict[str, str]:
        """Return the kind of object under each subject that holds one, or will."""
        waiting = ((subject, put.message) for subject, put in self._next.items())
        held = {subject: entry.kind for subject, entry in self._held.items() if entry.kind}
        return held | {
            subject: each.kind for subject, each in waiting if isinstance(each, State | Quarantined)
        }

    async def newest(self, subject: str) -> Message | None:
        """Return what a subject is to hold, or holds; None when neither is known at this moment."""
        if (put := self._next.get(subject)) is not None:
            return put.message
        return None if subject in self._tickets else await self._stream.read(subject)

    def put(self, subject: str, message: Message, *, received: int = 0, wait: float = 0.0) -> None:
        """Have a subject hold a message, unless it does already; `received` is when the API server sent it, for the trace.

        For `wait` seconds a newer message may take its place, which is sent as soon as that allows.
        """
        ahead = self._ahead.get(subject)
        if ahead is not None and not isinstance(message, Synced):
            if version_number(ahead.version) > version_number(message.version):
                return
            del self._ahead[subject]
        is_at_rest = subject not in self._tickets
        if is_at_rest and _is_same(self._held.get(subject, NOTHING), message):
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
            traceparent = messages.traceparent_of(message)
            tracing.root("watch", traceparent, received, object=about, version=message.version)

    def open(self, stored: Mapping[str, Entry]) -> None:
        """Hand out what was put, once nobody else publishes; what another watcher has `stored` since the stream was read makes some of it pointless."""
        self._ahead = dict(stored)
        for subject, found in stored.items():
            if found.is_gone:
                self._held.pop(subject, None)
            else:
                self._held[subject] = found
            put = self._next.get(subject)
            if (
                put is not None
                and not isinstance(put.message, Synced)
                and _makes_pointless(found, put.message)
            ):
                del self._next[subject], self._tickets[subject]
        self.is_open = True
        for subject in self._next:
            self._hand_out(subject)

    def _hand_out(self, subject: str) -> None:
        """Hand a subject to the workers: at once, or with others when some were handed out a moment ago."""
        self._deferred.pop(subject, None)
        self._queue.append(subject)
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now > self._handed_out_at:
            self._handed_out_at = max(now, self._handed_out_at + GATHERED_SECONDS)
        if now < self._handed_out_at:
            loop.call_at(self._handed_out_at, self._handed_out.release)
        else:
            self._handed_out.release()

    async def flush(self) -> None:
        """Wait until all that was put up to now, or something newer, is stored; one caller at a time."""
        self._awaited = dict(self._tickets)
        self._arrived.clear()
        while self._awaited:
            await self._arrived.wait()
            self._arrived.clear()

    async def work(self) -> None:
        """Serve subjects until cancelled; run several of these. What one has in hand at its end is unknown, so the session ends too.

        A message is published however long that takes; a newer one makes it pointless, unless it may have been stored.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._handed_out.acquire()
                subject = self._queue.popleft()
                self.in_flight += 1
                while (put := self._next.pop(subject, None)) is not None:
                    if not isinstance(put.message, Gone) and loop.time() < self._full_until:
                        self._next[subject] = put  # served later, and others meanwhile
                        loop.call_later(FULL_SECONDS, self._hand_out, subject)
                        break
                    began, trying = loop.time(), put
                    while trying is not None and (
                        trying.is_unanswered or subject not in self._next
                    ):
                        message, expected = (
                            trying.message,
                            self._held.get(subject, NOTHING).sequence,
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
                        except Exception as problem:  # noqa: BLE001  (whatever one object's state does to the encoder, or the server)
                            trying = await self._not_stored(subject, trying, problem, began)
                        else:
                            self._settle(subject, trying, sequence, began)
                            trying = None
                    metrics.PENDING.set(len(self._tickets))
                self.in_flight -= 1
        finally:
            self._end_session("a worker of the outbox ended")

    async def _not_stored(
        self, subject: str, put: _Put, problem: Exception, began: float
    ) -> _Put | None:
        """Handle the failure of a publish; return what is published next, None when nothing is.

        Without room a tombstone frees space by purging its subject, and any other message waits. A state that the server refuses is in quarantine.
        """
        match problem:
            case errors.Conflict():
                return await self._refused(subject, put, began)
            case errors.OutOfRoom():
                self.problem, again = (
                    str(problem),
                    msgspec.structs.replace(put, is_unanswered=False),
                )
                metrics.FULL.set(1)
                if not isinstance(put.message, Gone):
                    self._full_until = asyncio.get_running_loop().time() + FULL_SECONDS
                    self._next.setdefault(subject, again)
                    return None
                if known := self._held.get(subject, NOTHING).sequence:
                    with contextlib.suppress(errors.Retryable):
                        await self._stream.purge(subject, up_to=known)
                        self._held.pop(subject, None)
                await asyncio.sleep(PAUSE_SECONDS)
                return again
            case errors.Retryable():
                if (
                    self.problem is None
                ):  # of many subjects with the same problem, and several tries a second
                    log.warning("publishing again", subject=subject, why=str(problem))
                self.problem = str(problem)
                await asyncio.sleep(PAUSE_SECONDS)
                return msgspec.structs.replace(put, is_unanswered=True)
            case _:
                why = str(problem) or repr(problem)
                metrics.REFUSED.labels(put.message.kind).inc()
                log.error("a message cannot be published", subject=subject, why=why)
                if isinstance(put.message, State):
                    metrics.QUARANTINED.labels(put.message.kind).inc()
                    instead = published.quarantined_state(
                        put.message, f"its state cannot be published: {why}"
                    )
                    return msgspec.structs.replace(put, message=instead)
        self._settle(subject, put, None, began)
        return None

    def _settle(self, subject: str, put: _Put, sequence: int | None, began: float) -> None:
        """Record that a put is stored at a sequence, or need not be stored any more."""
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
        if isinstance(message, Gone):
            self._held.pop(subject, None)  # the server forgets a tombstone as well
        else:
            self._held[subject] = _entry(sequence, message)
        self.last_sequence = max(self.last_sequence, sequence)
        self.stored_count += 1
        metrics.PUBLISHED.labels(message.kind).inc()
        if tracing.is_on() and not isinstance(message, Synced):
            tracing.child("publish", messages.traceparent_of(message), put.at)

    async def _refused(self, subject: str, put: _Put, began: float) -> _Put | None:
        """Handle a subject at another sequence than expected; return what is published next, None when nothing is.

        The server checks the sequence before the id of a message, so an earlier try that was stored without an answer appears to be another
        writer's message. It is ours, and counted: else we would take it for that of another watcher, and every reader would load the state anew.
        """
        metrics.CONFLICTS.inc()
        try:
            found = await self._stream.last(subject)
        except errors.Retryable:
            await asyncio.sleep(PAUSE_SECONDS)
            return put
        message = put.message
        is_our_marker = isinstance(message, Synced) and found.uid == message.epoch
        if not is_our_marker:
            is_lost = found.sequence < self._held.get(subject, NOTHING).sequence
            if is_lost or isinstance(
                message, Synced
            ):  # a leader before or after us: epochs must not mix
                self._end_session(
                    f"the stream lost {subject}"
                    if is_lost
                    else f"another watcher has marked {subject}"
                )
                while True:
                    await asyncio.Event().wait()  # for the end of the session
            self._held[subject] = found
            if not _makes_pointless(found, message):
                return msgspec.structs.replace(put, is_unanswered=False)
        is_ours = put.is_unanswered and (is_our_marker or _is_same(found, message))
        self._settle(subject, put, found.sequence if is_ours else None, began)
        return None


def _entry(sequence: int, message: State | Quarantined | Synced) -> Entry:
    if isinstance(message, Synced):
        return Entry(sequence=sequence)
    return Entry(
        sequence=sequence,
        kind=message.kind,
        version=message.version,
        form=message.form,
        uid=message.uid,
    )


def _makes_pointless(found: Entry, message: State | Quarantined | Gone) -> bool:
    """Return whether a subject holds the same as a message, or something newer."""
    return version_number(found.version) > version_number(message.version) or _is_same(
        found, message
    )


def _is_same(entry: Entry, message: Message) -> bool:
    match message:
        case State() | Quarantined():
            return entry == _entry(entry.sequence, message)
        case Gone():
            return entry.is_gone or entry.sequence == 0
        case Synced():
            return False
