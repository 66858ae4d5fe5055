"""The stream of events from the view of one publisher.

It recognizes repeated ids for two minutes, as JetStream does.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from common import event_catalogue
from common.bus.cloud_events import CloudEvent
from common.clock import Clock

WINDOW: Final = 120.0
"""Seconds in which a repeated message is stored only once."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the stream stores it."""

    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def event(self) -> CloudEvent[Any]:
        return event_catalogue.decode(self.payload)

    @property
    def kind(self) -> str:
        return event_catalogue.kind_of(self.event.type)


class FakeEvents:
    """An in-memory stream of upgrade events, with the connection to it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.problem: str | None = None
        """Reason why there is no connection; None while connected."""
        self.stored: list[Report] = []
        self.sent: list[Report] = []
        """All messages that were sent, repetitions included."""
        self.attempts = 0
        self.on_publish: list[Callable[[str], None]] = []
        """Functions that are called twice for each publish, with `before` and `after` for the
        moment of storing; an exception that they raise is the result of the publish."""
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
        """Return the kinds of all events in order, without repetitions."""
        return [each.kind for each in self.unique()]

    def unique(self) -> list[Report]:
        """Return the events as received by a reader that skips ids it has already read."""
        found: dict[str, Report] = {}
        for each in self.stored:
            found.setdefault(each.event.id, each)
        return list(found.values())
