"""Generates mutants of a source text.

Each mutant has one change in one expression. A comparison or arithmetic operator is swapped, a
condition is negated, the reason of an Event or condition or the name of a setting is changed, or a
status field keeps its default.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final

import msgspec

SWAPS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


REASON: Final = re.compile(r"(?:[A-Z][a-z0-9]+){2,}|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
"""Pattern for a reason such as `FailedDeleteHeadPod` or a setting such as `ENABLE_LOGIN_SHELL`."""


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a file's text: the old and new text of an expression."""

    line: int
    old: str
    new: str
    source: str
    """The whole text of the changed file."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.old}  ->  {self.new}"


def generate_mutants(source: str) -> Iterator[Edit]:
    """Yield every mutant of a source text.

    Class arguments such as `frozen=True` and parts of f-strings are not changed, because they
    decide nothing.
    """
    tree = ast.parse(source)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    declared = [keyword.value for node in classes for keyword in node.keywords]
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    declared += [node for text in texts for node in ast.walk(text) if isinstance(node, ast.expr)]
    yield from _defaults(source, tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.expr)
            and node not in declared
            and (new := _changed(node)) is not None
        ):
            yield _edit(source, node, new)


def _changed(node: ast.expr) -> str | None:  # noqa: PLR0911  (a table)
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            return ast.unparse(
                ast.Compare(left=node.left, ops=[SWAPS[type(op)]()], comparators=node.comparators)
            )
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            return ast.unparse(ast.BoolOp(op=other, values=values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ast.unparse(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            swapped = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            return ast.unparse(ast.BinOp(left=left, op=swapped, right=right))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=keywords):
            other_name = ast.Name(id="max" if name == "min" else "min")
            return ast.unparse(ast.Call(func=other_name, args=args, keywords=keywords))
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=str(value)) if REASON.fullmatch(value):
            return repr(f"{value}X")
        case _:
            return None


def _defaults(source: str, tree: ast.Module) -> Iterator[Edit]:
    """Yield mutants in which one field of a new status object is set to its default."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), keywords=keywords) if name.endswith("Status"):
                for keyword in keywords:
                    if keyword.arg is not None:
                        yield _edit(source, keyword.value, f"{name}().{keyword.arg}")
            case _:
                pass


def _edit(source: str, node: ast.expr, new: str) -> Edit:
    lines = source.splitlines(keepends=True)
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    data = "".join(lines).encode()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    first, last = starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column
    changed = data[:first] + f"({new})".encode() + data[last:]
    return Edit(line=node.lineno, old=data[first:last].decode(), new=new, source=changed.decode())
