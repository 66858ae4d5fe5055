"""Each symbol that docs/where.md points at exists."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "where.md").read_text()
SYMBOLS = re.findall(r"`([a-z_.]+):(\w+)`", PAGE)


def test_the_page_names_symbols() -> None:
    assert len(SYMBOLS) > 10


@pytest.mark.parametrize(
    ("module", "symbol"), SYMBOLS, ids=[f"{module}:{symbol}" for module, symbol in SYMBOLS]
)
def test_the_symbol_is_where_the_page_names_it(module: str, symbol: str) -> None:
    assert hasattr(importlib.import_module(module), symbol)
