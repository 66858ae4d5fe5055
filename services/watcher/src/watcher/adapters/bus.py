"""The state stream on NATS.

Implements `watcher.ports.StateStream` and `watcher.ports.BusServer`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from secrets import token_hex

from common import errors
from common.bus import feed, messages, streams, subjects
from common.bus.consumer import LAST_OF_EACH, StartPolicy, StreamSource, consume, from_sequence
from common.bus.messages import Message, Synced
from common.bus.nats import Bus, StoredMessage
from common.bus.streams import StreamInfo
from common.kube.installation import Installation
from watcher.ports import StreamEntry


class NatsStream:
    """The state stream, for the watcher that writes to it.

    `may_write` returns whether this watcher is still the leader. It is called before every publish
    and every purge. Publish and purge raise `Unavailable` if it returns False.
    """

    def __init__(
        self, bus: Bus, installation: Installation, *, may_write: Callable[[], bool]
    ) -> None:
        self._bus = bus
        self._installation = installation
        self._may_write = may_write
        self.publish = bus.publish
        bus.guard(self._check_lease)

    async def until_lost(self) -> str:
        return await (await self._bus.session()).until_lost()

    async def is_in_reach(self) -> bool:
        try:
            return await self._bus.current.is_answered()
        except errors.Unavailable:
            return False

    async def reconnect(self, reason: str) -> None:
        with contextlib.suppress(
            errors.Unavailable
        ):  # no connection exists, and the client is already making a new one
            await self._bus.current.close(reason)

    async def identity(self) -> StreamInfo:
        info = await self._bus.stream(subjects.STATE_STREAM)
        if wrong := streams.find_unusable_fields(info.config):
            raise errors.InvalidSpec(
                f"stream {subjects.STATE_STREAM}: {'; '.join(wrong)}; `python -m "
                "nats_admin.provision streams` changes it, or "
                "delete it: it is made anew and filled again"
            )
        return info

    async def load(self) -> dict[str, StreamEntry]:
        """Return the last entry of every subject that holds an object; reads only headers.

        Raises `Unavailable` if the stream belongs to another installation.
        """
        ours = await self._installation.read_identity()
        marker = await self.marker()
        if marker is not None and (reason := feed.explain_foreign_epoch(marker.epoch, ours)):
            raise errors.Unavailable(reason)
        return {
            subject: entry
            for subject, entry in (await self._read_headers(LAST_OF_EACH)).items()
            if not entry.is_gone
        }

    async def since(self, sequence: int) -> dict[str, StreamEntry]:
        return await self._read_headers(from_sequence(sequence))

    async def _read_headers(self, begin: StartPolicy) -> dict[str, StreamEntry]:
        """Read the headers of the stream from `begin` to its end.

        Return the last entry of each subject.
        """
        entries: dict[str, StreamEntry] = {}
        read = asyncio.Event()

        def take(stored: StoredMessage) -> None:
            entries[stored.subject] = _build_entry(stored)

        name = f"watcher-{token_hex(6)}"
        source = StreamSource(
            stream=subjects.STATE_STREAM,
            filter=subjects.ALL_STATE,
            name=name,
            headers_only=True,
            begin=begin,
        )
        async with consume(self._bus, source, take=take, read=read.set) as reading:
            async with asyncio.TaskGroup() as group:
                broken = group.create_task(reading.until_broken())
                arrived = group.create_task(read.wait())
                await asyncio.wait((broken, arrived), return_when=asyncio.FIRST_COMPLETED)
                broken.cancel()
                arrived.cancel()
            if not read.is_set():
                raise errors.Unavailable("the state stream could not be read to its end")
        return entries

    async def last(self, subject: str) -> StreamEntry:
        stored = await self._bus.last(subjects.STATE_STREAM, subject)
        if stored is None:
            return StreamEntry()
        if stored.headers.get(messages.KIND) != messages.SYNCED:
            return _build_entry(stored)
        try:
            marker = messages.decode(subject, stored.headers, stored.payload)
        except messages.UndecodableMessage:
            return StreamEntry(sequence=stored.sequence)  # not written by a watcher
        return StreamEntry(
            sequence=stored.sequence, uid=marker.epoch if isinstance(marker, Synced) else ""
        )

    async def read(self, subject: str) -> Message | None:
        stored = await self._bus.last(subjects.STATE_STREAM, subject)
        return (
            messages.decode(subject, stored.headers, stored.payload) if stored is not None else None
        )

    async def marker(self) -> Synced | None:
        try:
            message = await self.read(subjects.build_marker_subject(0))
        except messages.UndecodableMessage:
            return None  # not written by a watcher; replaced together with the other markers
        return message if isinstance(message, Synced) else None

    async def purge(self, subject: str, *, up_to: int) -> None:
        self._check_lease()
        request = {"filter": subject, "seq": up_to + 1}
        await self._bus.api(f"STREAM.PURGE.{subjects.STATE_STREAM}", request, dict[str, object])

    def _check_lease(self) -> None:
        if not self._may_write():
            raise errors.Unavailable("another watcher may lead by now")


def _build_entry(stored: StoredMessage) -> StreamEntry:
    kind = messages.get_kind(stored.headers)
    return StreamEntry(
        sequence=stored.sequence,
        kind="" if kind == messages.SYNCED else kind,
        version=stored.headers.get(messages.VERSION, ""),
        form=stored.headers.get(messages.FORM, ""),
        uid=stored.headers.get(messages.UID, ""),
        is_gone=messages.GONE in stored.headers,
    )
