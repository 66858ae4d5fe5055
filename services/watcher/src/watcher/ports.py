"""What the relay needs from outside."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

import msgspec

from common.bus.messages import Message, Synced
from common.bus.streams import StreamInfo


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the stream holds under a subject, without the body; `sequence` 0 means nothing."""

    sequence: int = 0
    kind: str = ""
    version: str = ""
    form: str = ""
    uid: str = ""
    """Of an object; of a marker its epoch, where the body was read."""
    is_gone: bool = False


class Server(Protocol):
    """NATS as a replica sees it that leads, or would like to.

    `identity` raises `NotFound` when there is no stream, `Unavailable` without an answer; `is_in_reach` is whether the server itself
    answers, whatever its streams do; `reconnect` has another connection made, perhaps to another server.
    """

    async def identity(self) -> StreamInfo: ...
    async def is_in_reach(self) -> bool: ...
    async def reconnect(self, why: str) -> None: ...


class Stream(Protocol):
    """The state stream as its only writer sees it; every call may raise `Unavailable`.

    `until_lost` waits for the end of the present connection and returns why; `identity` raises `NotFound` when there is no stream,
    `InvalidSpec` when its configuration does not fit. `load` returns what every subject holds, `since` what was stored from a sequence on, with tombstones, `last` and
    `read` what one subject holds, and `marker` the newest sync marker, of any watcher. `purge` takes a subject's messages from the stream up to a sequence: that needs no
    room, as a tombstone does. `publish` stores a message if `expected` is still the subject's last sequence, else `Conflict`; it
    returns its sequence.
    """

    async def until_lost(self) -> str: ...
    async def identity(self) -> StreamInfo: ...
    async def load(self) -> dict[str, Entry]: ...
    async def since(self, sequence: int) -> dict[str, Entry]: ...
    async def last(self, subject: str) -> Entry: ...
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
