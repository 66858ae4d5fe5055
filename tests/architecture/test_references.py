"""Nothing compares the bare name of an object that a route refers to (ADR 43)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.api.gateway import BackendRef, ParentRef
from common.api.reference import Reference

ROOT = Path(__file__).parents[2]
FIELDS = {"backendRefs", "backendRef", "parentRefs", "parentRef", "requestMirror"}


@pytest.mark.parametrize("type_", [Reference, BackendRef, ParentRef])
def test_the_name_in_a_reference_is_private(type_: type[msgspec.Struct]) -> None:
    assert "_name" in type_.__struct_fields__
    assert not hasattr(type_, "name")


def test_no_function_reads_the_name_in_the_json_of_a_reference() -> None:
    sources = (
        path
        for folder in ("services", "libs/common/src", "libs/cli/src")
        for path in (ROOT / folder).rglob("*.py")
    )
    found = {path.relative_to(ROOT).as_posix(): list(read_names(path)) for path in sources}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_such_a_function_is_found(tmp_path: Path) -> None:
    source = tmp_path / "compared.py"
    source.write_text(
        "def is_ours(rule, own):\n"
        '    return any(each.get("name") in own for each in rule["backendRefs"])\n'
    )
    assert list(read_names(source)) == [2]


def read_names(path: Path) -> Iterator[int]:
    """Yield the lines that read a name in functions that read references of routes."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = list(ast.walk(function))
        if any(key in FIELDS for node in nodes if (key := read_key(node)) is not None):
            yield from (
                node.lineno
                for node in nodes
                if isinstance(node, ast.expr) and read_key(node) == "name"
            )


def read_key(node: ast.AST) -> str | None:
    """Return the key that an expression reads from a mapping by `[...]` or `.get(...)`."""
    key: ast.AST | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        key = node.args[0] if node.func.attr == "get" else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
