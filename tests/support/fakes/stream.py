"""The state stream in memory as its writer sees it: it checks sequences as the server does."""

import asyncio
from collections.abc import Mapping

from common import errors
from common.bus import messages, subjects
from common.bus.messages import Message, ObjectState, Quarantined, Synced, Tombstone
from common.bus.streams import StreamInfo, StreamState
from watcher.ports import StreamEntry


class FakeStateStream:
    """Implements `watcher.ports.Stream`."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.entries: dict[str, StreamEntry] = {}
        self.stored: list[tuple[str, Message]] = []
        self.failures: list[Exception] = []
        """Exceptions that the next publishes raise, one each, before the message is stored."""
        self.room: int | None = None
        """Maximum number of subjects in the stream; None for no limit."""
        self.purged: list[str] = []
        self.answers_lost = 0
        """Number of next publishes that are stored without an answer to the publisher."""
        self.flows = asyncio.Event()
        """Event that publishes wait for."""
        self.flows.set()
        self.created = "once"
        self._ids: dict[str, int] = {}
        self._sequence = 0

    async def until_lost(self) -> str:
        return await asyncio.get_running_loop().create_future()

    async def identity(self) -> StreamInfo:
        return StreamInfo(created=self.created, state=StreamState(last_seq=self._sequence))

    async def load(self) -> dict[str, StreamEntry]:
        return {subject: entry for subject, entry in self.entries.items() if not entry.is_gone}

    async def since(self, sequence: int) -> dict[str, StreamEntry]:
        return {
            subject: entry for subject, entry in self.entries.items() if entry.sequence >= sequence
        }

    async def last(self, subject: str) -> StreamEntry:
        return self.entries.get(subject, StreamEntry())

    async def read(self, subject: str) -> Message | None:
        return self.messages.get(subject)

    async def marker(self) -> Synced | None:
        found = self.messages.get(subjects.build_marker_subject(0))
        return found if isinstance(found, Synced) else None

    async def purge(self, subject: str, *, up_to: int) -> None:
        if self.entries.get(subject, StreamEntry()).sequence <= up_to:
            self.messages.pop(subject, None)
            self.entries.pop(subject, None)
            self.purged.append(subject)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        *,
        expected: int | None,
        message_id: str,
    ) -> int:
        await asyncio.sleep(0)
        await self.flows.wait()
        if self.failures:
            raise self.failures.pop(0)
        if self.room is not None and len(self.entries) >= self.room:
            raise errors.OutOfRoom("insufficient resources")
        if expected is not None and expected != self.entries.get(subject, StreamEntry()).sequence:
            raise errors.Conflict("wrong last sequence")
        if message_id in self._ids:
            return self._ids[message_id]
        self._sequence += 1
        self._ids[message_id] = self._sequence
        self.put(subject, messages.decode(subject, headers, payload), self._sequence)
        if self.answers_lost:
            self.answers_lost -= 1
            raise errors.Unavailable("no answer")
        return self._sequence

    def put(self, subject: str, message: Message, sequence: int) -> None:
        """Store a message as another writer would."""
        self._sequence = max(self._sequence, sequence)
        self.messages[subject] = message
        self.stored.append((subject, message))
        match message:
            case ObjectState():
                entry = StreamEntry(
                    sequence=sequence,
                    kind=message.kind,
                    version=message.version,
                    form=message.form,
                    uid=message.uid,
                )
            case Quarantined():
                entry = StreamEntry(
                    sequence=sequence,
                    kind=message.kind,
                    version=message.version,
                    form="Quarantined",
                    uid=message.uid,
                )
            case Tombstone():
                entry = StreamEntry(
                    sequence=sequence, kind=message.kind, version=message.version, is_gone=True
                )
            case Synced():
                entry = StreamEntry(sequence=sequence, uid=message.epoch)
        self.entries[subject] = entry
