"""JSON as Go writes it, byte for byte, so that hashes agree with KubeRay's.

`go_types` has the order of fields and the rules for omitting them. Maps are sorted; `<`, `>`, `&`
and U+2028/9 are escaped; quantities are canonical; unknown fields are dropped. Go writes an absent
struct as `{}`, and does not distinguish absent from null. `misfit` checks the types of a spec.

Behaviour: spec rayservice §6.1.
"""

from datetime import datetime
from functools import cache
from typing import Any, Final, Optional, cast, get_origin

import msgspec

from common import quantity
from common.api import go_types
from common.api.go_types import GoField
from common.api.meta import rfc3339
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService

_ESCAPED: Final = str.maketrans(
    {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
)


class _Quantity(str):
    __slots__ = ()


class _Time(str):
    __slots__ = ()


_SHAPES: Final[dict[str, Any]] = {
    "string": str,
    "bool": bool,
    "int32": int,
    "int64": int,
    "quantity": str | int | float,
    "intOrString": str | int,
    "time": str,
    "json": msgspec.Raw,
}
_WRITTEN: Final = {**_SHAPES, "quantity": _Quantity, "time": _Time, "json": Any}
_ZEROS: Final = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "quantity": _Quantity("0"),
    "intOrString": 0,
}


def encode(go_type: str, value: Json) -> str:
    """Encode a JSON object as Go encodes the struct `go_type`.

    Raises `msgspec.ValidationError`, naming the field, if a value does not fit its type.
    """
    typed: Any = msgspec.convert(
        _plain(value), _view(go_type, is_written=True), dec_hook=_canonical
    )
    return escaped(msgspec.json.encode(typed, enc_hook=str, order="deterministic").decode())


def escaped(text: str) -> str:
    """Return JSON with the escapes that Go adds for HTML and JavaScript."""
    return text.translate(_ESCAPED)


def misfit(obj: object) -> str | None:
    """Return which field of a RayCluster's or RayService's spec has a wrong type; None if none has.

    None also for objects of other kinds. An API server with the CRDs of this release rejects such a
    spec itself. With older CRDs only this check finds the wrong type, before pods are planned.
    """
    if not isinstance(obj, RayCluster | RayService):
        return None
    go_type = go_types.CLUSTER_SPEC if isinstance(obj, RayCluster) else go_types.SERVICE_SPEC
    try:
        _shape(go_type).decode(obj.spec_json)
    except (msgspec.DecodeError, RecursionError) as problem:
        return f"spec: {problem}"
    return None


@cache
def _shape(go_type: str) -> msgspec.json.Decoder[Any]:
    # The type is known at runtime only.
    return msgspec.json.Decoder(Optional[_view(go_type, is_written=False)])  # noqa: UP045


@cache
def _view(go_type: str, *, is_written: bool) -> Any:
    """Return the Python type for a Go type.

    With `is_written` the type is for encoding, otherwise for checking data. A check fails if a
    required field of a Kubernetes type is missing. Required fields of the ray.io types are checked
    by `common.validation` instead.
    """
    if go_type.startswith("*"):
        return _view(go_type.removeprefix("*"), is_written=is_written)
    start, bracket, item = go_type.partition("]")
    if bracket:
        item_view = _view(item, is_written=is_written)
        return list[item_view] if start == "[" else dict[str, item_view]
    if go_type in _SHAPES:
        return (_WRITTEN if is_written else _SHAPES)[go_type]
    fields, is_ours = list[tuple[str, Any, Any]](), go_type.startswith(go_types.PREFIX)
    for number, field in enumerate(go_types.fields_of(go_type)):
        view = _view(field.type, is_written=is_written)
        is_required = (
            not is_ours
            and (field.required or (field.keep and not field.optional))
            and not field.default
        )
        default = _zero(field, view) if is_written else {} if is_required else {"default": None}
        kind = Optional[view] if default else view  # noqa: UP045  (see above)
        fields.append((f"field_{number}", kind, msgspec.field(name=field.name, **default)))
    return msgspec.defstruct("GoStruct", fields, kw_only=True, omit_defaults=True, gc=False)


def _zero(field: GoField, view: Any) -> dict[str, Any]:
    """Return the zero value of a Go field as the default argument of `msgspec.field`.

    msgspec omits a field that equals its `default`, and an empty list or map. A value that Go does
    not omit is therefore given as a `default_factory`.
    """
    kind, zero = field.type, _ZEROS.get(field.type)
    is_list = kind.startswith(("[]", "map["))
    if not is_list and not kind.startswith("*") and kind not in _SHAPES:
        return {"default_factory": view}  # Go omits no struct
    if field.keep or kind in {"quantity", "intOrString"}:
        return {"default_factory": lambda: zero}
    return {"default_factory": get_origin(view)} if is_list else {"default": zero}


def _plain(value: object) -> object:
    """Drop what Go ignores: null, and the fraction .0 of a whole number."""
    if isinstance(value, dict):
        return {
            name: _plain(item) for name, item in cast("Json", value).items() if item is not None
        }
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _canonical(kind: type, value: Any) -> str:
    return (
        _Time(rfc3339(datetime.fromisoformat(value)))
        if kind is _Time
        else _Quantity(str(quantity.parse(value)))
    )
