"""Which rows of a long table `make check` tries: a few, evenly spread; `make test` tries all."""

from collections.abc import Iterable

import pytest


def one_of(spacing: int, rows: Iterable[object]) -> list[object]:
    """Return all rows as parameters, of which the first of every so many is not marked as long."""
    return [
        row if number % spacing == 0 else pytest.param(row, marks=pytest.mark.long)
        for number, row in enumerate(rows)
    ]
