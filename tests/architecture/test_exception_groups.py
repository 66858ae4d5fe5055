"""Python before 3.11.4 wraps what an `except*` raises in a group, so exit code and message get
lost.

Debian has such a Python, and the images run it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.manifests import ROOT

SOURCES: Final = sorted(
    path for part in ("libs", "services") for path in (ROOT / part).rglob("src/**/*.py")
)


def _parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCES}


def _endless(trees: dict[Path, ast.Module]) -> set[str]:
    functions = (each for tree in trees.values() for each in ast.walk(tree))
    return {
        each.name
        for each in functions
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(each.returns, ast.Name)
        and each.returns.id in {"NoReturn", "Never"}
    }


def _raising(tree: ast.Module, endless: set[str]) -> Iterator[int]:
    for attempt in ast.walk(tree):
        for handler in attempt.handlers if isinstance(attempt, ast.TryStar) else ():
            for each in ast.walk(handler):
                match each:
                    case ast.Raise():
                        yield each.lineno
                    case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                        name in endless
                    ):
                        yield each.lineno
                    case _:
                        pass


def test_no_handler_of_a_group_raises() -> None:
    trees = _parsed()
    endless = _endless(trees)
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, tree in trees.items()
        for line in _raising(tree, endless)
    ]
    assert found == [], "keep what it met, and raise after the `try`"


def test_both_forms_are_found() -> None:
    text = "try:\n    f()\nexcept* ValueError:\n    raise OSError\nexcept* TypeError:\n    errors.fail(1)\n"
    assert list(_raising(ast.parse(text), {"fail"})) == [4, 6]
