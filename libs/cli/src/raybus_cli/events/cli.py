"""`raybus events`: the options, and what each kind of failure means for the exit code."""

import asyncio
import os
from functools import partial
from typing import Annotated, NoReturn

import typer

from common import errors
from common.runtime.clock import SystemClock
from common.runtime.settings import Settings
from raybus_cli.access import kubeconfig as kubeconfigs
from raybus_cli.access import problems
from raybus_cli.access.kubeconfig import ContextOption, KubeconfigOption, RaybusNamespaceOption
from raybus_cli.events import connection, run
from raybus_cli.events import options as checks
from raybus_cli.events.connection import NatsCredentialsOption, NatsOption
from raybus_cli.events.options import Options
from raybus_cli.output import logs, printing

INTERRUPTED = 130


def events(
    service: Annotated[
        str | None,
        typer.Argument(
            metavar="NAMESPACE/RAYSERVICE",
            help="Whose events; a name alone is looked for in the namespace of the kubeconfig's context; without it, everybody's.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Begin so long ago (10m, 2d) or then (2026-01-31T10:00:00Z).")
    ] = None,
    replay: Annotated[str | None, typer.Option(metavar="ID", help="Begin with the event of this id.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", help="At most so many: the first of them with --since or --replay, else the last."
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="text: a line for people; json: the CloudEvent as it is stored.")
    ] = "text",
    nats: NatsOption = None,
    nats_credentials: NatsCredentialsOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    raybus_namespace: RaybusNamespaceOption = "raybus",
) -> None:
    """Show the steps of upgrades, in order, from the history that outsiders may read.

    Without --nats and --nats-credentials it takes the key from the cluster's Secret nats-user-subscriber and reaches NATS
    through 'kubectl port-forward'. Example: raybus events demo --since 10m
    """
    try:
        is_direct = nats is not None or nats_credentials is not None
        place = None if is_direct else kubeconfigs.find(kubeconfig, context, None, env=os.environ)
        chosen = Options(
            service=checks.check_service(service, place.namespace if place is not None else ""),
            since=checks.check_since(since, now=SystemClock().now()),
            replay=checks.check_replay(replay),
            limit=checks.check_limit(limit),
            follow=follow,
            as_json=checks.check_output(output),
        )
        if place is not None:
            work = run.through(place, raybus_namespace, partial(_show, chosen))
        else:
            work = run.show(connection.settings(nats, nats_credentials), chosen, _write, _say)
    except errors.InvalidSpec as problem:
        _fail(problem)
    try:
        with logs.silenced():
            asyncio.run(work)
    except (errors.RaybusError, BrokenPipeError, KeyboardInterrupt, BaseExceptionGroup) as problem:
        _end(problems.first(problem), is_following=follow)


async def _show(chosen: Options, settings: Settings, within: float) -> None:
    await run.show(settings, chosen, _write, _say, within=within)


def _end(problem: BaseException, *, is_following: bool) -> NoReturn:
    """Say why it ended; a reader that went away, such as `| head`, is the shell's matter."""
    if isinstance(problem, KeyboardInterrupt):
        raise SystemExit(0 if is_following else INTERRUPTED)
    if isinstance(problem, errors.RaybusError):
        _fail(problem)
    raise problem


def _write(line: str) -> None:
    printing.say(line)


def _say(line: str) -> None:
    printing.say(f"raybus events: {line}", err=True)


def _fail(problem: BaseException) -> NoReturn:
    printing.say(f"error: {problem}", err=True)
    raise SystemExit(2 if isinstance(problem, errors.InvalidSpec) else 1)
