"""`raybus dashboard`: options, and the run of the page's server on the user's machine."""

import asyncio
import os
import sys
import webbrowser
from functools import partial
from pathlib import Path
from socket import socket
from typing import Annotated, Final

import typer

from common import errors
from raybus_cli import session, waiting
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    RaybusNamespaceOption,
)
from raybus_cli.events import connection, run
from raybus_cli.events.connection import NatsCredentialsOption, NatsOption
from raybus_cli.kubeconfig import KubeAccess
from raybus_dashboard import server
from raybus_dashboard.board import Board, EventFeed, PageSources
from raybus_dashboard.history import ConnectToNats, EventLog, History, UpgradeEventListener
from raybus_dashboard.incluster.cli import serve
from raybus_dashboard.listing import SharedListing
from raybus_dashboard.polling import Poller
from raybus_dashboard.responses import Actor

PORT: Final = 3100
DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
"""Environment variables that name a screen.

On Unix, without a screen a browser would open in the terminal, over the output of this command.
"""

app = typer.Typer(invoke_without_command=True, pretty_exceptions_enable=False, add_completion=False)
app.command()(serve)


@app.callback()
def dashboard(
    ctx: typer.Context,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="N", help="Port on 127.0.0.1; 0 takes any free one."
        ),
    ] = PORT,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address without opening a browser.")
    ] = False,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show all namespaces.")
    ] = False,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="Let the page pause, resume, promote, abort, retry and undo upgrades.",
        ),
    ] = False,
    logs: Annotated[
        bool, typer.Option("--logs", help="Let the page show the last lines of logs.")
    ] = False,
    nats: NatsOption = None,
    nats_credentials: NatsCredentialsOption = None,
    raybus_namespace: RaybusNamespaceOption = "raybus",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show RayServices and their upgrades on a live page of this machine, until Ctrl-C.

    The page uses your kubeconfig and your rights, and changes nothing without
    --controls. Upgrade events come over NATS, as for 'raybus events'. Without
    NATS the page shows the state at the API server and reports the error. Only
    this machine can open the page. Exit code 0 after Ctrl-C.

    Examples:
    $ raybus dashboard -A
    $ raybus dashboard -n serving --controls
    """
    if ctx.invoked_subcommand is not None:
        return
    place = session.select_access(kubeconfig, context, namespace)
    try:
        through = _build_connection(place, raybus_namespace, nats, nats_credentials)
        listening = server.listen(port)
    except errors.RaybusError as problem:
        session.fail(problem)
    scope = None if all_namespaces else place.namespace
    try:
        with session.silence_logs(), listening:
            run_ = _Run(
                place, scope, through, has_controls=controls, has_logs=logs, is_opened=not no_open
            )
            asyncio.run(run_.run_until_stopped(listening))
    except BaseExceptionGroup as met:
        _end(session.find_first(met))


class _Run:
    """One run of the dashboard: its board, poller, event listener and web server."""

    def __init__(
        self,
        place: KubeAccess,
        scope: str | None,
        through: ConnectToNats,
        *,
        has_controls: bool,
        has_logs: bool,
        is_opened: bool,
    ) -> None:
        sources = PageSources(
            context=place.context or "",
            namespace=scope,
            has_controls=has_controls,
            has_logs=has_logs,
        )
        self._board = Board(sources)
        connect = partial(session.connect, place)
        self._actor = Actor(connect) if has_controls else None
        self._reads_logs = connect if has_logs else None
        events = EventLog(self._board.request_read, lambda: self._board.set_feed(EventFeed.LIVE))
        self._listener = UpgradeEventListener(through, scope, self._board, events)
        self._listing = SharedListing()
        self._poller = Poller(connect, scope, self._board, History(events), self._listing)
        self._is_opened = is_opened

    async def run_until_stopped(self, listening: socket) -> None:
        """Show the page until a signal or an error.

        Raise an exception group that contains `Stopped` or the error.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(waiting.wait())
                group.create_task(self._show(listening))
        finally:
            self._listing.close()
            await self._poller.close()
            if self._actor is not None:
                await self._actor.close()

    async def _show(self, listening: socket) -> None:
        """Read the list once, then serve the page.

        An error of this first read is reported at the terminal instead of on the page.
        """
        await self._poller.read_list()
        serving = server.serve(listening, self._board, self._actor, self._reads_logs)
        async with serving as address, asyncio.TaskGroup() as group:
            group.create_task(self._poller.follow_list())
            group.create_task(self._poller.follow_details())
            group.create_task(self._listener.listen())
            typer.echo(f"{address}")
            typer.echo("raybus dashboard: open this address; Ctrl-C ends it", err=True)
            if self._is_opened and _has_browser():
                await asyncio.to_thread(webbrowser.open, address)


def _build_connection(
    place: KubeAccess, raybus_namespace: str, nats: str | None, credentials: Path | None
) -> ConnectToNats:
    """Return a function that connects to NATS: at the address in the options, or by a port forward.

    Raises `InvalidSpec`, which names the invalid option.
    """
    if nats is None and credentials is None:
        return lambda read: run.run_through_forward(place, raybus_namespace, read)
    way = run.NatsAccess(connection.build_settings(nats, credentials))
    return lambda read: read(way)


def _has_browser() -> bool:
    """Return whether a browser can open on a screen."""
    if sys.platform in {"darwin", "win32"}:
        return sys.stdout.isatty()
    return sys.stdout.isatty() and any(os.environ.get(name) for name in DISPLAYS)


def _end(problem: BaseException) -> None:
    """Report an error and exit; only return if a signal ended the run."""
    if isinstance(problem, waiting.Stopped):
        return
    if isinstance(problem, errors.RaybusError):
        session.fail(problem)
    raise problem
