"""Services decide on codes and types, not on the texts that users read.

A text may be reworded at any time. A condition is named by `ConditionType`, so that the service
that writes it and the service that reads it cannot disagree.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "services/cluster-reconciler",
    "services/job-reconciler",
    "services/service-reconciler",
    "services/traffic-manager",
    "services/watcher",
    "libs/cli",
    "libs/common",
    "libs/dashboard",
    "libs/nats-admin",
    "libs/notifications",
)
READERS = {"is_true", "find", "holds", "changed_at", "problem_of"}
"""Functions that take the type of a condition."""
ALLOWED = {
    "common/bus/server_errors.py": "the NATS protocol has texts instead of error codes",
    "common/kube/answers.py": "the API server marks some refusals only by their text",
    "common/observability/logging.py": "asyncio logs its warning without a code",
    "raybus_cli/explaining/findings.py": "the scheduler names a lacking resource only in a text",
    "raybus_cli/reading/observing.py": "the kubelet names the image of a failed pull in a text",
    "raybus_cli/session.py": "a missing kind is told from a missing object only by the text",
    "raybus_cli/show/changes.py": "the API server names the refused verb only in its text",
    "raybus_cli/show/cause_texts.py": "conditions name a problem only in their message",
    "nats_admin/server_keeper.py": "nats-server tells a write error only by its text",
    "service_reconciler/recorded_decisions.py": "conditions name a problem only in their message",
    "service_reconciler/status/status_size.py": "only its mark shows a shortened message",
}
"""Modules that translate a text of another program, or of a stored object, to a value."""


def names_of_conditions_in_quotes(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that name a condition by a string instead of `ConditionType`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        literals = [argument for argument in node.args if isinstance(argument, ast.Constant)]
        if name in READERS and any(isinstance(literal.value, str) for literal in literals):
            yield node.lineno


def decisions_on_messages(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare, search or match a text that is written for users."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if _compares_message(node):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_prefix = node.func.attr in {"startswith", "endswith"}
            is_pattern = node.func.attr in {"search", "match", "fullmatch"}
            if (is_prefix and _is_message(node.func.value)) or (
                is_pattern and any(_is_message(argument) for argument in node.args)
            ):
                yield node.lineno


def _compares_message(node: ast.Compare) -> bool:
    """Return whether a text for users is compared; a test for emptiness does not count.

    Local variables named `reason` also hold codes, so only a search inside them counts.
    """
    operands = (node.left, *node.comparators)
    if any(isinstance(operand, ast.Constant) and not operand.value for operand in operands):
        return False
    if isinstance(node.ops[0], ast.In | ast.NotIn) and _is_message(node.comparators[0]):
        return True
    return any(_is_message(operand) and not isinstance(operand, ast.Name) for operand in operands)


def _is_message(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr="message" | "description"):
            return True
        case ast.Name(id="message" | "reason" | "problem"):
            return True
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id="problem" | "error" | "raised")]):
            return True
        case ast.Call(func=ast.Attribute(attr="text_of" | "getMessage")):
            return True
        case ast.Call(func=ast.Attribute(value=text, attr="lower" | "strip" | "casefold")):
            return _is_message(text)
        case _:
            return False


def sources() -> Iterator[tuple[str, ast.AST]]:
    for package in PACKAGES:
        folder = ROOT / package / "src"
        for path in sorted(folder.rglob("*.py")):
            yield path.relative_to(folder).as_posix(), ast.parse(path.read_text())


def test_no_condition_is_named_by_a_string() -> None:
    readers = ("service_reconciler", "traffic_manager")
    trees = [(path, tree) for path, tree in sources() if path.startswith(readers)]
    assert trees
    lines = [f"{path}:{n}" for path, tree in trees for n in names_of_conditions_in_quotes(tree)]
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
    "code",
    [
        '"quota" in x.message',
        'x.message == "text"',
        'x.message.startswith("text")',
        '"violation" in str(problem).lower()',
        "PATTERN.search(errors.text_of(problem))",
        "reason.startswith((A, B))",
        "WRITE_ERROR not in problem",
    ],
)
def test_a_decision_on_a_message_is_found(code: str) -> None:
    assert list(decisions_on_messages(ast.parse(code))) == [1]


@pytest.mark.parametrize("code", ['x.message == ""', "reason == Reason.READY", "kind in kinds"])
def test_a_decision_on_a_value_is_not_found(code: str) -> None:
    assert list(decisions_on_messages(ast.parse(code))) == []
