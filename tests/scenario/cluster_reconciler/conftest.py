"""Derandomized steps that are the same in a run of one file and of all files."""

from collections.abc import Iterator

import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants


@pytest.fixture(autouse=True, scope="module")
def steps_without_constants() -> Iterator[None]:
    """Let Hypothesis draw no constants from source code.

    It would take them from the modules that are loaded, which depend on the other tests of a run;
    no setting turns that off. The cache has the constants that it has chosen from before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(providers, "_get_local_constants", Constants)
        patch.setattr(providers, "CONSTANTS_CACHE", {})
        yield
