"""The names of limits, functions and classes follow the rules for names.

A limit is called MAX_… or MIN_…, a function is a verb phrase, and a class name occurs once.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PREFIXES: Final = ("MOST", "LONGEST", "LARGEST", "SHORTEST", "LEAST", "SMALLEST")
SOURCES: Final = ("libs", "services", "tools")
ROLES: Final = frozenset(
    {"Config", "ConditionType", "EventReason", "Execution", "Observed", "Observer"}
)
"""Names that stand for the same role in each service (docs/how-to/controller.md)."""


def violations(path: str, source: str) -> Iterator[str]:
    """Yield the limits and functions of a module with a name that breaks a rule."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "of":
            yield f"{path}:{node.lineno}: function of"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            words = node.id.strip("_").split("_")
            if node.id.isupper() and words[0] in PREFIXES:
                yield f"{path}:{node.lineno}: constant {node.id}"


def classes(source: str) -> list[str]:
    """Return the public classes that a module defines at its top level."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def modules() -> dict[str, str]:
    """Return the source of all modules by path."""
    paths = {
        path.relative_to(ROOT).as_posix(): path
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        if ".venv" not in path.parts
    }
    return {name: path.read_text() for name, path in paths.items()}


def test_limits_and_functions_have_names_by_the_rules() -> None:
    sources = modules()
    assert len(sources) > 50
    broken = [line for path, source in sources.items() for line in violations(path, source)]
    assert broken == []


def test_a_class_name_occurs_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, source in modules().items():
        for name in set(classes(source)) - ROLES:
            places[name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("MOST_PODS: Final = 4", "module.py:1: constant MOST_PODS"),
        ("_LONGEST = 4", "module.py:1: constant _LONGEST"),
        ("def of(key): ...", "module.py:1: function of"),
        ("class Rows:\n    async def of(self): ...", "module.py:2: function of"),
    ],
)
def test_a_name_against_the_rules_is_found(source: str, expected: str) -> None:
    assert list(violations("module.py", source)) == [expected]


def test_names_by_the_rules_are_accepted() -> None:
    source = "MAX_PODS = 4\nAT_MOST = 2\nmost = 3\ndef find(key): ..."
    assert list(violations("module.py", source)) == []


def test_classes_are_the_public_ones() -> None:
    assert classes("class A: ...\nclass _B: ...\nclass C: ...") == ["A", "C"]
