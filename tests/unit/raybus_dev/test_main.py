"""Each command of `raybus-dev` calls itself by the words that a user types."""

import sys

import pytest

from raybus_dev import main


@pytest.mark.parametrize(
    ("typed", "usage"),
    [
        (["images", "build"], "Usage: raybus-dev images build "),
        (["cluster", "up"], "Usage: raybus-dev cluster up "),
        (["demo"], "Usage: raybus-dev demo [OPTIONS]"),
        (["bench", "goals"], "usage: raybus-dev bench goals "),
    ],
)
def test_the_help_names_the_command_as_typed(
    typed: list[str],
    usage: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["raybus-dev", *typed, "--help"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0
    assert usage in capsys.readouterr().out
