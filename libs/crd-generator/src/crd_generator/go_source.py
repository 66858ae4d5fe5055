"""Reads Go API types into `common/api/go_schema.json`.

The file holds the order of fields, JSON names, omit rules (`omitempty`) and schema markers of the
Kubernetes source. The order and the omit rules determine the hash of a spec; the markers determine
the schema of a CRD. For a new Kubernetes version, run `go mod download k8s.io/api@VERSION
k8s.io/apimachinery@VERSION`, then

    python -m crd_generator.go_source --api DIR --machinery DIR --version VERSION

The Go files are formatted by `gofmt`, so they can be read line by line without a Go parser.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from common.api.go_types import SCHEMA_FILE, GoField, GoSchema, GoType

ROOTS: Final = (
    "core/v1.PodTemplateSpec",
    "core/v1.Service",
    "core/v1.ResourceRequirements",
    "core/v1.SecurityContext",
    "core/v1.EnvVar",
    "core/v1.EnvVarSource",
    "core/v1.EnvFromSource",
    "core/v1.VolumeMount",
    "networking/v1.IngressTLS",
    "networking/v1.NetworkPolicyIngressRule",
    "networking/v1.NetworkPolicyEgressRule",
    "meta/v1.Condition",
)
_SPECIAL: Final = {
    "meta/v1.Time": "time",
    "meta/v1.FieldsV1": "json",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intOrString",
    "types.UID": "string",
}
_BUILT_IN: Final = frozenset({"string", "bool", "int32", "int64"})
_PACKAGE_OF: Final = {
    "metav1": "meta/v1",
    "v1": "core/v1",
    "resource": "resource",
    "intstr": "intstr",
    "types": "types",
}
_FIELD: Final = re.compile(r"\t(?:(\w+)\s+)?([*\[\]\w.]+)\s+`(.*)`")
_JSON_TAG: Final = re.compile(r'json:"([^"]*)"')
_MARKER: Final = re.compile(
    r"\+(optional|required|listType|listMapKey|mapType|structType|default|kubebuilder:[\w:]+)"
    r"(?::?=(.*))?"
)


def main(arguments: list[str] | None = None) -> int:
    """Write `common/api/go_schema.json`. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m crd_generator.go_source", description=__doc__)
    parser.add_argument("--api", type=Path, required=True, help="folder of the module k8s.io/api")
    parser.add_argument(
        "--machinery", type=Path, required=True, help="folder of the module k8s.io/apimachinery"
    )
    parser.add_argument("--version", required=True, help="version of both modules, such as v0.36.0")
    options = parser.parse_args(arguments)
    sources = {
        "core/v1": options.api / "core/v1/types.go",
        "networking/v1": options.api / "networking/v1/types.go",
        "meta/v1": options.machinery / "pkg/apis/meta/v1/types.go",
    }
    if missing := [str(path) for path in sources.values() if not path.is_file()]:
        sys.stderr.write(
            f"cannot read {missing[0]}: pass the folders of k8s.io/api and k8s.io/apimachinery\n"
        )
        return 1
    known = {
        name: text
        for package, path in sources.items()
        for name, text in declarations(package, path)
    }
    schema = GoSchema(version=options.version, types=dict(sorted(_reachable(known).items())))
    SCHEMA_FILE.write_text(render(schema), encoding="utf-8")
    sys.stderr.write(f"wrote {len(schema.types)} types to {SCHEMA_FILE.name}\n")
    return 0


def render(schema: GoSchema) -> str:
    """Return the content of `go_schema.json`, with one field per line for readable diffs."""
    lines = [f'{{"version": {json.dumps(schema.version)}, "types": {{']
    for position, (name, kind) in enumerate(schema.types.items()):
        end = "" if position == len(schema.types) - 1 else ","
        head = json.dumps(
            {key: value for key, value in msgspec.to_builtins(kind).items() if key != "fields"}
        )[1:-1]
        fields = ",\n".join(f"    {msgspec.json.encode(field).decode()}" for field in kind.fields)
        lines.append(f'"{name}": {{{head + ", " if head else ""}"fields": [\n{fields}\n]}}{end}')
    return "\n".join([*lines, "}}", ""])


def declarations(package: str, path: Path) -> Iterator[tuple[str, "GoType"]]:
    """Yield the name and definition of each type in a Go file.

    A type that is not a struct is defined as an alias.
    """
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    markers: list[tuple[str, str]] = []
    for line in lines:
        if match := re.fullmatch(r"type (\w+) struct \{", line):
            yield f"{package}.{match[1]}", _struct(package, lines, markers)
        elif match := re.fullmatch(r"type (\w+) ([\w\[\]*.]+)(?:\s*//.*)?", line):
            yield f"{package}.{match[1]}", GoType(alias=_resolve(package, match[2]))
        markers = _more_markers(markers, line)


def _struct(package: str, lines: Iterator[str], markers: list[tuple[str, str]]) -> "GoType":
    fields: list[GoField] = []
    noted: list[tuple[str, str]] = []
    for line in lines:
        if line == "}":
            break
        if match := _FIELD.match(line):
            fields.append(_field(package, match, noted))
        noted = _more_markers(noted, line)
    return GoType(fields=fields, atomic=("structType", "atomic") in markers)


def _field(package: str, match: re.Match[str], markers: list[tuple[str, str]]) -> "GoField":
    tag = _JSON_TAG.search(match[3])
    name, *options = tag[1].split(",") if tag else [match[1] or ""]
    flags = {key for key, _ in markers}
    keys = [value for key, value in markers if key == "listMapKey"]
    values = dict(markers)
    return GoField(
        name=name,
        type=_resolve(package, match[2]),
        keep=not {"omitempty", "omitzero"} & set(options),
        optional="optional" in flags,
        required=bool({"required", "kubebuilder:validation:Required"} & flags),
        list_type=values.get("listType", ""),
        list_keys=keys,
        atomic=values.get("mapType") == "atomic" or values.get("structType") == "atomic",
        default=values.get("default", values.get("kubebuilder:default", "")),
        rules={
            key.removeprefix("kubebuilder:validation:"): value.strip("`")
            for key, value in markers
            if key.startswith("kubebuilder:validation:") and value
        },
    )


def _more_markers(markers: list[tuple[str, str]], line: str) -> list[tuple[str, str]]:
    """Return `markers` (such as `+optional`) and the marker in `line`, if `line` is a comment.

    Return an empty list if `line` is not a comment, because a marker belongs to the comment
    directly above a declaration.
    """
    text = line.strip()
    if not text.startswith("//"):
        return []
    match = _MARKER.fullmatch(text.removeprefix("//").strip())
    return [*markers, (match[1], match[2] or "")] if match else markers


def _resolve(package: str, written: str) -> str:
    """Return the full name of a Go type, such as `core/v1.EnvVar`.

    `written` is the type as the source code of `package` writes it, such as `EnvVar`.
    """
    for prefix in ("*", "[]"):
        if written.startswith(prefix):
            return prefix + _resolve(package, written.removeprefix(prefix))
    if written.startswith("map["):
        return "map[string]" + _resolve(package, written.partition("]")[2])
    if written in _BUILT_IN:
        return written
    owner, dot, name = written.rpartition(".")
    full = f"{_PACKAGE_OF.get(owner, owner)}.{name}" if dot else f"{package}.{written}"
    return _SPECIAL.get(full, full)


def _reachable(known: dict[str, "GoType"]) -> dict[str, "GoType"]:
    """Return the types that `ROOTS` use directly or indirectly, with aliases resolved in fields."""
    wanted: list[str] = list(ROOTS)
    reachable: dict[str, GoType] = {}
    while wanted:
        name = wanted.pop()
        if name in reachable or name not in known:
            continue
        kind = known[name]
        fields = [
            msgspec.structs.replace(field, type=_without_aliases(field.type, known))
            for field in kind.fields
        ]
        reachable[name] = msgspec.structs.replace(kind, fields=fields)
        wanted.extend(re.sub(r"^(\*|\[\]|map\[string\])+", "", field.type) for field in fields)
    return reachable


def _without_aliases(written: str, known: dict[str, "GoType"]) -> str:
    match = re.fullmatch(r"((?:\*|\[\]|map\[string\])*)(.*)", written)
    prefix, base = (match[1], match[2]) if match else ("", written)
    if (kind := known.get(base)) is not None and kind.alias:
        return prefix + _without_aliases(kind.alias, known)
    return written


if __name__ == "__main__":
    sys.exit(main())
