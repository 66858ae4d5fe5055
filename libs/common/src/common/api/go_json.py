"""Writes plain JSON data as Go's `encoding/json` writes the typed object: byte for byte, so that hashes agree with KubeRay's.

Field order and omit rules come from `go_types`; maps are sorted; `<`, `>`, `&` and U+2028/9 are escaped; quantities are canonical; structs that Go
cannot omit appear empty; unknown fields vanish. Absent and null are the same thing to Go.

Behaviour: spec rayservice §6.1.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias, cast

from common import quantity
from common.api import go_types
from common.api.meta import rfc3339

_Object: TypeAlias = dict[str, object]


class TypeMismatchError(ValueError):
    """The data does not fit the type: no API server would have accepted it. The text names the field."""


_ESCAPED: Final = re.compile(r'["\\<>&\x00-\x1f\u2028\u2029\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def encode(go_type: str, value: object) -> str:
    """Write a value of a Go type."""
    if go_type in _SCALARS:
        return _SCALARS[go_type](value)
    if go_type.startswith("*"):
        return "null" if value is None else encode(go_type[1:], value)
    if not go_type.startswith(("[]", "map[")):
        return _struct(go_type, value)
    if value is None:
        return "null"
    item = go_type.partition("]")[2]
    if go_type.startswith("[]"):
        return f"[{','.join([encode(item, each) for each in _expect(list, value, f'a list of {item}')])}]"
    entries = sorted(_expect(dict, value, f"a map of {item}").items())
    return "{" + ",".join([f"{_string(key)}:{encode(item, entry)}" for key, entry in entries]) + "}"


def _struct(name: str, value: object) -> str:
    data: _Object = {} if value is None else _expect(dict, value, name)
    parts: list[str] = []
    for field in go_types.fields_of(name):
        entry = data.get(field.name)
        if not field.keep and _is_empty(field.type, entry):
            continue
        try:
            parts.append(f'"{field.name}":{encode(field.type, entry)}')
        except ValueError as problem:
            place = f"{field.name}." if isinstance(problem, TypeMismatchError) else f"{field.name}: "
            raise TypeMismatchError(f"{place}{problem}") from None
    return "{" + ",".join(parts) + "}"


def _is_empty(go_type: str, value: object) -> bool:
    """Return whether `omitempty` drops a value: a struct never, a pointer only when nil."""
    if go_type.startswith("*"):
        return value is None
    if value or go_type in {"quantity", "intOrString"}:
        return False
    return go_type in _SCALARS or go_type.startswith(("[]", "map["))


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
    raise ValueError(f"expected a quantity, got {value!r}")


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
        raise ValueError(f"expected {what}, got {value!r}")
    return value


_SCALARS: Final[dict[str, Callable[[object], str]]] = {
    "string": _string,
    "bool": _boolean,
    "int32": _integer,
    "int64": _integer,
    "quantity": _quantity,
    "intOrString": _int_or_string,
    "time": _time,
    "json": _json,
}
