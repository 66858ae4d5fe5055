"""The options of `raybus events`, and the output of the events that they select."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import re2

from common import durations, errors, event_catalogue, untrusted
from common.bus import cloud_events, subjects
from common.bus.nats import StoredMessage
from raybus_cli.events import rendering

NAME_PATTERN: Final = re2.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
DAYS_PATTERN: Final = re2.compile(r"([0-9]+)d")
RESOURCES: Final = {
    name: family.resource
    for family in event_catalogue.FAMILIES
    for name in (family.resource, family.resource.removesuffix("s"))
}
"""Resource of each kind that may begin an argument: `rayjobs` for `rayjob`, for example."""


class SelectedObject(msgspec.Struct, frozen=True):
    """The RayService or RayJob whose events are selected."""

    namespace: str
    name: str
    resource: str = ""
    """`rayservices` or `rayjobs`; empty selects both."""


class EventOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The validated options."""

    selected: SelectedObject | None = None
    """The selected RayService or RayJob; None selects all."""
    kinds: frozenset[str] = frozenset()
    """Kinds of events; empty selects all."""
    namespace: str = ""
    """Namespace of the events if no object is given; empty selects all namespaces."""
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
        if self.selected is None:
            return (
                subjects.build_events_filter(self.namespace)
                if self.namespace
                else subjects.ALL_EVENTS
            )
        return subjects.build_event_subject(self.selected.namespace, self.selected.name, "*")

    @property
    def has_start(self) -> bool:
        """Whether the options set a first event. `limit` then counts from that event."""
        return self.since is not None or self.replay is not None


def parse_object(text: str | None, own: str = "") -> SelectedObject | None:
    """Parse [KIND/][NAMESPACE/]NAME; without a namespace the object is in the namespace `own`.

    Raise `InvalidSpec` for other text.
    """
    if text is None:
        return None
    first, slash, rest = text.partition("/")
    resource = RESOURCES.get(first.lower(), "") if slash else ""
    namespace, slash, name = (rest if resource else text).partition("/")
    if not slash and own:
        namespace, name = own, namespace
    if (
        not (slash or own)
        or not NAME_PATTERN.fullmatch(namespace)
        or not NAME_PATTERN.fullmatch(name)
    ):
        raise errors.InvalidSpec(
            f"{text!r} names no RayService and no RayJob: expected NAMESPACE/NAME, such as "
            "default/chat, or rayjob/NAMESPACE/NAME"
        )
    return SelectedObject(namespace, name, resource)


def parse_kinds(kinds: Sequence[str] | None) -> frozenset[str]:
    """Validate `--kind`; raise `InvalidSpec` for a kind that does not exist."""
    if unknown := [kind for kind in kinds or () if kind not in event_catalogue.KINDS]:
        raise errors.InvalidSpec(
            f"--kind {unknown[0]!r}: there is no such kind; kinds are "
            f"{', '.join(event_catalogue.KINDS)}"
        )
    return frozenset(kinds or ())


def check_namespace(text: str | None) -> str:
    """Return the namespace, or an empty text for None; raise `InvalidSpec` if it is invalid."""
    if text is not None and not NAME_PATTERN.fullmatch(text):
        raise errors.InvalidSpec(f"--namespace {text!r} is no name of a namespace")
    return text or ""


def parse_since(text: str | None, *, now: datetime) -> datetime | None:
    """Parse an age (`90s`, `10m`, `1h30m`, `2d`) or a time (`2026-01-31T10:00:00Z`).

    Raises `InvalidSpec` for any other text and for a time in the future.
    """
    if text is None:
        return None
    moment = _parse_moment(text, now=now)
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


def _parse_moment(text: str, *, now: datetime) -> datetime | None:
    days = DAYS_PATTERN.fullmatch(text)
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


MAX_REMEMBERED: Final = 10_000
"""Maximum number of event ids kept to recognise repetitions, which arrive within minutes."""


class CloudEventKey(msgspec.Struct, frozen=True):
    """Id and source of a CloudEvent; together they are unique."""

    id: str = ""
    source: str = ""


class EventPrinter:
    """Prints one line for each selected event; a repeated event is printed once."""

    def __init__(self, options: EventOptions, write: Callable[[str], None]) -> None:
        self._options = options
        self._write = write
        self._known: dict[CloudEventKey, None] = {}
        self._last: deque[str] = deque(maxlen=options.limit)
        self._is_held_back = options.limit is not None and not options.has_start
        self._waits_for = options.replay
        self.count = 0
        """Number of events printed."""

    @property
    def is_start_missing(self) -> bool:
        """Whether the event of `--replay` was not found."""
        return self._waits_for is not None

    def receive(self, event: StoredMessage) -> bool:
        """Print an event if it is selected; return whether the reader should continue."""
        identity = _read_identity(event)
        if identity in self._known:
            return True
        self._remember(identity)
        if self._waits_for is not None:
            if identity.id != self._waits_for:
                return True
            self._waits_for = None
        if not self._is_selected(event.subject, identity):
            return True
        line = (
            _format_raw(event.payload)
            if self._options.as_json
            else rendering.format_line(event.subject, event.payload)
        )
        if self._is_held_back:
            self._last.append(line)
            return True
        self._show(line)
        return not self._options.has_start or self.count != self._options.limit

    def _is_selected(self, subject: str, identity: CloudEventKey) -> bool:
        """Return whether an event passes the filters that NATS subjects cannot express."""
        selected, kinds = self._options.selected, self._options.kinds
        if kinds and subject.rpartition(".")[2] not in kinds:
            return False
        if selected is None or not selected.resource:
            return True
        source = cloud_events.parse_source(identity.source)
        return source is not None and source.resource == selected.resource

    def finish_stored(self) -> bool:
        """Print the lines kept back for `limit`; return whether to wait for new events."""
        self._is_held_back = False
        while self._last:
            self._show(self._last.popleft())
        return self._options.follow and not self.is_start_missing

    def _show(self, line: str) -> None:
        self._write(line)
        self.count += 1

    def _remember(self, identity: CloudEventKey) -> None:
        self._known[identity] = None
        if len(self._known) > MAX_REMEMBERED:
            self._known.pop(next(iter(self._known)))


def _read_identity(event: StoredMessage) -> CloudEventKey:
    try:
        identity = msgspec.json.decode(event.payload, type=CloudEventKey)
    except msgspec.DecodeError:
        identity = CloudEventKey()
    return identity if identity.id else CloudEventKey(source=f"sequence {event.sequence}")


def _format_raw(payload: bytes) -> str:
    """Return the stored event as one line, with control characters escaped."""
    if b"\n" in payload:
        try:
            payload = msgspec.json.format(payload, indent=-1)
        except msgspec.DecodeError:
            payload = payload.replace(b"\n", b" ")
    return untrusted.escaped(payload.decode(errors="replace"))
