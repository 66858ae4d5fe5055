"""`raybus`: imports the module of the requested subcommand and runs it.

Other modules are not imported, so that a broken one disables no other subcommand and each starts
quickly. A subcommand of another package (`raybus-dashboard`, `localcluster`) is there while that
package is installed.

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


class Panel(StrEnum):
    """Groups of subcommands in the help text, in their order there."""

    OBSERVE = "Observe"
    UPGRADE = "Upgrade"
    CHECK = "Check"
    LOCAL = "Local"


class Part(msgspec.Struct, frozen=True):
    """A subcommand of `raybus` and the module that implements it.

    `attribute` is a typer app with subcommands of its own, or the function of a single command.
    """

    panel: Panel
    module: str
    attribute: str
    help: str


PARTS: Final = {
    "get": Part(Panel.OBSERVE, "raybus_cli.show.cli", "get", "Show RayServices or RayClusters."),
    "list": Part(
        Panel.OBSERVE, "raybus_cli.show.cli", "list_", "List RayServices and RayClusters."
    ),
    "status": Part(
        Panel.OBSERVE,
        "raybus_cli.show.cli",
        "status",
        "Wait until the spec of a RayService is served.",
    ),
    "history": Part(
        Panel.OBSERVE, "raybus_cli.control.cli", "history", "Show the revisions of a RayService."
    ),
    "logs": Part(
        Panel.OBSERVE,
        "raybus_cli.logs.cli",
        "logs",
        "Print the logs of pods, or of Serve replicas.",
    ),
    "events": Part(
        Panel.OBSERVE, "raybus_cli.events.cli", "events", "Show upgrade events, past and new."
    ),
    "dashboard": Part(
        Panel.OBSERVE,
        "raybus_dashboard.cli",
        "app",
        "Show RayServices and upgrades on a live page.",
    ),
    "plan": Part(
        Panel.UPGRADE,
        "raybus_cli.planning.cli",
        "plan",
        "Show the effect of a manifest before it is applied.",
    ),
    "pause": Part(
        Panel.UPGRADE, "raybus_cli.control.cli", "pause", "Pause an upgrade at its current step."
    ),
    "resume": Part(Panel.UPGRADE, "raybus_cli.control.cli", "resume", "Resume a paused upgrade."),
    "promote": Part(
        Panel.UPGRADE,
        "raybus_cli.control.cli",
        "promote",
        "Skip the remaining steps of an upgrade.",
    ),
    "abort": Part(
        Panel.UPGRADE,
        "raybus_cli.control.cli",
        "abort",
        "Abort an upgrade and roll back to the active cluster.",
    ),
    "retry": Part(Panel.UPGRADE, "raybus_cli.control.cli", "retry", "Retry an aborted upgrade."),
    "undo": Part(
        Panel.UPGRADE, "raybus_cli.control.cli", "undo", "Roll back to a previous revision."
    ),
    "restart": Part(
        Panel.UPGRADE,
        "raybus_cli.changing.cli",
        "restart",
        "Replace a cluster by a new one of the same spec.",
    ),
    "set": Part(
        Panel.UPGRADE,
        "raybus_cli.changing.cli",
        "set_",
        "Change the images of a RayService or RayCluster.",
    ),
    "explain": Part(
        Panel.CHECK, "raybus_cli.explaining.cli", "explain", "Show blocking issues, with remedies."
    ),
    "lint": Part(
        Panel.CHECK, "raybus_cli.linting.cli", "lint", "Check manifests without a cluster."
    ),
    "policy": Part(
        Panel.CHECK, "raybus_cli.policy.cli", "app", "Check UpgradePolicies, and try their gates."
    ),
    "doctor": Part(
        Panel.CHECK,
        "raybus_cli.doctor.cli",
        "doctor",
        "Check an installation, or a cluster before one.",
    ),
    "migrate": Part(
        Panel.CHECK,
        "raybus_cli.migrating.cli",
        "app",
        "Take a cluster over from KubeRay's operator.",
    ),
    "bundle": Part(
        Panel.CHECK,
        "raybus_cli.bundling.cli",
        "bundle",
        "Write an archive for a bug report, without secrets.",
    ),
    "demo": Part(
        Panel.LOCAL,
        "localcluster.demo.cli",
        "demo",
        "Upgrade a model under load and count failed requests.",
    ),
    "cluster": Part(
        Panel.LOCAL, "localcluster.cli", "app", "Run a real Kubernetes cluster on this machine."
    ),
    "images": Part(
        Panel.LOCAL,
        "localcluster.images.cli",
        "app",
        "Build the container images, with or without Docker.",
    ),
    "up": Part(
        Panel.LOCAL, "raybus_cli.up.cli", "up", "Run NATS and the four services as local processes."
    ),
    "completion": Part(
        Panel.LOCAL,
        "raybus_cli.completion",
        "completion",
        "Print the completion script of a shell.",
    ),
    "version": Part(
        Panel.LOCAL, "raybus_cli.show.version", "version", "Print the version of raybus."
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
        _mount(app, name, part, _load(name, part) if name == asked else _elsewhere)
    return app


def _mount(app: typer.Typer, name: str, part: Part, found: Any) -> None:
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, short_help=part.help, rich_help_panel=part.panel)
    else:
        text = part.help if found is _elsewhere else None
        app.command(name, help=text, short_help=part.help, rich_help_panel=part.panel)(found)


def _load(name: str, part: Part) -> Any:
    try:
        return getattr(import_module(part.module), part.attribute)
    except (ImportError, AttributeError) as problem:
        typer.echo(
            f"error: raybus {name} cannot be loaded: {problem}; run 'make setup' in the checkout",
            err=True,
        )
        raise SystemExit(1) from problem


def _elsewhere() -> None:
    """Do nothing: this function stands for a subcommand whose module is not imported."""


def as_ours(given: Sequence[str]) -> list[str]:
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
        build(completion.verb(os.environ))([], prog_name=completion.PROGRAM)
        return
    given = as_ours(sys.argv[1:] if arguments is None else arguments)
    with _readers_may_leave():
        build(next((each for each in given if not each.startswith("-")), None))(given)


@contextmanager
def _readers_may_leave() -> Generator[None]:
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
    completion.for_kubectl(build)


if __name__ == "__main__":
    main()
