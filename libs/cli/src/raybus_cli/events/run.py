"""The steps of `raybus events`: connect to NATS, read, report missing events."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import msgspec

from common import errors
from common.bus.access import Keys
from common.bus.consumer import Begin, from_sequence, from_time
from common.bus.nats import Bus, connect
from common.settings import Settings
from raybus_cli.access.kubeconfig import Where
from raybus_cli.events import through_cluster
from raybus_cli.events.options import Options
from raybus_cli.events.reading import Reader, Report, Taker
from raybus_cli.events.show import Show
from raybus_cli.events.through_cluster import Forwarding

CONNECT_SECONDS: Final = 5.0
"""How long a server may take that is reachable and not overloaded."""
FORWARD_SECONDS: Final = 15.0
"""The same with kubectl and an API server in between."""

Write = Callable[[str], None]


class Way(msgspec.Struct, frozen=True):
    """How to reach NATS."""

    settings: Settings
    within: float = CONNECT_SECONDS
    """How many seconds a connection may take."""
    keys: Keys | None = None
    """The credentials for the server, where the settings do not name them."""


Read = Callable[[Way], Awaitable[None]]
"""Reads what is wanted."""


async def through(place: Where, namespace: str, read: Read) -> None:
    """Read from the NATS of a cluster."""
    forwarding = Forwarding(place, namespace)
    async with through_cluster.key(place, namespace, forwarding) as (settings, keys), asyncio.TaskGroup() as group:
        keeping = group.create_task(forwarding.keep())
        try:
            await read(Way(settings, FORWARD_SECONDS, keys))
        except errors.Unavailable as problem:
            raise errors.Unavailable(
                f"{problem}; {forwarding.problem}" if forwarding.problem else str(problem)
            ) from None
        keeping.cancel()


async def show(way: Way, options: Options, write: Write, report: Report) -> int:
    """Show what is wanted, and return how many events; raise `NotFound` when there is no stream, or not the event to begin with."""
    shown = Show(options, write)
    async with reached(way) as reach:
        await reach.read(options.subject, _begin(options), shown, is_patient=options.follow, report=report)
    if shown.is_start_missing:
        raise errors.NotFound(
            f"no event with the id {options.replay!r} is stored"
            f"{'' if options.service is None else ' for this RayService'}; 'raybus events -o json' shows the ids"
        )
    return shown.count


class Reach:
    """A NATS that has answered."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings

    async def read(self, subject: str, begin: Begin, taker: Taker, *, is_patient: bool, report: Report) -> None:
        """Hand events on until no more are wanted; raise `NotFound` when there is no stream."""
        try:
            await Reader(self._bus, subject, begin).run(taker, is_patient=is_patient, report=report)
        except errors.NotFound:
            raise errors.NotFound(
                f"{self._settings.nats_url} has no stream of events for {self._settings.service}: does raybus run with "
                "this NATS? 'python -m nats_admin.provision streams' makes the stream"
            ) from None


@contextlib.asynccontextmanager
async def reached(way: Way) -> AsyncGenerator[Reach]:
    """Stay connected for the length of a block; raise `Unavailable`, or `Forbidden`, when that takes too many seconds."""
    async with connect(way.settings, way.keys) as bus:
        await _connected(bus, way)
        yield Reach(bus, way.settings)


async def _connected(bus: Bus, way: Way) -> None:
    settings = way.settings
    try:
        async with asyncio.timeout(way.within):
            await bus.session()
    except TimeoutError:
        problem = bus.problem or f"NATS at {settings.nats_url} does not answer"
        if "authorization" in problem.lower() and not settings.nats_register_key:
            raise errors.Forbidden(
                f"NATS at {settings.nats_url} does not know the user of {settings.nats_seed_file}; "
                "name the folder of this server's credentials with --nats-credentials"
            ) from None
        raise errors.Unavailable(problem) from None


def _begin(options: Options) -> Begin:
    return from_sequence(1) if options.since is None else from_time(options.since)
