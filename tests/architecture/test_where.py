"""Each file and each symbol that docs/where.md points at exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "where.md").read_text()
SYMBOLS = re.findall(r"`([a-z_.]+):(\w+)`", PAGE)
QUESTIONS = re.findall(r"^\| ([^|]+)\? \| `([a-z_/]+\.py)` \|$", PAGE, re.MULTILINE)


def test_the_page_has_ten_questions() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "path"), QUESTIONS, ids=[path for _, path in QUESTIONS])
def test_a_path_shares_a_term_with_its_question(question: str, path: str) -> None:
    terms = re.split("[/_]", path.removesuffix(".py").partition("/")[2])
    assert list(ROOT.glob(f"*/*/src/{path}"))
    assert any(term[:5] in question for term in terms if len(term) > 3)


@pytest.mark.parametrize(
    ("module", "symbol"), SYMBOLS, ids=[f"{module}:{symbol}" for module, symbol in SYMBOLS]
)
def test_the_symbol_is_where_the_page_names_it(module: str, symbol: str) -> None:
    assert hasattr(importlib.import_module(module), symbol)
