"""`raybus completion`: prints completion scripts, and answers kubectl's plugin completion.

The scripts are typer's. They run `raybus` and pass the arguments typed so far in environment
variables. `raybus` then imports only the module of the subcommand that is being typed. kubectl
completes a plugin by running `kubectl_complete-raybus` with the arguments typed so far. That
program prints one candidate per line, then `:4`, which tells kubectl not to complete file names.
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
"""Environment variable by which the scripts request completion; typer derives its name from the
program's.
"""
ZSH_ARGUMENTS: Final = "_TYPER_COMPLETE_ARGS"
BASH_ARGUMENTS: Final = "COMP_WORDS"
NO_FILES: Final = ":4"
Build = Callable[[str | None], typer.Typer]


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a script that completes commands, options and names in a shell.

    For kubectl, the program kubectl_complete-raybus must be on the PATH; it is
    installed with raybus.

    Examples:
    $ source <(raybus completion bash)
    $ raybus completion fish > ~/.config/fish/completions/raybus.fish
    """
    typer.echo(build_script(shell), nl=False)


def build_script(shell: Shell) -> str:
    """Return the completion script of a shell.

    zsh can also load the script from a folder in `fpath`, if the script begins with `#compdef`. At
    the first Tab, zsh then runs the whole script as the completion function. The script must
    therefore print candidates at once, in addition to registering its function.
    """
    begin()
    app = typer.Typer()
    app.command()(completion)
    with redirect_stdout(StringIO()) as output:
        typers.shell_complete(get_command(app), {}, PROGRAM, VARIABLE, f"source_{shell}")
    script = output.getvalue().strip() + "\n"
    if shell is not Shell.ZSH:
        return script
    register = "compdef _raybus_completion raybus"
    called = f"""if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _raybus_completion "$@"
else
  {register}
fi"""
    return script.replace(f"\n{register}\n", f"\n{called}\n")


def begin() -> None:
    """Register typer's completion classes with click."""
    # typer has no other export of this function.
    typers.completion_init()  # pyright: ignore[reportPrivateImportUsage]


def find_verb(env: Mapping[str, str]) -> str | None:
    """Return the subcommand that is being completed; None outside a completion request.

    The shell passes the command line in environment variables.
    """
    arguments = (env.get(ZSH_ARGUMENTS) or env.get(BASH_ARGUMENTS) or "").split()[1:]
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def list_candidates(build: Build, arguments: Sequence[str]) -> list[str]:
    """Return the completion candidates for the last of `arguments`.

    `build` returns the command line with only the given subcommand imported.
    """
    asked = next((argument for argument in arguments[:-1] if not argument.startswith("-")), None)
    begin()
    os.environ[BASH_ARGUMENTS] = " ".join([PROGRAM, *arguments])
    os.environ["COMP_CWORD"] = str(len(arguments))
    with redirect_stdout(StringIO()) as output:
        typers.shell_complete(get_command(build(asked)), {}, PROGRAM, VARIABLE, "complete_bash")
    return [line for line in output.getvalue().splitlines() if line]


def complete_for_kubectl(build: Build) -> None:
    """Print the candidates for the arguments of this process, as kubectl expects them."""
    typer.echo("\n".join([*list_candidates(build, sys.argv[1:]), NO_FILES]))
