"""`raybus events`: options, and the exit code of each error."""

import asyncio
from functools import partial
from typing import Annotated, NoReturn

import typer

from common import errors
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.kube.resources import RAY_JOB, RAY_SERVICE, Resource
from raybus_cli import printing, session
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    RaybusNamespaceOption,
)
from raybus_cli.events import connection, run, show
from raybus_cli.events.connection import NatsCredentialsOption, NatsOption
from raybus_cli.events.run import NatsAccess
from raybus_cli.events.show import EventOptions, SelectedObject
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.printing import LinesOption, Output

INTERRUPTED = 130


def events(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND/][NAMESPACE/]NAME",
            help="A RayService or RayJob; a name alone is in --namespace, or in that of the "
            "context. KIND is rayservice or rayjob. Default: all of --namespace, or of all "
            "namespaces.",
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
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only events of this kind; may be repeated."),
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
    """Show the steps of upgrades and jobs, in order, from the stream for external consumers.

    Without --nats and --nats-credentials, the command registers a key in the
    cluster's ConfigMap nats-keys-subscriber while it runs, and reaches NATS by
    'kubectl port-forward'. -o json prints each CloudEvent as stored, one per
    line.

    Examples:
    $ raybus events demo --since 10m
    $ raybus events serving/demo -f -o json
    $ raybus events rayjob/train --kind job-failed --kind job-succeeded
    """
    try:
        is_direct = nats is not None or nats_credentials is not None
        access = None if is_direct else session.select_access(kubeconfig, context, namespace)
        asked = show.check_namespace(namespace)
        chosen = EventOptions(
            selected=show.parse_object(name, access.namespace if access is not None else asked),
            kinds=show.parse_kinds(kind),
            namespace=asked,
            since=show.parse_since(since, now=SystemClock().now()),
            replay=show.check_replay(replay),
            limit=show.check_limit(limit),
            follow=follow,
            as_json=output is Output.JSON,
        )
        if access is not None:
            work = run.run_through_forward(access, raybus_namespace, partial(_show, chosen, access))
        else:
            work = _show(
                chosen, None, NatsAccess(connection.build_settings(nats, nats_credentials))
            )
    except errors.InvalidSpec as problem:
        _fail(problem)
    try:
        with session.silence_logs():
            asyncio.run(work)
    except (errors.RaybusError, BrokenPipeError, KeyboardInterrupt, BaseExceptionGroup) as problem:
        _end(session.find_first(problem), is_following=follow)


async def _show(chosen: EventOptions, access: KubeAccess | None, way: NatsAccess) -> None:
    if await run.show(way, chosen, _write, _report) > 0:
        return
    if access is not None and chosen.selected is not None:
        await _expect(access, chosen.selected)
    _report("no events")


async def _expect(access: KubeAccess, selected: SelectedObject) -> None:
    """Raise `NotFound` if no RayService and no RayJob has the selected name.

    If the caller may not read such objects, the object is assumed to exist.
    """
    missing: list[errors.NotFound] = []
    for resource in (RAY_SERVICE, RAY_JOB):
        if selected.resource not in {"", resource.plural}:
            continue
        try:
            await session.run_connected(
                access, partial(_get, resource, selected.namespace, selected.name)
            )
        except errors.Forbidden:
            return
        except errors.NotFound as problem:
            missing.append(problem)
        else:
            return
    if missing:
        raise errors.NotFound(f"no events, and {session.format_error(missing[0])}") from missing[0]


async def _get(resource: Resource, namespace: str, name: str, kube: KubeClient) -> None:
    """Read an object, so that a missing one raises an error."""
    try:
        await kube.get(resource, namespace, name)
    except errors.NotFound as problem:
        if session.is_not_served(problem):
            raise
        raise session.NoSuchObject(resource, namespace, name) from problem


def _end(problem: BaseException, *, is_following: bool) -> NoReturn:
    """Exit with the error's code, or with 0 if Ctrl-C ended `--follow`.

    The error of a closed pipe, as with `| head`, is raised again; `main` handles it.
    """
    if isinstance(problem, KeyboardInterrupt):
        raise SystemExit(0 if is_following else INTERRUPTED)
    if isinstance(problem, errors.RaybusError):
        _fail(problem)
    raise problem


def _write(line: str) -> None:
    printing.print_message(line)


def _report(line: str) -> None:
    printing.print_message(f"raybus events: {line}", err=True)


def _fail(problem: BaseException) -> NoReturn:
    printing.print_message(f"error: {problem}", err=True)
    raise SystemExit(2 if isinstance(problem, errors.InvalidSpec) else 1)
