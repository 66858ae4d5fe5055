"""The state stream on NATS: `watcher.ports.Stream`."""

import asyncio
from secrets import token_hex

from common import errors
from common.bus import messages, subjects
from common.bus.consumer import Source, consume
from common.bus.messages import Message
from common.bus.nats import Bus, Stored
from watcher.ports import Entry, StreamIdentity


class NatsStream:
    """The state stream as its only writer sees it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def until_lost(self) -> str:
        """Wait until the connection that stands now is lost; return why."""
        session = await self._bus.session()
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def tell(why: str) -> None:
            if not lost.done():
                lost.set_result(why)

        forget = session.when_lost(tell)
        try:
            return await lost
        finally:
            forget()

    async def identity(self) -> StreamIdentity:
        """Say which stream this is; `NotFound` when there is none."""
        info = await self._bus.stream(subjects.STATE_STREAM)
        return StreamIdentity(created=info.created, last_sequence=info.state.last_seq)

    async def load(self) -> dict[str, Entry]:
        """Return what every subject holds; headers alone tell it."""
        held: dict[str, Entry] = {}
        read = asyncio.Event()

        def take(stored: Stored) -> None:
            held[stored.subject] = _entry(stored)

        source = Source(
            stream=subjects.STATE_STREAM,
            filter=subjects.ALL_STATE,
            name=f"watcher-{token_hex(6)}",
            headers_only=True,
        )
        async with consume(self._bus, [source], take=take, read=read.set) as reading:
            async with asyncio.TaskGroup() as group:
                broken = group.create_task(reading.until_broken())
                arrived = group.create_task(read.wait())
                await asyncio.wait((broken, arrived), return_when=asyncio.FIRST_COMPLETED)
                broken.cancel()
                arrived.cancel()
            if not read.is_set():
                raise errors.Unavailable("the state stream could not be read to its end")
        return {subject: entry for subject, entry in held.items() if not entry.is_gone}

    async def last(self, subject: str) -> Entry:
        """Return what one subject holds."""
        stored = await self._bus.last(subjects.STATE_STREAM, subject)
        return Entry() if stored is None else _entry(stored)

    async def publish(self, subject: str, message: Message, *, expected: int | None, message_id: str) -> int:
        """Store a message if `expected` is still the subject's last sequence, else `Conflict`; return its sequence."""
        wire = messages.encode(message)
        ack = await self._bus.publish(subject, wire.payload, wire.headers, expected=expected, message_id=message_id)
        return ack.seq


def _entry(stored: Stored) -> Entry:
    kind = stored.headers.get(messages.KIND, "")
    return Entry(
        sequence=stored.sequence,
        kind="" if kind == messages.SYNCED else kind,
        version=stored.headers.get(messages.VERSION, ""),
        form=stored.headers.get(messages.FORM, ""),
        uid=stored.headers.get(messages.UID, ""),
        is_gone=messages.GONE in stored.headers,
    )
