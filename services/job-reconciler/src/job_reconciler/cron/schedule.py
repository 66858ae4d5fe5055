"""Cron schedules with the grammar of KubeRay's parser, robfig/cron (spec rayjob §20.2).

A schedule has five fields (minute, hour, day of month, month, day of week) or is a descriptor such
as `@daily` or `@every 90m`. When the zone's clock changes, a time that does not exist is skipped,
and a time that exists twice runs once, unless the schedule runs every hour.
"""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

import msgspec
import re2

from common import durations

MAX_YEARS: Final = 8
"""Number of years within which the next run is searched.

The next 29 February can be 8 years away (2096, 2104).
"""
_MAX_DIGITS: Final = 18
"""Maximum digits of a number in a schedule; more do not fit Go's `int`."""
_SPACE: Final = re2.compile(
    r"[\t\n\v\f\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}]+"
)
"""Characters that Go counts as white space."""
_NUMBER: Final = re2.compile("[+-]?[0-9]+")
_MONTH_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EVERY: Final = "@every "


class ScheduleError(ValueError):
    """Raised for a schedule that does not parse, with the text of KubeRay's parser."""


class _Unit(msgspec.Struct, frozen=True):
    """The permitted range of one of the five fields of a schedule, and the names of its values."""

    lowest: int
    highest: int
    names: dict[str, int] = {}


_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_WEEKDAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_UNITS: Final = (
    _Unit(0, 59),
    _Unit(0, 23),
    _Unit(1, 31),
    _Unit(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Unit(0, 6, {name: number for number, name in enumerate(_WEEKDAYS)}),
)
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Field(msgspec.Struct, frozen=True):
    """The values that one field of a schedule allows."""

    values: frozenset[int]
    has_star: bool
    """Whether a part of the field is `*` or `?` without a step above 1."""

    @property
    def ordered(self) -> list[int]:
        return sorted(self.values)


class Every(msgspec.Struct, frozen=True):
    """`@every <duration>`: each run is due one `period` after the previous run."""

    period: timedelta

    @property
    def is_possible(self) -> bool:
        """Whether the schedule ever runs, which is always True."""
        return True

    def next_run(self, after: datetime, zone: tzinfo) -> datetime | None:  # noqa: ARG002 - as Cron
        """Return the first run later than `after`; None if it is after the year 9999."""
        try:
            return after.replace(microsecond=0) + self.period
        except OverflowError:
            return None

    def newest_run(
        self,
        after: datetime,
        until: datetime,
        zone: tzinfo,  # noqa: ARG002 - as Cron
    ) -> datetime | None:
        """Return the last run later than `after` and not later than `until`, or None."""
        start = after.replace(microsecond=0)
        count = (until - start) // self.period
        return start + count * self.period if count > 0 else None


class Cron(msgspec.Struct, frozen=True):
    """A schedule of five fields: minute, hour, day of month, month and day of week."""

    minute: _Field
    hour: _Field
    day: _Field
    month: _Field
    weekday: _Field

    @property
    def is_possible(self) -> bool:
        """Whether the schedule ever runs; False for 30 February, or for a field without values."""
        has_day = any(
            day <= _MONTH_LENGTHS[month - 1]
            for month in self.month.values
            for day in self.day.values
        )
        has_time = bool(self.minute.values and self.hour.values and self.month.values)
        return has_time and self._combine_days(has_day, bool(self.weekday.values))

    def next_run(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first run later than `after`; None if there is none within `MAX_YEARS`."""
        local = after.astimezone(zone)
        for day in _generate_days(local.date(), step=1):
            if not self._has_day(day):
                continue
            first_hour = local.hour if day == local.date() else 0
            for hour in self.hour.ordered:
                if hour < first_hour:
                    continue
                runs = [run for run in self._generate_runs(day, hour, zone) if run > after]
                if runs:
                    return min(runs)
        return None

    def newest_run(self, after: datetime, until: datetime, zone: tzinfo) -> datetime | None:
        """Return the last run later than `after` and not later than `until`, or None.

        Runs more than `MAX_YEARS` before `until` are not found.
        """
        first, last = after.astimezone(zone).date(), until.astimezone(zone)
        for day in _generate_days(last.date(), step=-1):
            if day < first:
                return None
            if not self._has_day(day):
                continue
            last_hour = last.hour if day == last.date() else 23
            for hour in reversed(self.hour.ordered):
                if hour > last_hour:
                    continue
                runs = [run for run in self._generate_runs(day, hour, zone) if run <= until]
                if runs:
                    newest = max(runs)
                    return newest if newest > after else None
        return None

    def _has_day(self, day: date) -> bool:
        return day.month in self.month.values and self._combine_days(
            day.day in self.day.values, day.isoweekday() % 7 in self.weekday.values
        )

    def _combine_days(self, has_day: bool, has_weekday: bool) -> bool:  # noqa: FBT001 - two of a kind
        """Apply cron's rule for days: if neither day field has a star, one match is enough."""
        if self.day.has_star or self.weekday.has_star:
            return has_day and has_weekday
        return has_day or has_weekday

    def _generate_runs(self, day: date, hour: int, zone: tzinfo) -> Iterator[datetime]:
        """Yield the runs in one `hour` of a `day` in the time zone, as times in UTC."""
        runs_every_hour = len(self.hour.values) == 24
        for minute in self.minute.values:
            wall = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - zone below
            for fold in (0, 1) if runs_every_hour else (0,):
                try:
                    run = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
                    exists = run.astimezone(zone).replace(tzinfo=None) == wall
                except OverflowError:  # the first and the last day that Python knows
                    continue
                if exists:
                    yield run


Schedule = Cron | Every


def parse(text: str) -> Schedule:
    """Parse a schedule without a time zone. Raises `ScheduleError`."""
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith("@"):
        return _parse_descriptor(text)
    fields = [field for field in _SPACE.split(text) if field]
    if len(fields) != len(_UNITS):
        raise ScheduleError(
            f"expected exactly {len(_UNITS)} fields, found {len(fields)}: [{' '.join(fields)}]"
        )
    return Cron(*(_parse_field(text, unit) for text, unit in zip(fields, _UNITS, strict=True)))


def _parse_descriptor(text: str) -> Schedule:
    if text in _DESCRIPTORS:
        return parse(_DESCRIPTORS[text])
    if not text.startswith(_EVERY):
        raise ScheduleError(f"unrecognized descriptor: {text}")
    period = durations.parse(text.removeprefix(_EVERY))
    if period is None:
        quoted = json.dumps(text.removeprefix(_EVERY), ensure_ascii=False)
        raise ScheduleError(f"failed to parse duration {text}: time: invalid duration {quoted}")
    return Every(timedelta(seconds=max(1, int(period.total_seconds()))))


def _parse_field(text: str, unit: _Unit) -> _Field:
    parts = [_parse_range(part, unit) for part in text.split(",") if part]
    return _Field(
        frozenset[int]().union(*(values for values, _ in parts)), any(star for _, star in parts)
    )


def _parse_range(text: str, unit: _Unit) -> tuple[range, bool]:
    """Parse `n`, `n-m` or `*`, each with an optional `/step`.

    Return the allowed values, and whether they count as a star (see `_Field.has_star`).
    """
    bounds, *steps = text.split("/")
    first, *rest = bounds.split("-")
    is_star = first in {"*", "?"}
    if is_star:
        low, high = unit.lowest, unit.highest
    else:
        low = high = _parse_value(first, unit.names)
        if len(rest) > 1:
            raise ScheduleError(f"too many hyphens: {text}")
        if rest:
            high = _parse_value(rest[0], unit.names)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _parse_number(steps[0]) if steps else 1
    if steps and not rest:
        high = unit.highest
    _check_range(text, unit, low, high, step)
    return range(low, high + 1, step), is_star and step == 1


def _check_range(text: str, unit: _Unit, low: int, high: int, step: int) -> None:
    if low < unit.lowest:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({unit.lowest}): {text}")
    if high > unit.highest:
        raise ScheduleError(f"end of range ({high}) above maximum ({unit.highest}): {text}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _parse_value(text: str, names: dict[str, int]) -> int:
    number = names.get(text.lower())
    return _parse_number(text) if number is None else number


def _parse_number(text: str) -> int:
    """Parse a number as Go's `strconv.Atoi` does."""
    is_number = _NUMBER.fullmatch(text)
    if not is_number or len(text) > _MAX_DIGITS:
        problem = "value out of range" if is_number else "invalid syntax"
        quoted = json.dumps(text, ensure_ascii=False)
        raise ScheduleError(
            f"failed to parse int from {text}: strconv.Atoi: parsing {quoted}: {problem}"
        )
    number = int(text)
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def _generate_days(start: date, *, step: int) -> Iterator[date]:
    """Yield the days from `start` on for `MAX_YEARS` years; backwards with `step` -1."""
    day = start
    for _ in range(MAX_YEARS * 366 + 1):
        yield day
        try:
            day += timedelta(days=step)
        except OverflowError:
            return
