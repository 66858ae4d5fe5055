"""The stream of upgrade events, as far as one publisher sees it: ids are known for two minutes, as JetStream does."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from common.clock import Clock
from common.upgrade import events as upgrade_events
from common.upgrade.events import CloudEvent, Data

WINDOW: Final = 120.0
"""Seconds in which a message that comes again is stored once."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
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
        self.stored: list[Report] = []
        self.sent: list[Report] = []
        """The same with all repetitions."""
        self.attempts = 0
        self.on_publish: list[Callable[[str], None]] = []
        """Called at each publish, `before` and `after` it is stored; what they raise is the answer."""
        self._known: dict[str, float] = {}

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        *,
        expected: int | None,
        message_id: str,
    ) -> object:
        self.attempts += 1
        for callback in self.on_publish:
            callback("before")
        now = self._clock.monotonic()
        message = Report(
            subject=subject, headers={**headers, "Nats-Msg-Id": message_id}, payload=payload
        )
        self.sent.append(message)
        if now - self._known.get(message_id, -WINDOW) >= WINDOW:
            self._known[message_id] = now
            self.stored.append(message)
        for callback in self.on_publish:
            callback("after")
        return None

    def kinds(self) -> list[str]:
        """Return the kinds of all events, repetitions left out, in order."""
        return [each.kind for each in self.unique()]

    def unique(self) -> list[Report]:
        """Return the events as a reader has them that skips ids that it has read."""
        found: dict[str, Report] = {}
        for each in self.stored:
            found.setdefault(each.event.id, each)
        return list(found.values())
