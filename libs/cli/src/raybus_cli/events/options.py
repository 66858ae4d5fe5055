"""The options of `raybus events`, checked before the first request; each error names the option and the remedy."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from common import durations, errors
from common.bus import subjects

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
DAYS: Final = re.compile(r"([0-9]+)d")


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
        raise errors.InvalidSpec(f"{text!r} names no RayService: expected NAMESPACE/RAYSERVICE, such as default/chat")
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
        raise errors.InvalidSpec(f"--since {text!r} lies in the future; it is {now:%Y-%m-%dT%H:%M:%SZ} now")
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
        raise errors.InvalidSpec("--replay '': expected the id of an event; 'raybus events -o json' shows them")
    return text


def check_limit(limit: int | None) -> int | None:
    """Return how many events are wanted at most."""
    if limit is not None and limit < 1:
        raise errors.InvalidSpec(f"--limit {limit}: expected a whole number of 1 or more")
    return limit
