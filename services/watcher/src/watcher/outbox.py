"""What the stream should hold, and the workers that see to it.

One message per subject is on its way at a time, so a subject's messages stay in order; many subjects are served at once.
Only the newest state counts: what was overtaken while it waited is never sent. Each publish names the sequence that the
subject must still be at, so a leader that was replaced cannot overwrite its successor.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from common import errors
from common.bus import messages
from common.bus.feed import Synced
from common.bus.messages import Gone, Message, State
from watcher import metrics
from watcher.ports import Entry, Stream

log = structlog.get_logger()

IN_FLIGHT: Final = 64
"""Subjects served at once: at 0.3 ms an answer more than enough, and bounded for the server's sake."""
PAUSE_SECONDS: Final = 0.2
"""Between tries when the stream does not answer."""
NOTHING: Final = Entry()


class Outbox:
    """The difference between what was put and what the stream holds."""

    def __init__(self, stream: Stream, held: dict[str, Entry], give_up: Callable[[str], None]) -> None:
        self._stream = stream
        self._held = held
        self._give_up = give_up
        self._next: dict[str, Message] = {}
        self._tickets: dict[str, int] = {}
        """For each subject that waits or is on its way, the number of its newest put."""
        self._busy: set[str] = set()
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._puts = 0
        self._awaited: dict[str, int] = {}
        self._arrived = asyncio.Event()
        self.last_sequence = 0
        """The newest sequence that we know of; a stream that is behind it has lost something."""

    def __len__(self) -> int:
        """Count the subjects whose newest state is not yet stored."""
        return len(self._tickets)

    def stored(self) -> dict[str, str]:
        """Return the kind of object under each subject that holds one, or will."""
        waiting = {subject: message.kind for subject, message in self._next.items() if isinstance(message, State)}
        return {subject: entry.kind for subject, entry in self._held.items() if entry.kind} | waiting

    def put(self, subject: str, message: Message) -> None:
        """Have a subject hold a message, unless it does already."""
        if subject not in self._tickets and _is_same(self._held.get(subject, NOTHING), message):
            metrics.UNCHANGED.labels(_kind(message)).inc()
            return
        self._puts += 1
        self._tickets[subject] = self._puts
        if subject not in self._next and subject not in self._busy:
            self._queue.put_nowait(subject)
        self._next[subject] = message

    async def settle(self) -> None:
        """Wait until all that was put up to now, or something newer, is stored; one caller at a time."""
        self._awaited = dict(self._tickets)
        self._arrived.clear()
        while self._awaited:
            await self._arrived.wait()
            self._arrived.clear()

    async def work(self) -> None:
        """Serve subjects until cancelled; run several of these."""
        while True:
            subject = await self._queue.get()
            self._busy.add(subject)
            while (message := self._next.pop(subject, None)) is not None:
                await self._deliver(subject, message, self._tickets[subject])
            self._busy.discard(subject)
            metrics.PENDING.set(len(self._tickets))

    async def _deliver(self, subject: str, message: Message, ticket: int) -> None:
        """Publish one message, however long it takes; a newer one makes it pointless."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while subject not in self._next:
            try:
                await self._publish(subject, message)
            except errors.Conflict:
                metrics.CONFLICTS.inc()
                if not await self._overtaken(subject, message):
                    continue
            except errors.Rejected as problem:
                metrics.REFUSED.labels(_kind(message)).inc()
                log.warning("an object cannot be published", subject=subject, why=str(problem))
            except errors.Retryable as problem:
                log.warning("publishing again", subject=subject, why=str(problem))
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            metrics.PUBLISH_SECONDS.observe(loop.time() - began)
            self._stored(subject, ticket)
            return

    async def _publish(self, subject: str, message: Message) -> None:
        expected = self._held.get(subject, NOTHING).sequence
        version = message.epoch if isinstance(message, Synced) else message.version
        sequence = await self._stream.publish(
            subject, message, expected=expected, message_id=f"{subject}@{version}@{expected}"
        )
        self._hold(subject, _entry(sequence, message))
        self.last_sequence = max(self.last_sequence, sequence)
        metrics.PUBLISHED.labels(_kind(message)).inc()

    async def _overtaken(self, subject: str, message: Message) -> bool:
        """Read what the subject holds instead of what we thought; tell whether that makes our message pointless."""
        try:
            found = await self._stream.last(subject)
        except errors.Retryable:
            await asyncio.sleep(PAUSE_SECONDS)
            return False
        known = self._held.get(subject, NOTHING)
        if found.sequence < known.sequence:
            self._give_up(f"the stream lost {subject}")
            await asyncio.Event().wait()  # until this session is over
        self._held[subject] = found
        if isinstance(message, Synced):
            return False
        return messages.number(found.version) > messages.number(message.version) or _is_same(found, message)

    def _hold(self, subject: str, entry: Entry) -> None:
        """Remember what a subject holds; a tombstone is not worth the memory, the server forgets it as well."""
        if entry.is_gone:
            self._held.pop(subject, None)
        else:
            self._held[subject] = entry

    def _stored(self, subject: str, ticket: int) -> None:
        if self._tickets.get(subject) == ticket:
            del self._tickets[subject]
        if self._awaited.get(subject, ticket + 1) <= ticket:
            del self._awaited[subject]
            self._arrived.set()


def _entry(sequence: int, message: Message) -> Entry:
    match message:
        case State():
            return Entry(
                sequence=sequence, kind=message.kind, version=message.version, form=message.form, uid=message.uid
            )
        case Gone():
            return Entry(sequence=sequence, kind=message.kind, version=message.version, is_gone=True)
        case Synced():
            return Entry(sequence=sequence)


def _is_same(entry: Entry, message: Message) -> bool:
    match message:
        case State():
            return entry == _entry(entry.sequence, message)
        case Gone():
            return entry.is_gone or entry.sequence == 0
        case Synced():
            return False


def _kind(message: Message) -> str:
    return messages.SYNCED if isinstance(message, Synced) else message.kind
