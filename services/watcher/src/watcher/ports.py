"""What the relay needs from outside."""

from typing import Protocol

import msgspec

from common.bus.messages import Message


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the stream holds under a subject, without the body; `sequence` 0 means nothing."""

    sequence: int = 0
    kind: str = ""
    version: str = ""
    form: str = ""
    uid: str = ""
    is_gone: bool = False


class StreamIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one stream from another of the same name, and how far it has come."""

    created: str
    last_sequence: int


class Stream(Protocol):
    """The state stream as its only writer sees it; every call may raise `Unavailable`."""

    async def until_lost(self) -> str:
        """Wait until the connection that stands now is lost; return why."""
        ...

    async def identity(self) -> StreamIdentity:
        """Say which stream this is; `NotFound` when there is none."""
        ...

    async def load(self) -> dict[str, Entry]:
        """Return what every subject holds."""
        ...

    async def last(self, subject: str) -> Entry:
        """Return what one subject holds."""
        ...

    async def publish(self, subject: str, message: Message, *, expected: int | None, message_id: str) -> int:
        """Store a message if `expected` is still the subject's last sequence, else `Conflict`; return its sequence."""
        ...
