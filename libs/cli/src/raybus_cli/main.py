"""`raybus`: imports the module of the requested subcommand and runs it.

Other modules are not imported, so that each subcommand starts quickly and a broken module disables
only its own. A subcommand of another package (`raybus-dashboard`, `localcluster`) exists only while
that package is installed.

Exit codes of all subcommands: 0 success, 1 failure, 2 invalid command, 3 timeout of a wait.
Standard output carries results only.
"""

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import msgspec
import typer

from raybus_cli import completion


class HelpPanel(StrEnum):
    """Groups of subcommands, in the order in which the help text shows them."""

    OBSERVE = "Observe"
    UPGRADE = "Upgrade"
    JOBS = "Jobs"
    CHECK = "Check"
    LOCAL = "Local"


class Subcommand(msgspec.Struct, frozen=True):
    """A subcommand of `raybus` and the module that implements it.

    `attribute` names the typer app of a group of commands, or the function of a single command.
    """

    panel: HelpPanel
    module: str
    attribute: str
    help: str


PARTS: Final = {
    "get": Subcommand(
        HelpPanel.OBSERVE,
        "raybus_cli.show.cli",
        "get",
        "Show objects of raybus as tables or trees.",
    ),
    "list": Subcommand(
        HelpPanel.OBSERVE, "raybus_cli.show.cli", "list_", "List all objects of raybus."
    ),
    "status": Subcommand(
        HelpPanel.OBSERVE,
        "raybus_cli.show.cli",
        "status",
        "Wait until a RayService is served or a RayJob has ended.",
    ),
    "history": Subcommand(
        HelpPanel.OBSERVE,
        "raybus_cli.control.cli",
        "history",
        "Show the revisions of a RayService, or the attempts of a RayJob.",
    ),
    "logs": Subcommand(
        HelpPanel.OBSERVE,
        "raybus_cli.logs.cli",
        "logs",
        "Print the logs of pods, or of Serve replicas.",
    ),
    "events": Subcommand(
        HelpPanel.OBSERVE,
        "raybus_cli.events.cli",
        "events",
        "Show events of upgrades and jobs, past and new.",
    ),
    "dashboard": Subcommand(
        HelpPanel.OBSERVE,
        "raybus_dashboard.cli",
        "app",
        "Show RayServices and upgrades on a live page.",
    ),
    "plan": Subcommand(
        HelpPanel.UPGRADE,
        "raybus_cli.planning.cli",
        "plan",
        "Show the effect of a manifest before it is applied.",
    ),
    "pause": Subcommand(
        HelpPanel.UPGRADE,
        "raybus_cli.control.cli",
        "pause",
        "Pause an upgrade at its current step.",
    ),
    "resume": Subcommand(
        HelpPanel.UPGRADE, "raybus_cli.control.cli", "resume", "Resume a paused upgrade."
    ),
    "promote": Subcommand(
        HelpPanel.UPGRADE,
        "raybus_cli.control.cli",
        "promote",
        "Skip the remaining steps of an upgrade.",
    ),
    "abort": Subcommand(
        HelpPanel.UPGRADE,
        "raybus_cli.control.cli",
        "abort",
        "Abort an upgrade and roll back to the active cluster.",
    ),
    "retry": Subcommand(
        HelpPanel.UPGRADE, "raybus_cli.control.cli", "retry", "Retry an aborted upgrade."
    ),
    "undo": Subcommand(
        HelpPanel.UPGRADE, "raybus_cli.control.cli", "undo", "Roll back to a previous revision."
    ),
    "restart": Subcommand(
        HelpPanel.UPGRADE,
        "raybus_cli.changing.cli",
        "restart",
        "Replace a cluster by a new one of the same spec.",
    ),
    "set": Subcommand(
        HelpPanel.UPGRADE,
        "raybus_cli.changing.cli",
        "set_",
        "Change the images of a RayService or RayCluster.",
    ),
    "submit": Subcommand(
        HelpPanel.JOBS,
        "raybus_cli.jobs.cli",
        "submit",
        "Run a command as a RayJob, and print its log.",
    ),
    "stop": Subcommand(
        HelpPanel.JOBS, "raybus_cli.jobs.cli", "stop", "Suspend or delete a RayJob."
    ),
    "explain": Subcommand(
        HelpPanel.CHECK,
        "raybus_cli.explaining.cli",
        "explain",
        "Show why an object does not work, with remedies.",
    ),
    "lint": Subcommand(
        HelpPanel.CHECK, "raybus_cli.linting.cli", "lint", "Check manifests without a cluster."
    ),
    "policy": Subcommand(
        HelpPanel.CHECK,
        "raybus_cli.policy.cli",
        "app",
        "Check UpgradePolicies, and try their gates.",
    ),
    "doctor": Subcommand(
        HelpPanel.CHECK,
        "raybus_cli.doctor.cli",
        "doctor",
        "Check an installation, or a cluster before one.",
    ),
    "crds": Subcommand(
        HelpPanel.CHECK,
        "raybus_cli.crds.cli",
        "app",
        "Check the CRDs of a cluster before an upgrade, and print new ones.",
    ),
    "migrate": Subcommand(
        HelpPanel.CHECK,
        "raybus_cli.migrating.cli",
        "app",
        "Take a cluster over from KubeRay's operator.",
    ),
    "bundle": Subcommand(
        HelpPanel.CHECK,
        "raybus_cli.bundling.cli",
        "bundle",
        "Write an archive for a bug report, without secrets.",
    ),
    "demo": Subcommand(
        HelpPanel.LOCAL,
        "localcluster.demo.cli",
        "demo",
        "Upgrade a model under load and count failed requests.",
    ),
    "cluster": Subcommand(
        HelpPanel.LOCAL, "localcluster.cli", "app", "Run a real Kubernetes cluster on this machine."
    ),
    "images": Subcommand(
        HelpPanel.LOCAL,
        "localcluster.images.cli",
        "app",
        "Build the container images, with or without Docker.",
    ),
    "up": Subcommand(
        HelpPanel.LOCAL,
        "raybus_cli.up.cli",
        "up",
        "Run NATS and the five services as local processes.",
    ),
    "completion": Subcommand(
        HelpPanel.LOCAL,
        "raybus_cli.completion",
        "completion",
        "Print the completion script of a shell.",
    ),
    "version": Subcommand(
        HelpPanel.LOCAL, "raybus_cli.show.version", "version", "Print the version of raybus."
    ),
}


def build(asked: str | None) -> typer.Typer:
    """Build the command line with only the subcommand `asked` imported.

    The other subcommands are listed with name and help text, but do nothing.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        help="Run Ray clusters and Ray Serve applications on Kubernetes.",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    for name, part in PARTS.items():
        if find_spec(part.module.partition(".")[0]) is None:
            continue
        _mount(app, name, part, _load(name, part) if name == asked else _do_nothing)
    return app


def _mount(app: typer.Typer, name: str, part: Subcommand, command: Any) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, short_help=part.help, rich_help_panel=part.panel)
    else:
        text = part.help if command is _do_nothing else None
        app.command(name, help=text, short_help=part.help, rich_help_panel=part.panel)(command)


def _load(name: str, part: Subcommand) -> Any:
    try:
        return getattr(import_module(part.module), part.attribute)
    except (ImportError, AttributeError) as problem:
        typer.echo(
            f"error: raybus {name} cannot be loaded: {problem}; install raybus again, "
            "in a checkout with 'make setup'",
            err=True,
        )
        raise SystemExit(1) from problem


def _do_nothing() -> None:
    """Do nothing; stands for a subcommand whose module is not imported."""


def translate_arguments(given: Sequence[str]) -> list[str]:
    """Translate kubectl's forms: `help COMMAND` to `COMMAND --help`, `--version` to `version`."""
    match list(given):
        case ["help", *rest]:
            return [*rest, "--help"]
        case ["--version", *rest]:
            return ["version", *rest]
        case same:
            return same


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or answer a shell's completion request."""
    if completion.VARIABLE in os.environ:
        completion.begin()
        build(completion.find_verb(os.environ))([], prog_name=completion.PROGRAM)
        return
    given = translate_arguments(sys.argv[1:] if arguments is None else arguments)
    with _exit_on_closed_pipe():
        build(next((argument for argument in given if not argument.startswith("-")), None))(given)


@contextmanager
def _exit_on_closed_pipe() -> Generator[None]:
    """Exit with 0 when the reader of a pipe closes it, as in `raybus list | head -1`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        pass
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
    else:
        return
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
    )  # the rest of the buffer has no reader
    raise SystemExit(0)


def complete_for_kubectl() -> None:
    """Print completion candidates for kubectl."""
    completion.complete_for_kubectl(build)


if __name__ == "__main__":
    main()
