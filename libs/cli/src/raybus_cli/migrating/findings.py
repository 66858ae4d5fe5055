"""The findings of a check, about the installation or about one object, and their verdict. Data only."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec


class Level(StrEnum):
    """The consequence of a finding for the take-over."""

    NOTE = "note"
    """Worth knowing; no pod, no Service, no spec and no traffic is touched."""
    UNREAD = "unread"
    """It could not be read."""
    UNSUPPORTED = "unsupported"
    """Something is used that raybus does not support."""
    CHANGE = "change"
    """Taking over would change something."""


_WORST: Final = (Level.CHANGE, Level.UNSUPPORTED, Level.UNREAD)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding, with its remedy."""

    level: Level
    text: str
    remedy: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One object, and what taking it over would change."""

    kind: str
    namespace: str
    name: str
    verdict: str
    """`nothing`, or the worst level among its findings."""
    findings: list[Finding] = []


def subject(kind: str, namespace: str, name: str, findings: Iterable[Finding]) -> Subject:
    """Return an object's part of the report."""
    found = list(findings)
    level = worst(found)
    verdict = "nothing" if level is None else level.value
    return Subject(kind=kind, namespace=namespace, name=name, verdict=verdict, findings=found)


def worst(findings: Iterable[Finding]) -> Level | None:
    """Return the worst level that is more than a note."""
    levels = {each.level for each in findings}
    return next((level for level in _WORST if level in levels), None)


def note(text: str, remedy: str = "") -> Finding:
    """Return a finding that changes nothing."""
    return Finding(level=Level.NOTE, text=text, remedy=remedy)


def change(text: str, remedy: str = "") -> Finding:
    """Return a finding about something that would change."""
    return Finding(level=Level.CHANGE, text=text, remedy=remedy)


def unsupported(text: str, remedy: str = "") -> Finding:
    """Return a finding about something that raybus does not support."""
    return Finding(level=Level.UNSUPPORTED, text=text, remedy=remedy)


def unread(text: str, remedy: str = "") -> Finding:
    """Return a finding about something that could not be read."""
    return Finding(level=Level.UNREAD, text=text, remedy=remedy)
