"""Selects the events that are shown, and their form."""

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from common.bus.nats import Stored
from raybus_cli.events import rendering
from raybus_cli.events.options import Options

REMEMBERED: Final = 10_000
"""Ids by which a repeated event is known; a repetition follows its first within minutes."""


class Identity(msgspec.Struct, frozen=True):
    """The identity of an event."""

    id: str = ""
    source: str = ""


class Show:
    """Writes one line per event; an event that comes twice is written once."""

    def __init__(self, options: Options, write: Callable[[str], None]) -> None:
        self._options = options
        self._write = write
        self._known: dict[Identity, None] = {}
        self._last: deque[str] = deque(maxlen=options.limit)
        self._is_held_back = options.limit is not None and not options.has_start
        self._waits_for = options.replay
        self.count = 0
        """Events written."""

    @property
    def is_start_missing(self) -> bool:
        """Return whether the event to begin with was not among those that were read."""
        return self._waits_for is not None

    def take(self, event: Stored) -> bool:
        """Show an event, if it is wanted; return whether more are."""
        identity = _identity(event)
        if identity in self._known:
            return True
        self._remember(identity)
        if self._waits_for is not None:
            if identity.id != self._waits_for:
                return True
            self._waits_for = None
        line = _one_line(event.payload) if self._options.as_json else rendering.line(event.subject, event.payload)
        if self._is_held_back:
            self._last.append(line)
            return True
        self._show(line)
        return not self._options.has_start or self.count != self._options.limit

    def caught_up(self) -> bool:
        """Show the withheld lines; return whether to wait for more."""
        self._is_held_back = False
        while self._last:
            self._show(self._last.popleft())
        return self._options.follow and not self.is_start_missing

    def _show(self, line: str) -> None:
        self._write(line)
        self.count += 1

    def _remember(self, identity: Identity) -> None:
        self._known[identity] = None
        if len(self._known) > REMEMBERED:
            self._known.pop(next(iter(self._known)))


def _identity(event: Stored) -> Identity:
    try:
        found = msgspec.json.decode(event.payload, type=Identity)
    except msgspec.DecodeError:
        found = Identity()
    return found if found.id else Identity(source=f"sequence {event.sequence}")


def _one_line(payload: bytes) -> str:
    """Return the event as it is stored, unless that is no single line."""
    if b"\n" in payload:
        try:
            payload = msgspec.json.format(payload, indent=-1)
        except msgspec.DecodeError:
            payload = payload.replace(b"\n", b" ")
    return payload.decode(errors="replace")
