"""`raybus`: finds the part of the command line that was asked for.

Only that part is imported, so that a broken one takes no other along and each starts quickly. Exit codes everywhere: 0 done,
1 it could not be done, 2 the command makes no sense as written. Standard output carries results only.
"""

import os
import platform
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import msgspec
import typer

from common.version import VERSION
from raybus_cli.completion import cli as completion


class Part(msgspec.Struct, frozen=True):
    """A command that lives elsewhere: a typer app with commands of its own, or one function."""

    module: str
    attribute: str
    help: str


PARTS: Final = {
    "cluster": Part("localcluster.cli", "app", "Run a real Kubernetes on this machine."),
    "images": Part("localcluster.images.cli", "app", "Build the container images, with or without Docker."),
    "up": Part("raybus_cli.up.cli", "up", "Run NATS and the four services as processes of this machine."),
    "get": Part("raybus_cli.show.cli", "get", "Show a RayService as a tree; -w goes on looking."),
    "list": Part("raybus_cli.show.cli", "list_", "List all RayServices and RayClusters."),
    "status": Part("raybus_cli.show.cli", "status", "Wait until a RayService serves its spec; the exit code says."),
    "plan": Part("raybus_cli.planning.cli", "plan", "Say what a manifest would do to the running service."),
    "lint": Part("raybus_cli.linting.cli", "lint", "Check manifests without a cluster."),
    "pause": Part("raybus_cli.control.cli", "pause", "Hold an upgrade where it is."),
    "resume": Part("raybus_cli.control.cli", "resume", "Let a paused upgrade go on."),
    "promote": Part("raybus_cli.control.cli", "promote", "Skip the rest of an upgrade's steps."),
    "abort": Part("raybus_cli.control.cli", "abort", "Give an upgrade up and go back to the active cluster."),
    "retry": Part("raybus_cli.control.cli", "retry", "Try an aborted upgrade again."),
    "undo": Part("raybus_cli.control.cli", "undo", "Ask for the spec before this one again."),
    "explain": Part("raybus_cli.explaining.cli", "explain", "Say why a RayService is not ready, and what to do."),
    "doctor": Part("raybus_cli.doctor.cli", "doctor", "Check an installation of raybus."),
    "migrate": Part("raybus_cli.migrating.cli", "app", "Take a cluster over from KubeRay's operator."),
    "bundle": Part("raybus_cli.bundling.cli", "bundle", "Write an archive for a bug report, without secrets."),
    "completion": Part("raybus_cli.completion.cli", "completion", "Print a script that completes for a shell."),
    "history": Part("raybus_cli.control.cli", "history", "Show the specs that are kept of a RayService."),
    "events": Part("raybus_cli.events.cli", "events", "Show what happened to upgrades, and what happens."),
    "dashboard": Part("raybus_cli.dashboard.cli", "dashboard", "Show RayServices and their upgrades on a page, live."),
    "demo": Part("raybus_cli.demo.cli", "demo", "Upgrade a model under load and count what clients noticed."),
}


def build(asked: str | None) -> typer.Typer:
    """Return the command line with the part that is asked for; the others are there by name and help."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        help="Run Ray clusters and Ray Serve applications on Kubernetes.",
    )
    for name, part in PARTS.items():
        _mount(app, name, _load(name, part) if name == asked else _elsewhere, part.help)
    app.command()(version)
    return app


def _mount(app: typer.Typer, name: str, found: Any, text: str) -> None:
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name, help=text if found is _elsewhere else None)(found)


def _load(name: str, part: Part) -> Any:
    try:
        return getattr(import_module(part.module), part.attribute)
    except (ImportError, AttributeError) as problem:
        typer.echo(f"error: raybus {name} cannot be loaded: {problem}; run 'make setup' in the checkout", err=True)
        raise SystemExit(1) from problem


def _elsewhere() -> None:
    """Stand for a part that was not asked for."""


def version(
    *, short: Annotated[bool, typer.Option("--short", help="Print the number and nothing else.")] = False
) -> None:
    """Say which raybus this is."""
    typer.echo(VERSION if short else f"raybus {VERSION} (Python {platform.python_version()}, {sys.platform})")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or answer a shell that completes it."""
    if completion.VARIABLE in os.environ:
        completion.begin()
        build(completion.verb(os.environ))([], prog_name=completion.PROGRAM)
        return
    words = list(sys.argv[1:] if arguments is None else arguments)
    build(next((word for word in words if not word.startswith("-")), None))(words)


def complete_for_kubectl() -> None:
    """Answer kubectl, which asks for candidates."""
    completion.for_kubectl(build)


if __name__ == "__main__":
    main()
