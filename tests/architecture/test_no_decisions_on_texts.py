"""Decisions about an upgrade read codes and types, not the texts that users read.

A text may be reworded at any time. A condition is named by `ConditionType`, so that the service
that writes it and the service that reads it cannot disagree.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("service-reconciler", "traffic-manager")
READERS = {"is_true", "find", "holds", "changed_at", "problem_of"}
"""Functions that take the type of a condition."""
ALLOWED = {
    "service_reconciler/status/conditions.py": "an initializing service keeps its first message",
    "service_reconciler/problems.py": "Kubernetes reports an exceeded quota only in a message",
    "service_reconciler/events.py": "an Event is emitted once for each new condition message",
    "service_reconciler/status/room.py": "only the mark in a message shows that it was shortened",
}
"""Modules that decide by a message, with the reason."""


def names_of_conditions_in_quotes(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that name a condition by a string instead of `ConditionType`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        literals = [each for each in node.args if isinstance(each, ast.Constant)]
        if name in READERS and any(isinstance(each.value, str) for each in literals):
            yield node.lineno


def decisions_on_messages(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare, search or match a `.message`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            operands = (node.left, *node.comparators)
            has_none = any(isinstance(each, ast.Constant) and not each.value for each in operands)
            if not has_none and any(_is_message(each) for each in operands):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_match = node.func.attr in {"startswith", "endswith"}
            if is_match and _is_message(node.func.value):
                yield node.lineno


def _is_message(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "message"


def sources() -> Iterator[tuple[str, ast.AST]]:
    for service in SERVICES:
        folder = ROOT / "services" / service / "src"
        for path in sorted(folder.rglob("*.py")):
            yield path.relative_to(folder).as_posix(), ast.parse(path.read_text())


def test_no_condition_is_named_by_a_string() -> None:
    lines = [f"{path}:{line}" for path, t in sources() for line in names_of_conditions_in_quotes(t)]
    assert lines == []


def test_only_the_listed_modules_decide_by_a_message() -> None:
    assert {path for path, tree in sources() if any(decisions_on_messages(tree))} == set(ALLOWED)


@pytest.mark.parametrize(
    "code",
    ['x.is_true("Ready")', 'conditions.find(held, "Ready")', 'decided.holds(service, "Ready")'],
)
def test_a_condition_in_quotes_is_found(code: str) -> None:
    assert list(names_of_conditions_in_quotes(ast.parse(code))) == [1]


@pytest.mark.parametrize(
    "code", ['"quota" in x.message', 'x.message == "text"', 'x.message.startswith("text")']
)
def test_a_decision_on_a_message_is_found(code: str) -> None:
    assert list(decisions_on_messages(ast.parse(code))) == [1]
