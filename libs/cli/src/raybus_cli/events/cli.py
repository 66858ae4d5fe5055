"""`raybus events`: options, and the exit code of each error."""

import asyncio
import contextlib
from functools import partial
from typing import Annotated, NoReturn

import typer

from common import errors
from common.clock import SystemClock
from raybus_cli import printing, session
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    RaybusNamespaceOption,
)
from raybus_cli.events import connection, run, show
from raybus_cli.events.connection import NatsCredentialsOption, NatsOption
from raybus_cli.events.run import Way
from raybus_cli.events.show import Options, Service
from raybus_cli.kubeconfig import Where
from raybus_cli.printing import LinesOption, Output
from raybus_cli.reading import reader

INTERRUPTED = 130


def events(
    service: Annotated[
        str | None,
        typer.Argument(
            metavar="NAMESPACE/NAME",
            help="The RayService; a name alone is in --namespace, or in that of the context. "
            "Default: all of --namespace, or of all namespaces.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events as they occur, until Ctrl-C.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(help="Start at this age (10m, 2d) or time (2026-01-31T10:00:00Z).")
    ] = None,
    replay: Annotated[
        str | None, typer.Option(metavar="ID", help="Start with the event of this id.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            help="Largest number of events: the first ones with --since or --replay, else the "
            "last ones.",
        ),
    ] = None,
    output: LinesOption = Output.TEXT,
    nats: NatsOption = None,
    nats_credentials: NatsCredentialsOption = None,
    namespace: NamespaceOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    raybus_namespace: RaybusNamespaceOption = "raybus",
) -> None:
    """Show the steps of upgrades, in order, from the event stream for external consumers.

    Without --nats and --nats-credentials, the command registers a key in the
    cluster's ConfigMap nats-keys-subscriber while it runs, and reaches NATS by
    'kubectl port-forward'. -o json prints each CloudEvent as stored, one per
    line.

    Examples:
    $ raybus events demo --since 10m
    $ raybus events serving/demo -f -o json
    """
    try:
        is_direct = nats is not None or nats_credentials is not None
        place = None if is_direct else session.where(kubeconfig, context, namespace)
        asked = show.check_namespace(namespace)
        chosen = Options(
            service=show.check_service(service, place.namespace if place is not None else asked),
            namespace=asked,
            since=show.check_since(since, now=SystemClock().now()),
            replay=show.check_replay(replay),
            limit=show.check_limit(limit),
            follow=follow,
            as_json=output is Output.JSON,
        )
        if place is not None:
            work = run.through(place, raybus_namespace, partial(_show, chosen, place))
        else:
            work = _show(chosen, None, Way(connection.settings(nats, nats_credentials)))
    except errors.InvalidSpec as problem:
        _fail(problem)
    try:
        with session.silenced():
            asyncio.run(work)
    except (errors.RaybusError, BrokenPipeError, KeyboardInterrupt, BaseExceptionGroup) as problem:
        _end(session.first(problem), is_following=follow)


async def _show(chosen: Options, place: Where | None, way: Way) -> None:
    if await run.show(way, chosen, _write, _report) > 0:
        return
    if place is not None and chosen.service is not None:
        await _expect(place, chosen.service)
    _report("no events")


async def _expect(place: Where, service: Service) -> None:
    """Raise `NotFound` if the RayService does not exist.

    Without the right to read it, do nothing.
    """
    try:
        with contextlib.suppress(errors.Forbidden):
            await session.connected(
                place, lambda kube: reader.service(kube, service.namespace, service.name)
            )
    except errors.NotFound as problem:
        raise errors.NotFound(f"no events, and {session.line(problem)}") from problem


def _end(problem: BaseException, *, is_following: bool) -> NoReturn:
    """Exit with the error's code.

    A closed pipe, as by `| head`, is raised again for `main`, and Ctrl-C ends `--follow` with 0.
    """
    if isinstance(problem, KeyboardInterrupt):
        raise SystemExit(0 if is_following else INTERRUPTED)
    if isinstance(problem, errors.RaybusError):
        _fail(problem)
    raise problem


def _write(line: str) -> None:
    printing.message(line)


def _report(line: str) -> None:
    printing.message(f"raybus events: {line}", err=True)


def _fail(problem: BaseException) -> NoReturn:
    printing.message(f"error: {problem}", err=True)
    raise SystemExit(2 if isinstance(problem, errors.InvalidSpec) else 1)
