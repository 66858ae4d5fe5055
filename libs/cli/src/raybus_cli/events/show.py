"""The options of `raybus events`, and the output of the events that they select."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import re2

from common import durations, errors, untrusted
from common.bus import subjects
from common.bus.nats import StoredMessage
from raybus_cli.events import rendering

NAME: Final = re2.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
DAYS: Final = re2.compile(r"([0-9]+)d")


class Service(msgspec.Struct, frozen=True):
    """The RayService whose events are selected."""

    namespace: str
    name: str


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The validated options."""

    service: Service | None = None
    """The selected RayService; None selects all."""
    namespace: str = ""
    """Namespace of the events if no RayService is given; empty selects all namespaces."""
    since: datetime | None = None
    replay: str | None = None
    """Id of the first event to print."""
    limit: int | None = None
    """Maximum number of events: the first ones with `since` or `replay`, else the last ones."""
    follow: bool = False
    as_json: bool = False

    @property
    def subject(self) -> str:
        """NATS subject filter for the selected events."""
        if self.service is None:
            return (
                subjects.build_events_filter(self.namespace)
                if self.namespace
                else subjects.ALL_EVENTS
            )
        return subjects.build_event_subject(self.service.namespace, self.service.name, "*")

    @property
    def has_start(self) -> bool:
        """Whether the options set a first event, so that a limit counts from there."""
        return self.since is not None or self.replay is not None


def check_service(text: str | None, own: str = "") -> Service | None:
    """Parse NAMESPACE/NAME, or a name alone in the namespace `own`.

    Raise `InvalidSpec` for other text.
    """
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
    """Validate a namespace; empty if none is given."""
    if text is not None and not NAME.fullmatch(text):
        raise errors.InvalidSpec(f"--namespace {text!r} is no name of a namespace")
    return text or ""


def check_since(text: str | None, *, now: datetime) -> datetime | None:
    """Parse an age (`90s`, `10m`, `1h30m`, `2d`) or a time (`2026-01-31T10:00:00Z`).

    Raises `InvalidSpec` for any other text and for a time in the future.
    """
    if text is None:
        return None
    moment = _moment(text, now=now)
    if moment is None:
        raise errors.InvalidSpec(
            f"--since {text!r} is no time: expected how long ago (90s, 10m, 1h30m, 2d) or when "
            "(2026-01-31T10:00:00Z)"
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
    """Validate the id of `--replay`; raise `InvalidSpec` if it is blank."""
    if text is not None and not text.strip():
        raise errors.InvalidSpec(
            "--replay '': expected the id of an event; 'raybus events -o json' shows them"
        )
    return text


def check_limit(limit: int | None) -> int | None:
    """Validate `--limit`; raise `InvalidSpec` if it is less than 1."""
    if limit is not None and limit < 1:
        raise errors.InvalidSpec(f"--limit {limit}: expected a whole number of 1 or more")
    return limit


REMEMBERED: Final = 10_000
"""Ids kept to recognise repeated events; a repetition comes within minutes."""


class Identity(msgspec.Struct, frozen=True):
    """Id and source of a CloudEvent; together they are unique."""

    id: str = ""
    source: str = ""


class Show:
    """Prints one line per event; a repeated event is printed once."""

    def __init__(self, options: Options, write: Callable[[str], None]) -> None:
        self._options = options
        self._write = write
        self._known: dict[Identity, None] = {}
        self._last: deque[str] = deque(maxlen=options.limit)
        self._is_held_back = options.limit is not None and not options.has_start
        self._waits_for = options.replay
        self.count = 0
        """Number of events printed."""

    @property
    def is_start_missing(self) -> bool:
        """Whether the event of `--replay` was not found."""
        return self._waits_for is not None

    def take(self, event: StoredMessage) -> bool:
        """Print an event if it is selected; return whether to continue."""
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
        """Print the lines that a limit held back; return whether to wait for new events."""
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


def _identity(event: StoredMessage) -> Identity:
    try:
        found = msgspec.json.decode(event.payload, type=Identity)
    except msgspec.DecodeError:
        found = Identity()
    return found if found.id else Identity(source=f"sequence {event.sequence}")


def _one_line(payload: bytes) -> str:
    """Return the stored event as one line, with control characters escaped."""
    if b"\n" in payload:
        try:
            payload = msgspec.json.format(payload, indent=-1)
        except msgspec.DecodeError:
            payload = payload.replace(b"\n", b" ")
    return untrusted.escaped(payload.decode(errors="replace"))
