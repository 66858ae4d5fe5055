"""The interfaces through which leadership and sessions use NATS."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

import msgspec

from common.bus.messages import Message, Synced
from common.bus.streams import StreamInfo


class StreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The last message of a subject without its body.

    `sequence` is 0 if the subject has no message.
    """

    sequence: int = 0
    kind: str = ""
    version: str = ""
    form: str = ""
    uid: str = ""
    """Uid of the object.

    For a sync marker it is the epoch, or empty if the marker's body was not read.
    """
    is_gone: bool = False


class BusServer(Protocol):
    """The NATS server, for a replica that leads or stands by.

    - `identity` returns the identity and state of the state stream. It raises `NotFound` if the
      stream does not exist and `Unavailable` if NATS does not answer.
    - `is_in_reach` returns whether the NATS server answers, whatever the state of its streams.
    - `reconnect` closes the connection, so that a new one is made, perhaps to another server.
    """

    async def identity(self) -> StreamInfo: ...
    async def is_in_reach(self) -> bool: ...
    async def reconnect(self, reason: str) -> None: ...


class StateStream(Protocol):
    """The state stream, for the watcher that writes to it. Every call may raise `Unavailable`.

    - `until_lost` waits for the end of the current connection and returns the reason.
    - `identity` raises `NotFound` if the stream does not exist, and `InvalidSpec` if its
      configuration is wrong.
    - `load` returns the last entry of every subject that holds an object.
    - `since` returns, by subject, the last entries that were stored at `sequence` or later,
      including tombstones.
    - `last` and `read` return the last entry and the last message of one subject.
    - `marker` returns the newest sync marker of any watcher; None if there is none.
    - `purge` removes the messages of a subject up to a sequence. Unlike a tombstone, this needs no
      free space.
    - `publish` stores a message and returns its sequence. It raises `Conflict` unless `expected` is
      the last sequence of the subject.
    """

    async def until_lost(self) -> str: ...
    async def identity(self) -> StreamInfo: ...
    async def load(self) -> dict[str, StreamEntry]: ...
    async def since(self, sequence: int) -> dict[str, StreamEntry]: ...
    async def last(self, subject: str) -> StreamEntry: ...
    async def read(self, subject: str) -> Message | None: ...
    async def marker(self) -> Synced | None: ...
    async def purge(self, subject: str, *, up_to: int) -> None: ...
    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        *,
        expected: int | None,
        message_id: str,
    ) -> Awaitable[int]: ...
