"""Writes plain JSON data as Go's `encoding/json` writes the typed object: byte for byte, so that hashes agree with KubeRay's.

Field order and omit rules come from `go_types`; maps are sorted; `<`, `>`, `&` and U+2028/9 are escaped; quantities are canonical; structs that Go
cannot omit appear empty; unknown fields vanish. Absent and null are the same thing to Go.

Behaviour: spec rayservice §6.1.
"""

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias, cast

from common import quantity
from common.api import go_types
from common.api.go_types import GoField
from common.api.meta import rfc3339

Writer: TypeAlias = Callable[[object], str]
_Object: TypeAlias = dict[str, object]


class TypeMismatchError(ValueError):
    """The data does not fit the type: no API server would have accepted it. The text names the field."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path

    def under(self, field: str) -> "TypeMismatchError":
        """Return the same fault as seen from the object that holds the field."""
        return TypeMismatchError(self.reason, path=f"{field}.{self.path}" if self.path else field)


_ESCAPED: Final = re.compile(r'["\\<>&\x00-\x1f\u2028\u2029\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def encode(go_type: str, value: object) -> str:
    """Write a value of a Go type."""
    return _writer(go_type)(value)


@cache
def _writer(go_type: str) -> Writer:
    if go_type.startswith("*"):
        pointed = go_type.removeprefix("*")
        return lambda value: "null" if value is None else _writer(pointed)(value)
    if go_type.startswith("[]"):
        return _list_writer(go_type.removeprefix("[]"))
    if go_type.startswith("map[string]"):
        return _map_writer(go_type.removeprefix("map[string]"))
    return _SCALARS[go_type] if go_type in _SCALARS else _struct_writer(go_type)


def _list_writer(item: str) -> Writer:
    def write(value: object) -> str:
        if value is None:
            return "null"
        items = _expect(list, value, f"a list of {item}")
        return f"[{','.join(map(_writer(item), items))}]"

    return write


def _map_writer(item: str) -> Writer:
    def write(value: object) -> str:
        if value is None:
            return "null"
        entries = sorted(_expect(dict, value, f"a map of {item}").items())
        return "{" + ",".join(f"{_string(key)}:{_writer(item)(entry)}" for key, entry in entries) + "}"

    return write


def _struct_writer(name: str) -> Writer:
    fields = list(go_types.fields_of(name))

    def write(value: object) -> str:
        data: _Object = {} if value is None else _expect(dict, value, name)
        parts: list[str] = []
        for field in fields:
            entry = data.get(field.name)
            if field.keep or not _is_empty(field.type, entry):
                parts.append(f'"{field.name}":{_written(field, entry)}')
        return "{" + ",".join(parts) + "}"

    return write


def _written(field: GoField, entry: object) -> str:
    try:
        return _writer(field.type)(entry)
    except TypeMismatchError as error:
        raise error.under(field.name) from None
    except ValueError as error:
        raise TypeMismatchError(str(error), path=field.name) from error


def _is_empty(go_type: str, value: object) -> bool:
    """Return whether `omitempty` drops a value: a struct never, a pointer only when nil."""
    if go_type.startswith("*"):
        return value is None
    is_plain = go_type in _SCALARS and go_type not in {"quantity", "intOrString"}
    return not value and (is_plain or go_type.startswith(("[]", "map[")))


def _string(value: object) -> str:
    text = "" if value is None else _expect(str, value, "a string")
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if "\ud800" <= char <= "\udfff":
        return "\ufffd"
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def _integer(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "0" if value is None else str(_expect(int, value, "a whole number"))


def _boolean(value: object) -> str:
    return "true" if value is not None and _expect(bool, value, "true or false") else "false"


def _quantity(value: object) -> str:
    if value is None:
        return '"0"'
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return _string(quantity.canonical(value))
    raise TypeMismatchError(f"expected a quantity, got {value!r}")


def _int_or_string(value: object) -> str:
    return _string(value) if isinstance(value, str) else _integer(value)


def _time(value: object) -> str:
    return "null" if value is None else f'"{rfc3339(datetime.fromisoformat(_expect(str, value, "a time")))}"'


def _json(value: object) -> str:
    """Write data that has no type of its own, in the order given."""
    if isinstance(value, dict):
        entries = cast("_Object", value).items()
        return "{" + ",".join(f"{_string(key)}:{_json(entry)}" for key, entry in entries) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, cast('list[object]', value)))}]"
    if isinstance(value, bool):
        return _boolean(value)
    return "null" if value is None else _int_or_string(value)


def _expect(kind: type, value: object, what: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise TypeMismatchError(f"expected {what}, got {value!r}")
    return value


_SCALARS: Final[dict[str, Writer]] = {
    "string": _string,
    "bool": _boolean,
    "int32": _integer,
    "int64": _integer,
    "quantity": _quantity,
    "intOrString": _int_or_string,
    "time": _time,
    "json": _json,
}
