"""The page docs/reference/fields.md: the fields of RayCluster and RayService.

Types, defaults and limits come from the Go types from which the CRDs are generated. The fields of
Kubernetes' own types are not listed. `field_texts` has the meaning of each field; the page's test
fails for a field without a meaning and for a meaning without a field.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from common.api import go_types, ray_cluster, ray_service
from common.api.go_types import GoField
from generators.docs import markdown
from generators.docs.field_texts import TEXTS

_ROOTS: Final = {
    "RayService": (go_types.SERVICE_SPEC, go_types.SERVICE_STATUS),
    "RayCluster": (go_types.CLUSTER_SPEC, go_types.CLUSTER_STATUS),
}
_LIMITS: Final = {"Enum": "one of", "Minimum": "at least", "MaxLength": "characters: at most"}
_PLAIN: Final = {
    "string": "text",
    "bool": "true or false",
    "int32": "whole number",
    "int64": "whole number",
    "time": "time",
    "quantity": "quantity",
    "json": "object",
}
_HEAD: Final = f"""\
# Fields

This page lists every field of `ray.io/v1` RayService and RayCluster. Names and defaults are
KubeRay's, so KubeRay's manifests and CRDs work unchanged. [Annotations](annotations.md) control
raybus's own features. {markdown.WRITTEN}

Types such as `core/v1.Container` are Kubernetes' own; Kubernetes' reference lists their fields.
Required fields are marked. `raybus lint -f FILE` checks a manifest against this page without a
cluster. `raybus plan -f FILE` forecasts the effect of a change.
"""


def page() -> str:
    """Return the text of the page about fields."""
    lines = [_HEAD]
    for kind, roots in _ROOTS.items():
        others = [name for name in structs() if name not in roots and _owner(name) == kind]
        lines += [
            f"## {kind}",
            "",
            *_section(f"{kind} spec", roots[0]),
            *_section(f"{kind} status", roots[1]),
        ]
        for name in others:
            lines += _section(_short(name), name)
    return "\n".join(lines)


def structs() -> list[str]:
    """Return the names of KubeRay's own Go types, in the order of the fields that use them."""
    names: dict[str, None] = {}
    for roots in _ROOTS.values():
        for root in roots:
            _reach(root, names)
    return list(names)


def paths() -> set[str]:
    """Return every field on the page as `Type.field`."""
    return {
        f"{_short(name)}.{field.name}"
        for name in structs()
        for field in go_types.known()[name].fields
    }


def _reach(name: str, names: dict[str, None]) -> None:
    if name in names:
        return
    names[name] = None
    for field in go_types.known()[name].fields:
        inner = _bare(field.type)
        if inner.startswith(go_types.PREFIX):
            _reach(inner, names)


def _owner(name: str) -> str:
    return (
        "RayCluster"
        if hasattr(ray_cluster, _short(name)) and ray_cluster.__name__ == _home(name)
        else "RayService"
    )


def _home(name: str) -> str:
    return _struct(name).__module__


def _struct(name: str) -> type[msgspec.Struct]:
    module = ray_cluster if hasattr(ray_cluster, _short(name)) else ray_service
    return getattr(module, _short(name))


def _section(title: str, name: str) -> list[str]:
    first_line = (_struct(name).__doc__ or "").split("\n")[0]
    rows = [_row(name, field) for field in go_types.known()[name].fields]
    return [
        f"### {title}",
        "",
        first_line,
        "",
        *markdown.table(("field", "type", "default", "meaning"), rows),
        "",
    ]


def _row(name: str, field: GoField) -> tuple[str, str, str, str]:
    always = field.required or (field.keep and not field.optional)
    is_spec = not _short(name).endswith("Status") and _short(name) != "HeadInfo"
    required = " (required)" if always and is_spec else ""
    meaning = " ".join([TEXTS[f"{_short(name)}.{field.name}"], *_limits(field)])
    return (
        f"`{field.name}`{required}",
        _type(field.type),
        markdown.code(field.default.strip('"')),
        meaning,
    )


def _limits(field: GoField) -> Iterator[str]:
    for rule, limit in field.rules.items():
        yield f"{_LIMITS[rule]} {', '.join(f'`{part}`' for part in limit.split(';'))}.".capitalize()
    if any("oldSelf" in rule for rule, _ in field.cel):
        yield "It cannot be changed."


def _type(written: str) -> str:
    if written.startswith("*"):
        return _type(written.removeprefix("*"))
    if written.startswith("[]"):
        return f"list of {_type(written.removeprefix('[]'))}"
    if written.startswith("map[string]"):
        return f"map to {_type(written.removeprefix('map[string]'))}"
    if written.startswith(go_types.PREFIX):
        return _link(written)
    return _PLAIN.get(written, f"`{written}`")


def _link(name: str) -> str:
    for kind, (spec, status) in _ROOTS.items():
        if name in {spec, status}:
            part = "spec" if name == spec else "status"
            return f"[{kind} {part}](#{kind.lower()}-{part})"
    return f"[{_short(name)}](#{_short(name).lower()})"


def _bare(written: str) -> str:
    return re.sub(r"^(\*|\[\]|map\[string\])+", "", written)


def _short(name: str) -> str:
    return name.removeprefix(go_types.PREFIX)
