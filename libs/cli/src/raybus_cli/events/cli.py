"""`raybus events`: the options, and what each kind of failure means for the exit code."""

import asyncio
import logging
from pathlib import Path
from typing import Annotated, NoReturn

import structlog
import typer

from common import errors
from common.bus.consumer import Begin, from_sequence, from_time
from common.bus.nats import Bus, connect
from common.runtime.clock import SystemClock
from common.runtime.settings import Settings
from raybus_cli.access import problems
from raybus_cli.events import connection
from raybus_cli.events import options as checks
from raybus_cli.events.options import Options
from raybus_cli.events.reading import Reader
from raybus_cli.events.show import Show

CONNECT_SECONDS = 5.0
"""How long a server may take that is reachable and not overloaded."""
INTERRUPTED = 130


def events(
    service: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE/RAYSERVICE]", help="Whose events; without it, everybody's.")
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
    nats: Annotated[
        str | None, typer.Option(envvar="RAYBUS_NATS_URL", help="NATS; default: as the folder of the credentials says.")
    ] = None,
    nats_credentials: Annotated[
        Path | None,
        typer.Option(
            envvar="RAYBUS_NATS_CREDENTIALS", help="Folder with the seed of the user 'subscriber' and ca.crt."
        ),
    ] = None,
) -> None:
    """Show the steps of upgrades, in order, from the history that outsiders may read.

    Exit code 0: all that was wanted is shown. 1: it could not be read. 2: the command makes no sense as written.
    """
    try:
        chosen = Options(
            service=checks.check_service(service),
            since=checks.check_since(since, now=SystemClock().now()),
            replay=checks.check_replay(replay),
            limit=checks.check_limit(limit),
            follow=follow,
            as_json=checks.check_output(output),
        )
        settings = connection.settings(nats, nats_credentials)
    except errors.InvalidSpec as problem:
        _fail(problem)
    # What libraries complain of is part of our own errors; as lines of a log it would stand between the events.
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        asyncio.run(_run(chosen, settings))
    except (errors.RaybusError, BrokenPipeError, KeyboardInterrupt, BaseExceptionGroup) as problem:
        _end(problems.first(problem), is_following=follow)


def _end(problem: BaseException, *, is_following: bool) -> NoReturn:
    """Say why it ended; a reader that went away, such as `| head`, is the shell's matter."""
    if isinstance(problem, KeyboardInterrupt):
        raise SystemExit(0 if is_following else INTERRUPTED)
    if isinstance(problem, errors.RaybusError):
        _fail(problem)
    raise problem


async def _run(options: Options, settings: Settings) -> None:
    show = Show(options, _write)
    async with connect(settings) as bus:
        await _connected(bus, settings)
        try:
            await Reader(bus, options.subject, _begin(options)).run(show, is_patient=options.follow, say=_say)
        except errors.NotFound:
            raise errors.NotFound(
                f"{settings.nats_url} has no stream of events for {settings.service}: does raybus run with this NATS? "
                "'python -m common.bus.provision streams' makes the stream"
            ) from None
    if show.is_start_missing:
        raise errors.NotFound(
            f"no event with the id {options.replay!r} is stored"
            f"{'' if options.service is None else ' for this RayService'}; 'raybus events -o json' shows the ids"
        )
    if show.count == 0:
        _say("no events")


async def _connected(bus: Bus, settings: Settings) -> None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await bus.session()
    except TimeoutError:
        problem = bus.problem or f"NATS at {settings.nats_url} does not answer"
        if "authorization" in problem.lower():
            raise errors.Forbidden(
                f"NATS at {settings.nats_url} does not know the user of {settings.nats_seed_file}; "
                "name the folder of this server's credentials with --nats-credentials"
            ) from None
        raise errors.Unavailable(problem) from None


def _begin(options: Options) -> Begin:
    return from_sequence(1) if options.since is None else from_time(options.since)


def _write(line: str) -> None:
    typer.echo(line)


def _say(line: str) -> None:
    typer.echo(f"raybus events: {line}", err=True)


def _fail(problem: BaseException) -> NoReturn:
    typer.echo(f"error: {problem}", err=True)
    raise SystemExit(2 if isinstance(problem, errors.InvalidSpec) else 1)
