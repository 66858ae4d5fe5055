"""The state stream in memory, with the behaviour of the real one as a reader sees it (the contract tests hold both to it)."""

import asyncio

from msgspec.structs import replace

from common.bus import messages, subjects
from common.bus.feed import NOT_READ, PartitionListener
from common.bus.messages import Message, ObjectMessage, Synced, Tombstone
from common.bus.subjects import TreeKind, TreeLocation


class FakeStream:
    """The last message of every subject, in the order in which they were stored."""

    def __init__(self) -> None:
        self._last: dict[str, Message] = {}
        self._readers: set[asyncio.Queue[tuple[str, Message] | str]] = set()

    async def store(self, subject: str, message: Message) -> None:
        """Store a message and deliver it."""
        self._last.pop(subject, None)
        self._last[subject] = message
        for reader in self._readers:
            reader.put_nowait((subject, message))

    async def mark(self, epoch: str, version: int, partitions: frozenset[int]) -> None:
        """Report that some partitions are complete."""
        for partition in sorted(partitions):
            await self.store(
                subjects.build_marker_subject(partition), Synced(epoch=epoch, version=version)
            )

    async def lose(self) -> None:
        """Lose everything, as a stream does with its volume."""
        self._last.clear()
        await self.interrupt("the stream was lost")

    async def interrupt(self, why: str = "the connection was lost") -> None:
        """Break every reader's view; nothing is lost."""
        for reader in self._readers:
            reader.put_nowait(why)

    def open(self) -> "asyncio.Queue[tuple[str, Message] | str]":
        """Return all that is held, and then what follows."""
        queue: asyncio.Queue[tuple[str, Message] | str] = asyncio.Queue()
        for stored in self._last.items():
            queue.put_nowait(stored)
        self._readers.add(queue)
        return queue

    def close(self, queue: "asyncio.Queue[tuple[str, Message] | str]") -> None:
        """Forget a reader."""
        self._readers.discard(queue)

    def __len__(self) -> int:
        return len(self._last)


class FakeFeed:
    """Follows a `FakeStream`; implements `common.bus.feed.Feed`."""

    def __init__(self, stream: FakeStream, *, tree: TreeKind | None = None) -> None:
        self._stream = stream
        self._tree = tree

    async def follow(self, partition: int, listener: PartitionListener) -> None:
        """Deliver a partition to the listener until cancelled."""
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
