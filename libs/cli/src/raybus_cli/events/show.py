"""The options of `raybus events`, checked before the first request, and by them which events are shown, and in which form."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import re2

from common import durations, errors, untrusted
from common.bus import subjects
from common.bus.nats import Stored
from raybus_cli.events import rendering

NAME: Final = re2.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
DAYS: Final = re2.compile(r"([0-9]+)d")


class Service(msgspec.Struct, frozen=True):
    """The RayService of the events."""

    namespace: str
    name: str


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of events, and their form."""

    service: Service | None = None
    """None means every RayService."""
    namespace: str = ""
    """Of all RayServices, where none is named; empty means all namespaces."""
    since: datetime | None = None
    replay: str | None = None
    """The id of the first event to show."""
    limit: int | None = None
    """The first so many after `since` or `replay`; the last so many without either."""
    follow: bool = False
    as_json: bool = False

    @property
    def subject(self) -> str:
        """Return the filter of what is wanted."""
        if self.service is None:
            return subjects.events_of(self.namespace) if self.namespace else subjects.ALL_EVENTS
        return subjects.upgrade_event(self.service.namespace, self.service.name, "*")

    @property
    def has_start(self) -> bool:
        """Return whether a first event is named, so that a limit counts from there."""
        return self.since is not None or self.replay is not None


def check_service(text: str | None, own: str = "") -> Service | None:
    """Read NAMESPACE/RAYSERVICE, or a name alone where the caller's own namespace is known."""
    if text is None:
        return None
    namespace, slash, name = text.partition("/")
    if not slash and own:
        namespace, name = own, text
    if not (slash or own) or not NAME.fullmatch(namespace) or not NAME.fullmatch(name):
        raise errors.InvalidSpec(
            f"{text!r} names no RayService: expected NAMESPACE/RAYSERVICE, such as default/chat"
        )
    return Service(namespace, name)


def check_namespace(text: str | None) -> str:
    """Return the namespace that was given, empty when none was."""
    if text is not None and not NAME.fullmatch(text):
        raise errors.InvalidSpec(f"--namespace {text!r} is no name of a namespace")
    return text or ""


def check_since(text: str | None, *, now: datetime) -> datetime | None:
    """Read how long ago, or when: `90s`, `10m`, `1h30m`, `2d`, `2026-01-31T10:00:00Z`."""
    if text is None:
        return None
    moment = _moment(text, now=now)
    if moment is None:
        raise errors.InvalidSpec(
            f"--since {text!r} is no time: expected how long ago (90s, 10m, 1h30m, 2d) or when (2026-01-31T10:00:00Z)"
        )
    if moment > now:
        raise errors.InvalidSpec(
            f"--since {text!r} lies in the future; it is {now:%Y-%m-%dT%H:%M:%SZ} now"
        )
    return moment


def _moment(text: str, *, now: datetime) -> datetime | None:
    days = DAYS.fullmatch(text)
    try:
        length = timedelta(days=int(days[1])) if days else durations.parse(text)
        if length is not None:
            return now - length
        moment = datetime.fromisoformat(text)
    except (OverflowError, ValueError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def check_replay(text: str | None) -> str | None:
    """Return the id of an event."""
    if text is not None and not text.strip():
        raise errors.InvalidSpec(
            "--replay '': expected the id of an event; 'raybus events -o json' shows them"
        )
    return text


def check_limit(limit: int | None) -> int | None:
    """Return how many events are wanted at most."""
    if limit is not None and limit < 1:
        raise errors.InvalidSpec(f"--limit {limit}: expected a whole number of 1 or more")
    return limit


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
        line = (
            _one_line(event.payload)
            if self._options.as_json
            else rendering.line(event.subject, event.payload)
        )
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
    """Return the event as it is stored, in one line, with escapes for what a terminal obeys."""
    if b"\n" in payload:
        try:
            payload = msgspec.json.format(payload, indent=-1)
        except msgspec.DecodeError:
            payload = payload.replace(b"\n", b" ")
    return untrusted.escaped(payload.decode(errors="replace"))
