"""Tables of test cases: each row has a name, which pytest shows if the row fails."""

from collections.abc import Mapping
from typing import Any, overload

import pytest


@overload
def cases(names: str, table: Mapping[str, Any]) -> pytest.MarkDecorator: ...
@overload
def cases(names: tuple[str, ...], table: Mapping[str, tuple[Any, ...]]) -> pytest.MarkDecorator: ...
def cases(names: str | tuple[str, ...], table: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Run a test with each row of a table; a row has a value for each name, or the value of the
    only name.
    """
    return pytest.mark.parametrize(names, [*table.values()], ids=[*table])
