"""Read YAML as Go's `sigs.k8s.io/yaml` does, which KubeRay uses: go-yaml v2 (YAML 1.1) to JSON.

libyaml produces the events; this module interprets them. Differences from PyYAML's own reader:
`1e-4` is a number, `10:30` and dates are strings, `0o14` is 12; a merge key overrides earlier keys;
mapping keys are converted to strings; unknown tags are ignored, and so are all documents after the
first. The expected results are in tests/golden/serve_config.

There is no recursion, and all limits are checked while reading, so that no input takes much time or
memory.
"""

import base64
import math
import struct
from decimal import Decimal
from types import NoneType
from typing import Any, Final, TypeAlias, cast

import msgspec
import re2
import yaml

Value: TypeAlias = Any
"""Any JSON value."""

_TAG: Final = "tag:yaml.org,2002:"
_FLOAT: Final = f"{_TAG}float"
_TIMESTAMP: Final = f"{_TAG}timestamp"
_KINDS: Final = {
    "": None,
    _TIMESTAMP: None,
    _FLOAT: float,
    f"{_TAG}bool": bool,
    f"{_TAG}int": int,
    f"{_TAG}null": NoneType,
}
"""The Python type that a scalar with a YAML tag must have, by tag; None allows any type."""
_KEYWORDS: Final[dict[str, Value]] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INT: Final = re2.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]([0-7]+)|0([0-7]*)|([1-9][0-9]*))"
    r"|0b([-+])([01]+)"
)
_BASES: Final = {2: 16, 3: 2, 4: 8, 5: 8, 6: 10, 8: 2}
"""Base of an integer, by the number of the group in the pattern `_INT` that matched its digits."""
_NUMBER: Final = re2.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FRACTION: Final = re2.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")
_DATE: Final = re2.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt "
    r"][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})?)?"
)
_NO_UTF8: Final = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")
"""Maps each surrogate to U+FFFD; Python decodes bytes of invalid UTF-8 as surrogates."""
MAX_VALUES: Final = 200_000
MAX_CHARACTERS: Final = 4 * 2**20
MAX_LEVELS: Final = 64
"""Maximum levels of nesting with aliases expanded; Ray's schema needs ten."""
_INT64: Final = 2**63
_MAX_DIGITS: Final = 64
"""Maximum digits of an integer without leading zeros: 64 bits in base 2."""
_MAX_PLAIN_NUMBER: Final = 1e21
"""Whole floats below this limit become integers, because Go writes them without an exponent."""


class NotYamlError(ValueError):
    """A text cannot be read as YAML; the error message is one line."""


class _Node(msgspec.Struct, eq=False):
    """A YAML value, with the number of values and characters that an alias to it would add.

    While the node is being read, `values` and `characters` have the document's totals from before
    the node instead.
    """

    value: Value
    values: int
    characters: int
    levels: int
    is_open: bool = False
    key: str | None = None
    merges: bool = False
    """Whether the key `<<` was read, so that the next value is merged into this mapping."""


def load(text: str) -> Value:
    """Return the first document of a YAML text as JSON data.

    Aliases share parts of the data, so callers must not modify it. Raises `NotYamlError` with a
    one-line reason.
    """
    try:
        return _Reader().read(text)
    except yaml.MarkedYAMLError as problem:
        where = f"line {problem.problem_mark.line + 1}: " if problem.problem_mark else ""
        raise NotYamlError(f"{where}{problem.problem}") from problem
    except (yaml.YAMLError, UnicodeEncodeError) as problem:
        raise NotYamlError(" ".join(str(problem).split())) from problem


class _Reader:
    """Builds a value from the events of one document."""

    def __init__(self) -> None:
        self._values = 0
        self._characters = 0
        self._anchors: dict[str, _Node] = {}
        self._stack: list[_Node] = []
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
                    self._open({}, event.anchor)
                case yaml.SequenceStartEvent():
                    self._open([], event.anchor)
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
        self._spend(1, len(text), 0)
        top = self._stack[-1] if self._stack else None
        is_key = (
            top is not None and isinstance(top.value, dict) and top.key is None and not top.merges
        )
        if top is not None and is_key and text == "<<" and (is_plain or tag == f"{_TAG}merge"):
            top.merges = True
            return
        value = text if not tag and not is_plain else self._resolved(tag, text)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Node(value, 1, len(text), 0)
        self._put(value, 0)

    def _open(self, value: dict[str, Value] | list[Value], anchor: str | None) -> None:
        self._spend(1, 0, 1)
        node = _Node(value, self._values, self._characters, 1, is_open=True)
        if anchor is not None:
            self._anchors[anchor] = node
        self._stack.append(node)

    def _close(self) -> None:
        node = self._stack.pop()
        node.values, node.characters = (
            self._values - node.values + 1,
            self._characters - node.characters,
        )
        node.is_open = False
        self._put(node.value, node.levels)

    def _alias(self, anchor: str) -> None:
        anchored = self._anchors.get(anchor)
        if anchored is None:
            raise self._wrong(f"unknown anchor '{anchor[:50]}' referenced")
        if anchored.is_open:
            raise self._wrong(f"anchor '{anchor[:50]}' value contains itself")
        self._spend(anchored.values, anchored.characters, anchored.levels)
        self._put(anchored.value, anchored.levels, is_alias=True)

    def _put(self, value: Value, levels: int, *, is_alias: bool = False) -> None:
        """Add a complete value, which has `levels` levels, to the innermost open collection."""
        if not self._stack:
            self._result = self._json(value)
            return
        top = self._stack[-1]
        into = top.value
        top.levels = max(top.levels, levels + 1)
        if isinstance(into, list):
            cast("list[Value]", into).append(self._json(value))
        elif top.merges:
            for part in reversed(
                cast("list[Value]", value if isinstance(value, list) and not is_alias else [value])
            ):
                if not isinstance(part, dict):
                    raise self._wrong("map merge requires map or sequence of maps as the value")
                into.update(cast("dict[str, Value]", part))
            top.merges = False
        elif top.key is None:
            top.key = self._key(value)
        else:
            into[top.key] = self._json(value)
            top.key = None

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
        """Return a value as it is after Go has encoded it as JSON.

        A whole float becomes an integer: the shortest digits that identify the float, then zeros.
        Raises `NotYamlError` for infinity and NaN.
        """
        if type(value) is int:
            return value if -_INT64 <= value < _INT64 else int(Decimal(repr(float(value))))
        if not isinstance(value, float):
            return value
        if not math.isfinite(value):
            raise self._wrong(f"{value} cannot be written in JSON")
        return (
            int(Decimal(repr(value)))
            if value.is_integer() and abs(value) < _MAX_PLAIN_NUMBER
            else value
        )

    def _resolved(self, tag: str, text: str) -> Value:
        """Return the value of a scalar that has no quotes or has a tag."""
        if tag == f"{_TAG}binary":
            try:
                data = base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
            except ValueError:
                raise self._wrong("!!binary value contains invalid base64 data") from None
            # replace each invalid byte separately, as Go does
            return data.decode(errors="surrogateescape").translate(_NO_UTF8)
        if tag not in _KINDS:
            return text
        value = _plain(text)
        if not tag or type(value) is _KINDS[tag] or (tag == _TIMESTAMP and _DATE.fullmatch(text)):
            return value
        if tag == _FLOAT and type(value) is int and value < _INT64:
            return float(value)
        raise self._wrong(f"cannot decode {text[:50]!r} as a !!{tag.removeprefix(_TAG)}")

    def _spend(self, values: int, characters: int, levels: int) -> None:
        self._values += values
        self._characters += characters
        if self._values > MAX_VALUES:
            raise self._wrong(f"it holds more than {MAX_VALUES} values")
        if self._characters > MAX_CHARACTERS:
            raise self._wrong(f"it holds more than {MAX_CHARACTERS} characters")
        if len(self._stack) + levels > MAX_LEVELS:
            raise self._wrong(f"it is nested deeper than {MAX_LEVELS} levels")

    def _wrong(self, problem: str) -> NotYamlError:
        return NotYamlError(f"line {self._line}: {problem}")


def _plain(text: str) -> Value:
    """Return the value of a scalar that has neither quotes nor a tag."""
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    plain, pattern = (text, _FRACTION) if text[0] == "." else (text.replace("_", ""), _NUMBER)
    whole = _whole(plain)
    if whole is not None:
        return whole
    value = float(plain) if pattern.fullmatch(plain) else math.inf
    return value if math.isfinite(value) else text


def _whole(text: str) -> int | None:
    """Parse a 64-bit integer as Go's `ParseInt` and `ParseUint` do; None if `text` is not one."""
    match = _INT.fullmatch(text)
    if match is None or match.lastindex is None:
        return None
    digits, sign = match[match.lastindex].lstrip("0"), match[1] or match[7] or ""
    if len(digits) > _MAX_DIGITS:
        return None
    number = int(f"{sign}{digits or 0}", _BASES[match.lastindex])
    return number if -_INT64 <= number < (_INT64 if sign else 2 * _INT64) else None


def _float32(value: float) -> str:
    """Format a number as Go's `FormatFloat(value, 'g', -1, 32)` does."""
    if math.isnan(value):
        return ".nan"
    try:
        packed = struct.pack("f", value)
    except OverflowError:
        packed = struct.pack("f", math.copysign(math.inf, value))
    single: float = struct.unpack("f", packed)[0]
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    text = next(
        text
        for places in range(18)
        if struct.pack("f", float(text := f"{single:.{places}e}")) == packed
    )
    mantissa, _, power = text.partition("e")
    exponent = int(power)
    if not -4 <= exponent < 6:
        return f"{mantissa}e{exponent:+03d}"
    digits = mantissa.replace(".", "").replace("-", "")
    return f"{single:.{max(0, len(digits) - 1 - exponent)}f}"
