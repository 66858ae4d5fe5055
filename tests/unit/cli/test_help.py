"""The help lists each verb in a group, and each verb shows two examples that this program accepts."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer import rich_utils
from typer.main import get_command
from typer.testing import CliRunner

from raybus_cli import main
from raybus_cli.main import PARTS, HelpPanel

PROGRAM = "raybus"
ENDS = re.compile(r" && | \| |\$\(|<\(|\)| > ")
"""Pattern of the separators between the commands of an example."""


def _commands(verb: str) -> list[Any]:
    """Return a verb's command and its subcommands."""
    program: Any = get_command(main.build(verb))
    command = program.commands[verb]
    return [command, *getattr(command, "commands", {}).values()]


def _examples(verb: str) -> list[str]:
    """Return the lines below `Examples:` in the help of a verb."""
    found: list[str] = []
    for command in _commands(verb):
        _, _, after = (command.help or "").partition("Examples:\n")
        found += [line.removeprefix("$ ") for line in after.splitlines()]
    return found


def parse(arguments: list[str]) -> None:
    """Parse a command line as the program does; raise the error of a wrong one."""
    command: Any = get_command(main.build(arguments[0]))
    name = PROGRAM
    rest, parent = main.translate_arguments(arguments), None
    while True:
        context = command.make_context(name, rest, parent=parent)
        if not hasattr(command, "resolve_command"):
            return
        below = [*context._protected_args, *context.args]
        if not below and command.invoke_without_command:
            return
        name, command, rest = command.resolve_command(context, below)
        parent = context


def test_the_help_shows_the_verbs_in_groups() -> None:
    shown = CliRunner().invoke(main.build(None), ["--help"], prog_name=PROGRAM).stdout
    places = [shown.index(f"─ {panel} ─") for panel in HelpPanel]
    assert places == sorted(places)
    assert "─ Commands ─" not in shown


@pytest.mark.parametrize("verb", PARTS)
def test_a_loaded_verb_stays_in_its_group(verb: str) -> None:
    shown = CliRunner().invoke(main.build(verb), ["--help"], prog_name=PROGRAM).stdout
    assert "─ Commands ─" not in shown


@pytest.mark.parametrize("verb", PARTS)
def test_every_verb_has_two_examples_thatparse(verb: str) -> None:
    examples = _examples(verb)
    assert len(examples) >= 2, f"the help of {verb} has {len(examples)} example(s)"
    for example in examples:
        ours = [part for part in ENDS.split(example) if part.split()[:2] == [PROGRAM, verb]]
        assert ours, f"{example!r} does not show {verb}"
        for part in ours:
            parse(shlex.split(part)[1:])


@pytest.mark.parametrize("verb", PARTS)
def test_examples_fit_a_terminal_of_80_columns(verb: str) -> None:
    assert [each for each in _examples(verb) if len(each) > 75] == []


@pytest.mark.parametrize("verb", PARTS)
def test_no_option_is_cut_off_in_a_terminal_of_80_columns(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 80)
    for path, command in _below([verb]):
        shown = CliRunner().invoke(main.build(verb), [*path, "--help"], prog_name=PROGRAM).stdout
        options = shown[shown.index("─ Options ─") :]
        words = set(options.replace(",", " ").split())
        for parameter in command.params:
            names = {name for name in _names(parameter) if name.startswith("-")}
            assert names <= words, f"{path}: {names - words}"
        # Rich ends a word that it cut with this sign.
        assert [line for line in options.splitlines() if line.endswith(("… │", "…│"))] == []


def _names(parameter: Any) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


def _below(path: list[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield a command and its subcommands, each with its path."""
    command: Any = get_command(main.build(path[0]))
    for name in path:
        command = command.commands[name]
    yield path, command
    for name in getattr(command, "commands", {}):
        yield from _below([*path, name])


def test_an_example_with_an_unknown_option_would_be_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["list", "--every"])
