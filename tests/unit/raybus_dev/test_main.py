"""Each command of `raybus-dev` calls itself by the words that a user types."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("typed", "usage"),
    [
        (["images", "build"], "Usage: raybus-dev images build "),
        (["cluster", "up"], "Usage: raybus-dev cluster up "),
        (["demo"], "Usage: raybus-dev demo [OPTIONS]"),
        (["bench", "goals"], "usage: raybus-dev bench goals "),
    ],
)
def test_the_help_names_the_command_as_typed(typed: list[str], usage: str) -> None:
    program = "from raybus_dev.main import main; main()"
    command = [sys.executable, "-c", program, *typed, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert usage in done.stdout
