"""`raybus completion`: scripts for shells, and the answers that kubectl asks its plugins for.

The scripts are typer's; they run `raybus` with the words typed so far in the environment, and only the part that is being typed
is loaded. kubectl runs a program named `kubectl_complete-raybus` with those words as arguments and reads one candidate a
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
ZSH_WORDS: Final = "_TYPER_COMPLETE_ARGS"
NO_FILES: Final = ":4"
Build = Callable[[str | None], typer.Typer]


class Shell(StrEnum):
    """The shells that there are scripts for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a script that lets a shell complete verbs, options and names of RayServices.

    kubectl finds kubectl_complete-raybus, which comes with raybus, on the PATH. Example: source <(raybus completion bash)
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
    words = (env.get(ZSH_WORDS) or env.get("COMP_WORDS") or "").split()[1:]
    return next((word for word in words if not word.startswith("-")), None)


def candidates(build: Build, words: Sequence[str]) -> list[str]:
    """Return what the last word may become."""
    asked = next((word for word in words[:-1] if not word.startswith("-")), None)
    begin()
    os.environ["COMP_WORDS"] = " ".join([PROGRAM, *words])
    os.environ["COMP_CWORD"] = str(len(words))
    with redirect_stdout(StringIO()) as told:
        typers.shell_complete(get_command(build(asked)), {}, PROGRAM, VARIABLE, "complete_bash")
    return [line for line in told.getvalue().splitlines() if line]


def for_kubectl(build: Build) -> None:
    """Answer kubectl."""
    typer.echo("\n".join([*candidates(build, sys.argv[1:]), NO_FILES]))
