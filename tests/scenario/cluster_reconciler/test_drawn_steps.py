"""The derandomized steps of `test_chaos` are the same whichever other tests a run has."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings

from scenario.cluster_reconciler.test_chaos import PICK, USUAL


def drawn() -> list[int]:
    picks: list[int] = []

    @settings(USUAL)
    @given(pick=PICK)
    def draw(pick: int) -> None:
        picks.append(pick)

    draw()
    return picks


def test_picks_do_not_depend_on_the_modules_that_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    module = ModuleType("loaded")
    module.__file__ = str(tmp_path / "loaded.py")
    Path(module.__file__).write_text(f"NUMBERS = {list(range(200, 300))}")
    monkeypatch.setitem(sys.modules, "loaded", module)
    assert drawn() == before
