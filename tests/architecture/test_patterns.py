"""Texts of tenants, pods and dashboards are matched by RE2 only, which does not backtrack."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.manifests import ROOT

OWN_TEXTS: Final = {
    "localcluster": "reads the machine's own files and programs",
    "crd_generator": "reads Kubernetes' source",
}
"""Packages that may import `re`, and the reason."""
PACKAGES: Final = [
    path.parent
    for path in sorted(ROOT.glob("*/*/src/*/__init__.py"))
    if path.parent.name not in OWN_TEXTS
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_module_that_reads_foreign_texts_imports_re(package: Path) -> None:
    assert [
        f"{path.relative_to(ROOT)}: import re2 instead of re"
        for path in sorted(package.rglob("*.py"))
        if "re" in _imported(path)
    ] == []


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module
