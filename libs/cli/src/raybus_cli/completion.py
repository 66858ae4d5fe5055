"""`raybus completion`: scripts for shells, and the answers that kubectl asks its plugins for.

The scripts are typer's; they run `raybus` with the arguments typed so far in the environment, and only the part that is being typed
is loaded. kubectl runs a program named `kubectl_complete-raybus` with those arguments and reads one candidate a
line, then `:4` (no file names).
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from io import StringIO
from typing import Annotated, Final

import typer
from typer import completion as typers
from typer.main import get_command

PROGRAM: Final = "raybus"
VARIABLE: Final = "_RAYBUS_COMPLETE"
"""Set by the scripts; by its name typer knows that a shell asks."""
ZSH_ARGUMENTS: Final = "_TYPER_COMPLETE_ARGS"
BASH_ARGUMENTS: Final = "COMP_WORDS"
NO_FILES: Final = ":4"
Build = Callable[[str | None], typer.Typer]


class Shell(StrEnum):
    """The shells that there are scripts for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a script that lets a shell complete verbs, options and names of RayServices.

    kubectl finds kubectl_complete-raybus, which comes with raybus, on the PATH.

    Examples:
    $ source <(raybus completion bash)
    $ raybus completion fish > ~/.config/fish/completions/raybus.fish
    """
    begin()
    app = typer.Typer()
    app.command()(completion)
    typers.shell_complete(get_command(app), {}, PROGRAM, VARIABLE, f"source_{shell}")


def begin() -> None:
    """Make typer's completion classes known."""
    typers.completion_init()  # pyright: ignore[reportPrivateImportUsage]  (typer exports no other way)


def verb(env: Mapping[str, str]) -> str | None:
    """Return the verb that is being completed, if a shell asks."""
    arguments = (env.get(ZSH_ARGUMENTS) or env.get(BASH_ARGUMENTS) or "").split()[1:]
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def candidates(build: Build, arguments: Sequence[str]) -> list[str]:
    """Return the candidates for the last argument."""
    asked = next((argument for argument in arguments[:-1] if not argument.startswith("-")), None)
    begin()
    os.environ[BASH_ARGUMENTS] = " ".join([PROGRAM, *arguments])
    os.environ["COMP_CWORD"] = str(len(arguments))
    with redirect_stdout(StringIO()) as output:
        typers.shell_complete(get_command(build(asked)), {}, PROGRAM, VARIABLE, "complete_bash")
    return [line for line in output.getvalue().splitlines() if line]


def for_kubectl(build: Build) -> None:
    """Answer kubectl."""
    typer.echo("\n".join([*candidates(build, sys.argv[1:]), NO_FILES]))
