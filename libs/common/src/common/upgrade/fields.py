"""Typed reads of a user's manifest that collect problems instead of raising errors.

An illegal value is recorded as a problem with its path, and the read returns a legal value instead,
so that all problems are found at once.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec
import re2

from common import durations, untrusted
from common.api.opaque import Json

NO_TIME: Final = timedelta(0)
MIN_DURATION: Final = timedelta(microseconds=1)
MAX_DURATION: Final = timedelta(days=7)
"""Maximum of any duration for which an upgrade waits."""
MAX_LATENCY: Final = timedelta(hours=1)
DURATION: Final = re2.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
"""The duration format of the Gateway API."""
DECIMAL: Final = re2.compile(r"-?[0-9]{1,15}([.][0-9]{1,12})?")
"""Matches a decimal number without an exponent, written as a string.

It is a string because the same field also takes percentages, and a CRD field has only one type.
"""
PERCENT: Final = re2.compile(r"([0-9]{1,4}([.][0-9]{1,2})?)%")
_SHOWN: Final = 60
"""Characters after which messages cut off a value that they quote."""
_NAME: Final = re2.compile(r"[A-Za-z0-9]{1,40}")
T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """The fields of one object in a manifest; `path` is where the object is.

    Each reading method takes the name of a field. If the value is illegal, the method adds a
    message to `problems` and returns a legal value instead. Null counts as absent. With `strict`,
    `close` reports the first unknown field: one that no method has read.
    """

    def __init__(self, value: Any, path: str, problems: list[str], *, strict: bool) -> None:
        self._path, self._problems, self._strict = path, problems, strict
        self._values: Json = value if isinstance(value, dict) else {}
        self._read: set[str] = set()
        if not isinstance(value, dict):
            problems.append(f"{path}: {_shown(value)} is not an object")
            self._problems = []  # do not also report that its fields are missing

    def note(self, name: str, problem: str) -> None:
        self._problems.append(f"{self._path}.{name}: {problem}")

    def has(self, name: str) -> bool:
        """Return whether a field is set; null counts as absent, as in the API server."""
        self._read.add(name)
        return self._values.get(name) is not None

    def read(self, reader: Callable[["Fields"], T]) -> T:
        """Return the result of `reader` for these fields, and `close` them."""
        value = reader(self)
        self.close()
        return value

    def close(self) -> None:
        """If reading is strict, report the first unknown field as a problem.

        Otherwise unknown fields are ignored, since a later release may have added them.
        """
        if self._strict and (
            unknown := sorted(str(name) for name in self._values.keys() - self._read)
        ):
            name = unknown[0] if _NAME.fullmatch(unknown[0]) else _shown(unknown[0])
            self.note(name, f"is not a field; these are: {', '.join(sorted(self._read))}")

    def number(self, name: str, least: int, most: int, default: int | None = None) -> int:
        legal = f"a whole number from {least} to {most}"
        return self._value(name, int, lambda value: least <= value <= most, legal, default, least)

    def fraction(self, name: str, least: float, most: float) -> float:
        """Read a required float from `least` to `most`; an integer is a problem."""
        legal = f"a number from {least} to {most}"
        return self._value(name, float, lambda value: least <= value <= most, legal, None, most)

    def switch(self, name: str, *, default: bool) -> bool:
        return self._value(name, bool, lambda _: True, "true or false", default, default)

    def text(
        self, name: str, is_legal: Callable[[str], object], legal: str, default: str | None = None
    ) -> str:
        """Read a text; if `is_legal` is false for it, report a problem and return "".

        `legal` describes the legal values in the message.
        """
        return self._value(name, str, is_legal, legal, default, "")

    def choice(self, name: str, kind: type[Choice], default: Choice) -> Choice:
        members = [member.value for member in kind]
        return kind(
            self._value(
                name, str, members.__contains__, f"one of {', '.join(members)}", default, default
            )
        )

    def members(self, name: str, legal: Sequence[str]) -> tuple[str, ...]:
        """Read a list of distinct members of `legal`; empty if the field is absent or illegal."""
        if not self.has(name):
            return ()
        value = self._values[name]
        members = _items(value) or []
        if (
            members
            and all(member in legal for member in members)
            and len(set(members)) == len(members)
        ):
            return tuple(members)
        self.note(
            name,
            f"{_shown(value)} is not a list of one or more different members of {', '.join(legal)}",
        )
        return ()

    def duration(self, name: str, *, is_required: bool = False) -> timedelta:
        """Read a duration for which an upgrade waits, at most 7 days; an absent field is zero.

        With `is_required`, the duration must be present and positive.
        """
        least, default, kind = (
            (MIN_DURATION, None, "positive duration")
            if is_required
            else (NO_TIME, "0s", "duration")
        )
        return self._length(name, least, MAX_DURATION, f"a {kind} such as 90s or 1h30m", default)

    def seconds(self, name: str) -> float:
        """Read a required, positive duration of a request, at most one hour; return seconds.

        An absent or illegal field is reported as a problem, and the result is 0.
        """
        return self._length(
            name, MIN_DURATION, MAX_LATENCY, "a positive duration such as 250ms", None
        ).total_seconds()

    def _length(
        self, name: str, least: timedelta, most: timedelta, legal: str, default: str | None
    ) -> timedelta:
        legal = f"{legal}, at most {durations.text(most)}"
        text = self.text(
            name,
            lambda text: DURATION.fullmatch(text) and least <= _parsed(text) <= most,
            legal,
            default,
        )
        return _parsed(text)

    def percent(self, name: str, *, most: float) -> float:
        """Read a required percentage, at most `most` percent; return it as a fraction."""
        legal = f"a percentage such as 1% or 0.5%, at most {most:g}%"
        text = self.text(
            name, lambda text: PERCENT.fullmatch(text) and float(text[:-1]) <= most, legal
        )
        return float(text[:-1] or 0) / 100

    def decimal(self, name: str) -> float:
        """Read a required decimal number that is written as a string, such as "0.5"."""
        return float(
            self.text(
                name, DECIMAL.fullmatch, 'a number in quotes such as "0.5", without an exponent'
            )
            or 0
        )

    def section(self, name: str) -> "Fields | None":
        """Return the fields of the object in the field `name`; None if the field is absent."""
        return self._inside(self._values[name], name) if self.has(name) else None

    def sections(self, name: str, most: int) -> list["Fields"]:
        """Return the fields of each object in the list in the field `name`.

        The result is empty if the field is absent. A value that is not a list of 1 to `most` items
        is reported as a problem, and the result is empty, too.
        """
        if not self.has(name):
            return []
        items = _items(self._values[name])
        if items is not None and 1 <= len(items) <= most:
            return [
                self._inside(item, f"{name}[{position}]") for position, item in enumerate(items)
            ]
        text = (
            f"has {len(items)} items"
            if items is not None
            else f"{_shown(self._values[name])} is not a list"
        )
        self.note(name, f"{text}; state 1 to {most}, or leave it out")
        return []

    def _inside(self, value: Any, name: str) -> "Fields":
        return Fields(value, f"{self._path}.{name}", self._problems, strict=self._strict)

    def _value(
        self,
        name: str,
        kind: type[T],
        is_legal: Callable[[T], object],
        legal: str,
        default: T | None,
        instead: T,
    ) -> T:
        """Return a field; `default` if it is absent, `instead` if it is illegal.

        If `default` is None, the field is required.
        """
        if not self.has(name):
            if default is None:
                self.note(name, f"is missing; state {legal}")
            return instead if default is None else default
        value = self._values[name]
        if type(value) is kind and is_legal(value):  # a bool does not count as an int here
            return value
        self.note(name, f"{_shown(value)} is not {legal}")
        return instead


def _items(value: Any) -> list[Any] | None:
    # The items may have any type.
    return value if isinstance(value, list) else None  # pyright: ignore[reportUnknownVariableType]


def _parsed(text: str) -> timedelta:
    return durations.parse(text) or NO_TIME


def _shown(value: Any) -> str:
    """Return a value as short JSON without control characters, for messages."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        if isinstance(value, str):
            value = untrusted.clipped(value, _SHOWN)
        return untrusted.clipped(msgspec.json.encode(value).decode(), _SHOWN + 2)
    except (TypeError, ValueError, OverflowError):  # a YAML date, or an unpaired surrogate
        return f"a value of type {type(value).__name__}"
