"""Selection of rows of a long table: `make check` tries a few, evenly spread; `make test` tries
all.
"""

from collections.abc import Iterable

import pytest


def one_of(spacing: int, rows: Iterable[object]) -> list[object]:
    """Return all rows as parameters; all but the first of every `spacing` rows are marked as long."""
    return [
        row if number % spacing == 0 else pytest.param(row, marks=pytest.mark.long)
        for number, row in enumerate(rows)
    ]
