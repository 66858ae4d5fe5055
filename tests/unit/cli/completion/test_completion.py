"""Shells and kubectl complete verbs and options; scripts name the program."""

import pytest
from typer.testing import CliRunner

from raybus_cli import main
from raybus_cli.completion import cli


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "")
    monkeypatch.setenv("COMP_CWORD", "")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param(["hist"], ["history"], id="a verb"),
        pytest.param(["get", "rays"], ["rayservice"], id="a kind"),
        pytest.param(["status", "--time"], ["--timeout"], id="an option"),
        pytest.param(["list", "-o", "js"], ["json"], id="a value"),
    ],
)
def test_arguments_are_completed(arguments: list[str], found: list[str]) -> None:
    assert cli.candidates(main.build, arguments) == found


@pytest.mark.parametrize("shell", list(cli.Shell))
def test_a_script_is_printed_for_each_shell(shell: cli.Shell) -> None:
    done = CliRunner().invoke(main.build("completion"), ["completion", shell])
    assert done.exit_code == 0
    assert "_RAYBUS_COMPLETE" in done.stdout
    assert "raybus" in done.stdout


@pytest.mark.parametrize(
    ("env", "verb"),
    [({"COMP_WORDS": "raybus status de"}, "status"), ({"_TYPER_COMPLETE_ARGS": "raybus -n x"}, "x"), ({}, None)],
)
def test_the_verb_is_found_in_what_a_shell_gives(env: dict[str, str], verb: str | None) -> None:
    assert cli.verb(env) == verb
