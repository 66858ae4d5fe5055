"""The story of `raybus events`: reach NATS, wait for the connection, read, say what is missing."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from common import errors
from common.bus.consumer import Begin, from_sequence, from_time
from common.bus.nats import Bus, connect
from common.runtime.settings import Settings
from raybus_cli.access.kubeconfig import Where
from raybus_cli.events import through_cluster
from raybus_cli.events.options import Options
from raybus_cli.events.reading import Reader, Say, Taker
from raybus_cli.events.show import Show
from raybus_cli.events.through_cluster import Forwarding

CONNECT_SECONDS: Final = 5.0
"""How long a server may take that is reachable and not overloaded."""
FORWARD_SECONDS: Final = 15.0
"""The same with kubectl and an API server in between."""

Write = Callable[[str], None]
Read = Callable[[Settings, float], Awaitable[None]]
"""Reads what is wanted, given how to connect and how many seconds that may take."""


async def through(place: Where, namespace: str, read: Read) -> None:
    """Read of the NATS that runs in a cluster."""
    forwarding = Forwarding(place, namespace)
    async with through_cluster.credentials(place, namespace) as folder, asyncio.TaskGroup() as group:
        keeping = group.create_task(forwarding.keep())
        settings = through_cluster.settings(folder, forwarding)
        try:
            await read(settings, FORWARD_SECONDS)
        except errors.Unavailable as problem:
            raise errors.Unavailable(
                f"{problem}; {forwarding.problem}" if forwarding.problem else str(problem)
            ) from None
        keeping.cancel()


async def show(
    settings: Settings, options: Options, write: Write, say: Say, *, within: float = CONNECT_SECONDS
) -> None:
    """Show what is wanted; raise `NotFound` when there is no stream, or not the event to begin with."""
    shown = Show(options, write)
    async with reached(settings, within) as reach:
        await reach.read(options.subject, _begin(options), shown, is_patient=options.follow, say=say)
    if shown.is_start_missing:
        raise errors.NotFound(
            f"no event with the id {options.replay!r} is stored"
            f"{'' if options.service is None else ' for this RayService'}; 'raybus events -o json' shows the ids"
        )
    if shown.count == 0:
        say("no events")


class Reach:
    """A NATS that has answered."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings

    async def read(self, subject: str, begin: Begin, taker: Taker, *, is_patient: bool, say: Say) -> None:
        """Hand events on until no more are wanted; raise `NotFound` when there is no stream."""
        try:
            await Reader(self._bus, subject, begin).run(taker, is_patient=is_patient, say=say)
        except errors.NotFound:
            raise errors.NotFound(
                f"{self._settings.nats_url} has no stream of events for {self._settings.service}: does raybus run with "
                "this NATS? 'python -m common.bus.provision streams' makes the stream"
            ) from None


@contextlib.asynccontextmanager
async def reached(settings: Settings, within: float) -> AsyncGenerator[Reach]:
    """Be connected for the length of a block; raise `Unavailable`, or `Forbidden`, when that takes too many seconds."""
    async with connect(settings) as bus:
        await _connected(bus, settings, within)
        yield Reach(bus, settings)


async def _connected(bus: Bus, settings: Settings, within: float) -> None:
    try:
        async with asyncio.timeout(within):
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
