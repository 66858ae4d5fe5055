"""The stream of upgrade events, as far as one publisher sees it: ids are known for two minutes, as JetStream does."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from common import upgrade_events
from common.runtime.clock import Clock
from common.upgrade_events import CloudEvent, Data

WINDOW: Final = 120.0
"""Seconds in which a message that comes again is stored once."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the stream holds it."""

    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def event(self) -> CloudEvent[Data]:
        return upgrade_events.decode(self.payload)

    @property
    def kind(self) -> str:
        return upgrade_events.kind_of(self.event.type)


class FakeEvents:
    """A stream, and the connection to it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.problem: str | None = None
        """Why there is no connection."""
        self.stored: list[Told] = []
        self.sent: list[Told] = []
        """The same with all repetitions."""
        self.attempts = 0
        self.on_publish: list[Callable[[str], None]] = []
        """Told of each publish, `before` and `after` it is stored; what they raise is the answer."""
        self._known: dict[str, float] = {}

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str], *, expected: int | None, message_id: str
    ) -> object:
        self.attempts += 1
        for tell in self.on_publish:
            tell("before")
        now = self._clock.monotonic()
        message = Told(subject=subject, headers={**headers, "Nats-Msg-Id": message_id}, payload=payload)
        self.sent.append(message)
        if now - self._known.get(message_id, -WINDOW) >= WINDOW:
            self._known[message_id] = now
            self.stored.append(message)
        for tell in self.on_publish:
            tell("after")
        return None

    def kinds(self) -> list[str]:
        """Return the kinds of all events, repetitions left out, in order."""
        return [each.kind for each in self.unique()]

    def unique(self) -> list[Told]:
        """Return the events as a reader has them who passes over ids that he has seen."""
        found: dict[str, Told] = {}
        for each in self.stored:
            found.setdefault(each.event.id, each)
        return list(found.values())
