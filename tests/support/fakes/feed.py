"""The state stream in memory, with the behaviour that a reader sees from the real one (the contract
tests check both).
"""

import asyncio
from itertools import product

from msgspec.structs import replace

from common.bus import messages, subjects
from common.bus.feed import NOT_READ, PartitionListener
from common.bus.messages import Message, ObjectMessage, Synced, Tombstone
from common.bus.subjects import TreeKind, TreeLocation


class FakeStream:
    """Stream that keeps the last message of every subject, in the order in which the messages were
    stored.
    """

    def __init__(self) -> None:
        self._last: dict[str, Message] = {}
        self._readers: set[asyncio.Queue[tuple[str, Message] | str]] = set()

    async def store(self, subject: str, message: Message) -> None:
        """Store a message and deliver it to all readers."""
        self._last.pop(subject, None)
        self._last[subject] = message
        for reader in self._readers:
            reader.put_nowait((subject, message))

    async def mark(self, epoch: str, version: int, partitions: frozenset[int]) -> None:
        """Report to all readers that some partitions are complete."""
        for partition, tree in product(sorted(partitions), subjects.MARKED_TREES):
            marker = Synced(epoch=epoch, version=version)
            await self.store(subjects.build_marker_subject(partition, tree), marker)

    async def lose(self) -> None:
        """Delete all messages, as a stream does that loses its volume."""
        self._last.clear()
        await self.interrupt("the stream was lost")

    async def interrupt(self, why: str = "the connection was lost") -> None:
        """Interrupt every reader; no message is lost."""
        for reader in self._readers:
            reader.put_nowait(why)

    def open(self) -> "asyncio.Queue[tuple[str, Message] | str]":
        """Register a reader and return its queue, which contains all stored messages and receives
        the later ones.
        """
        queue: asyncio.Queue[tuple[str, Message] | str] = asyncio.Queue()
        for stored in self._last.items():
            queue.put_nowait(stored)
        self._readers.add(queue)
        return queue

    def close(self, queue: "asyncio.Queue[tuple[str, Message] | str]") -> None:
        """Remove a reader."""
        self._readers.discard(queue)

    def __len__(self) -> int:
        return len(self._last)


class FakeFeed:
    """Feed that follows a `FakeStream`; implements `common.bus.feed.Feed`."""

    def __init__(self, stream: FakeStream, *, tree: TreeKind | None = None) -> None:
        self._stream = stream
        self._tree = tree

    async def follow(self, partition: int, listener: PartitionListener) -> None:
        """Report a partition to the listener until cancelled."""
        why = "started"
        while True:
            listener.loading(why)
            why = await self._read(partition, listener)

    async def _read(self, partition: int, listener: PartitionListener) -> str:
        unread = len(self._stream)
        queue = self._stream.open()
        marker: Synced | None = None
        is_synced = False
        try:
            while True:
                if unread <= 0 and marker is not None and not is_synced:
                    is_synced = True
                    listener.synced(marker.version)
                found = await queue.get()
                unread -= 1
                if isinstance(found, str):
                    return found
                subject, message = found
                _, _, where, tree, *_ = subject.split(".")
                if int(where) != partition or self._tree not in {None, tree}:
                    continue
                if not isinstance(message, Synced):
                    self._deliver(message, partition, listener)
                elif is_synced and marker is not None and marker.epoch != message.epoch:
                    return f"the watcher began epoch {message.epoch}"
                else:
                    marker = message
        finally:
            self._stream.close(queue)

    def _deliver(self, message: ObjectMessage, partition: int, listener: PartitionListener) -> None:
        trace = messages.encode(message).headers.get(messages.TRACE, "")
        to = message.moved_to if isinstance(message, Tombstone) else None
        if to is not None and self._tree not in {None, to.tree}:
            message = replace(message, moved_to=TreeLocation(NOT_READ, to.tree))
        elif to is not None and to.partition == partition:
            return
        listener.take(message, trace=trace)
