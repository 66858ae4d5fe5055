"""Reads YAML as Go's `sigs.k8s.io/yaml` does, which KubeRay uses: YAML 1.1 by go-yaml v2, then JSON.

libyaml makes the events; this module decides what they mean. It differs from PyYAML's own reader in scalars (`1e-4` is a number,
`10:30` and dates are texts, `0o14` is twelve), in merges (a merge overrides what stands before it), in keys, in tags (unknown ones
are passed over) and in that all but the first document is passed over. What it is held to: tests/golden/serve_config.

Nothing recurses, and every limit is checked while reading, so that no text takes long or much.
"""

import base64
import binascii
import codecs
import math
import re
import struct
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

import msgspec
import yaml

Value: TypeAlias = Any
"""What JSON can hold."""

_TAG: Final = "tag:yaml.org,2002:"
_BINARY: Final = f"{_TAG}binary"
_STR: Final = f"{_TAG}str"
_MERGE: Final = f"{_TAG}merge"
_TIMESTAMP: Final = f"{_TAG}timestamp"
_FLOAT: Final = f"{_TAG}float"
_RESOLVABLE: Final = {"", _STR, _FLOAT, _TIMESTAMP, f"{_TAG}bool", f"{_TAG}int", f"{_TAG}null"}
_KEYWORDS: Final[dict[str, tuple[str, Value]]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), (f"{_TAG}bool", True)),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), (f"{_TAG}bool", False)
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (f"{_TAG}null", None)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), (_FLOAT, math.nan)),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), (_FLOAT, math.inf)),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), (_FLOAT, -math.inf)),
}
_INT: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO](?P<oct>[0-7]+)|0(?P<old>[0-7]*)|(?P<dec>[1-9][0-9]*))"
)
_LATE_BINARY: Final = re.compile(r"0b(?P<sign>[-+])(?P<bin>[01]+)")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FRACTION: Final = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")
_DATE: Final = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})?)?"
)
_BASES: Final = (("hex", 16), ("bin", 2), ("oct", 8), ("old", 8), ("dec", 10))
_INT64: Final = 2**63
_MOST_DIGITS: Final = 64
"""No integer of 64 bits has more, in any base, without leading zeros."""
_LARGEST_PLAIN: Final = 1e21
"""Go writes a whole number below it without an exponent, and so as an integer."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one text may hold, aliases written out."""

    values: int
    characters: int
    levels: int


class NotYamlError(ValueError):
    """The text cannot be read; the message is one line."""


class _Held(msgspec.Struct, frozen=True):
    """A value that has an anchor, and what writing it out once more costs."""

    value: Value
    values: int = 0
    characters: int = 0
    levels: int = 0
    is_open: bool = False
    """It is still being read, so that an alias to it would hold itself."""


class _Frame:
    """A mapping or a sequence that is being read."""

    __slots__ = ("anchor", "began", "held", "into", "key", "levels", "merges")

    def __init__(self, into: "dict[str, Value] | list[Value]", anchor: str | None, began: tuple[int, int]) -> None:
        self.into = into
        self.anchor = anchor
        self.began = began
        self.key: str | None = None
        self.merges = False
        """The next value is merged into this mapping."""
        self.levels = 1
        self.held = _Held(None, is_open=True)


def load(text: str, limits: Limits) -> Value:
    """Return the first document of a text as JSON data; `NotYamlError` has the reason in one line. Parts may be shared: change nothing."""
    try:
        return _Reader(limits).read(text)
    except yaml.MarkedYAMLError as problem:
        where = f"line {problem.problem_mark.line + 1}: " if problem.problem_mark else ""
        raise NotYamlError(f"{where}{problem.problem}") from problem
    except (yaml.YAMLError, UnicodeEncodeError) as problem:
        raise NotYamlError(" ".join(str(problem).split())) from problem


class _Reader:
    """Builds a value from the events of one document."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._values = 0
        self._characters = 0
        self._anchors: dict[str, _Held] = {}
        self._stack: list[_Frame] = []
        self._result: Value = None
        self._line = 0

    def read(self, text: str) -> Value:
        for event in yaml.parse(text, Loader=yaml.CBaseLoader):
            if event.start_mark is not None:
                self._line = event.start_mark.line + 1
            match event:
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.MappingStartEvent():
                    self._open(cast("dict[str, Value]", {}), event.anchor)
                case yaml.SequenceStartEvent():
                    self._open(cast("list[Value]", []), event.anchor)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._close()
                case yaml.AliasEvent():
                    self._alias(cast("str", event.anchor))
                case yaml.DocumentStartEvent() if event.version not in {None, (1, 1)}:
                    raise self._wrong("found incompatible YAML document: %YAML must be 1.1")
                case yaml.DocumentEndEvent():
                    break
                case _:
                    pass
        return self._result

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text, tag, is_plain = event.value, event.tag or "", bool(event.implicit[0])
        self._spend(1, len(text))
        top = self._stack[-1] if self._stack else None
        is_key = top is not None and isinstance(top.into, dict) and top.key is None and not top.merges
        if top is not None and is_key and text == "<<" and (is_plain or tag == _MERGE):
            top.merges = True
            return
        value = text if not tag and not is_plain else self._resolved(tag, text)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Held(value, 1, len(text))
        self._put(value)

    def _open(self, into: "dict[str, Value] | list[Value]", anchor: str | None) -> None:
        self._spend(1, 0)
        if len(self._stack) >= self._limits.levels:
            raise self._wrong(f"it is nested deeper than {self._limits.levels} levels")
        frame = _Frame(into, anchor, (self._values, self._characters))
        if anchor is not None:
            self._anchors[anchor] = frame.held
        self._stack.append(frame)

    def _close(self) -> None:
        frame = self._stack.pop()
        values, characters = frame.began
        if frame.anchor is not None and self._anchors[frame.anchor] is frame.held:
            self._anchors[frame.anchor] = _Held(
                frame.into, self._values - values + 1, self._characters - characters, frame.levels
            )
        if self._stack:
            self._stack[-1].levels = max(self._stack[-1].levels, frame.levels + 1)
        self._put(frame.into)

    def _alias(self, anchor: str) -> None:
        held = self._anchors.get(anchor)
        if held is None:
            raise self._wrong(f"unknown anchor '{anchor[:50]}' referenced")
        if held.is_open:
            raise self._wrong(f"anchor '{anchor[:50]}' value contains itself")
        self._spend(held.values, held.characters)
        if len(self._stack) + held.levels > self._limits.levels:
            raise self._wrong(f"it is nested deeper than {self._limits.levels} levels")
        if self._stack:
            self._stack[-1].levels = max(self._stack[-1].levels, held.levels + 1)
        self._put(held.value, is_alias=True)

    def _put(self, value: Value, *, is_alias: bool = False) -> None:
        """Place a value that has been read."""
        if not self._stack:
            self._result = self._json(value)
            return
        top = self._stack[-1]
        if isinstance(top.into, list):
            top.into.append(self._json(value))
        elif top.merges:
            self._merge(top.into, value, is_alias=is_alias)
            top.merges = False
        elif top.key is None:
            top.key = self._key(value)
        else:
            top.into[top.key] = self._json(value)
            top.key = None

    def _merge(self, into: dict[str, Value], value: Value, *, is_alias: bool) -> None:
        parts = cast("list[Value]", value if isinstance(value, list) and not is_alias else [value])
        for part in reversed(parts):
            if not isinstance(part, dict):
                raise self._wrong("map merge requires map or sequence of maps as the value")
            into.update(cast("dict[str, Value]", part))

    def _key(self, value: Value) -> str:
        match value:
            case str():
                return value
            case bool():
                return "true" if value else "false"
            case int() if value < _INT64:
                return str(value)
            case float():
                return _float32(value)
            case dict() | list():
                raise self._wrong("a mapping or a sequence cannot be a key")
            case _:
                raise self._wrong("null, or a number beyond 64 bits, cannot be a key")

    def _json(self, value: Value) -> Value:
        """Return a value as it comes through JSON."""
        match value:
            case bool():
                return value
            case int():
                return value if -_INT64 <= value < _INT64 else _written(float(value))
            case float() if not math.isfinite(value):
                raise self._wrong(f"{value} cannot be written in JSON")
            case float():
                return _written(value) if value.is_integer() and abs(value) < _LARGEST_PLAIN else value
            case _:
                return value

    def _resolved(self, tag: str, text: str) -> Value:
        """Return what a scalar means that is plain or has a tag."""
        if tag == _BINARY:
            return self._bytes(text)
        if tag not in _RESOLVABLE or tag == _STR:
            return text
        found, value = _plain(tag, text)
        if not tag or found == tag:
            return value
        if tag == _FLOAT and isinstance(value, int) and not isinstance(value, bool) and value < _INT64:
            return float(value)
        raise self._wrong(f"cannot decode {text[:50]!r} as a !!{tag.removeprefix(_TAG)}")

    def _bytes(self, text: str) -> str:
        try:
            data = base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
        except (binascii.Error, ValueError):
            raise self._wrong("!!binary value contains invalid base64 data") from None
        return data.decode(errors=_REPLACING)

    def _spend(self, values: int, characters: int) -> None:
        self._values += values
        self._characters += characters
        if self._values > self._limits.values:
            raise self._wrong(f"it holds more than {self._limits.values} values")
        if self._characters > self._limits.characters:
            raise self._wrong(f"it holds more than {self._limits.characters} characters")

    def _wrong(self, problem: str) -> NotYamlError:
        return NotYamlError(f"line {self._line}: {problem}")


def _plain(tag: str, text: str) -> tuple[str, Value]:
    """Return the tag that a plain text resolves to, and its value."""
    known = _KEYWORDS.get(text)
    if known is not None:
        return known
    first = text[0]
    if first == ".":
        return _real(text, _FRACTION)
    if first not in "+-0123456789":
        return _STR, text
    if tag in {"", _TIMESTAMP} and _DATE.fullmatch(text):
        return _TIMESTAMP, text
    plain = text.replace("_", "")
    whole = _whole(plain)
    if whole is not None:
        return f"{_TAG}int", whole
    found, value = _real(plain, _NUMBER)
    return (found, value if found == _FLOAT else text)


def _real(text: str, pattern: re.Pattern[str]) -> tuple[str, Value]:
    value = float(text) if pattern.fullmatch(text) else math.inf
    return (_FLOAT, value) if math.isfinite(value) else (_STR, text)


def _whole(text: str) -> int | None:
    """Return an integer of 64 bits, with a sign or without one, as Go's `ParseInt` and `ParseUint` read it."""
    match = _INT.fullmatch(text) or _LATE_BINARY.fullmatch(text)
    if match is None:
        return None
    groups = match.groupdict()
    digits, base = next((groups[name], base) for name, base in _BASES if groups.get(name) is not None)
    digits = cast("str", digits).lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(digits or "0", base)
    if groups["sign"] == "-":
        return -number if number <= _INT64 else None
    return number if number < (_INT64 if groups["sign"] else 2 * _INT64) else None


def _written(value: float) -> int:
    """Return a whole number as Go writes it: the fewest digits that name the float, and zeros."""
    return int(Decimal(repr(value)))


def _float32(value: float) -> str:
    """Write a number as Go's `FormatFloat(value, 'g', -1, 32)` does."""
    if math.isnan(value):
        return ".nan"
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = math.copysign(math.inf, value)
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    text = next(
        text
        for places in range(18)
        if struct.pack("f", float(text := f"{single:.{places}e}")) == struct.pack("f", single)
    )
    mantissa, _, power = text.partition("e")
    exponent = int(power)
    digits = mantissa.replace(".", "").replace("-", "")
    if not -4 <= exponent < 6:
        return f"{mantissa}e{exponent:+03d}"
    return f"{single:.{max(0, len(digits) - 1 - exponent)}f}"


def _each_byte(problem: UnicodeError) -> tuple[str, int]:
    """Replace each byte that is no UTF-8 by a sign of its own, as Go does."""
    if not isinstance(problem, UnicodeDecodeError):
        raise problem
    return "\ufffd" * (problem.end - problem.start), problem.end


_REPLACING: Final = "raybus-each-byte"
codecs.register_error(_REPLACING, _each_byte)
