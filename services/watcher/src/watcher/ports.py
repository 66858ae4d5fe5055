"""What the relay needs from outside."""

from typing import Protocol

import msgspec

from common.bus.feed import Synced
from common.bus.messages import Message


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the stream holds under a subject, without the body; `sequence` 0 means nothing."""

    sequence: int = 0
    kind: str = ""
    version: str = ""
    form: str = ""
    uid: str = ""
    """Of an object; of a marker its epoch, where the body was read."""
    is_gone: bool = False


class StreamIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a stream among others of the same name, and its last sequence."""

    created: str
    last_sequence: int
    size: int = 0
    """Bytes that it holds."""


class Server(Protocol):
    """NATS as a replica sees it that leads, or would like to."""

    async def identity(self) -> StreamIdentity:
        """Return the identity of the stream; `NotFound` when there is none, `Unavailable` without an answer."""
        ...

    async def is_in_reach(self) -> bool:
        """Return whether the server itself answers, whatever its streams do."""
        ...

    async def reconnect(self, why: str) -> None:
        """Have another connection made, perhaps to another server."""
        ...


class Stream(Protocol):
    """The state stream as its only writer sees it; every call may raise `Unavailable`."""

    async def until_lost(self) -> str:
        """Wait until the present connection is lost; return why."""
        ...

    async def identity(self) -> StreamIdentity:
        """Return the identity of the stream; `NotFound` when there is none, `InvalidSpec` when its configuration does not fit."""
        ...

    async def load(self) -> dict[str, Entry]:
        """Return what every subject holds."""
        ...

    async def last(self, subject: str) -> Entry:
        """Return what one subject holds."""
        ...

    async def read(self, subject: str) -> Message | None:
        """Return the message that one subject holds."""
        ...

    async def marker(self) -> Synced | None:
        """Return the newest sync marker, of any watcher."""
        ...

    async def purge(self, subject: str, *, up_to: int) -> None:
        """Take a subject's messages from the stream up to a sequence: that needs no room, as a tombstone does."""
        ...

    async def publish(self, subject: str, message: Message, *, expected: int | None, message_id: str) -> int:
        """Store a message if `expected` is still the subject's last sequence, else `Conflict`; return its sequence."""
        ...
