"""The story of `raybus events`: reach NATS, wait for the connection, read, say what is missing."""

import asyncio
from collections.abc import Callable
from typing import Final

from common import errors
from common.bus.consumer import Begin, from_sequence, from_time
from common.bus.nats import Bus, connect
from common.runtime.settings import Settings
from raybus_cli.access.kubeconfig import Where
from raybus_cli.events import through_cluster
from raybus_cli.events.options import Options
from raybus_cli.events.reading import Reader, Say
from raybus_cli.events.show import Show
from raybus_cli.events.through_cluster import Forwarding

CONNECT_SECONDS: Final = 5.0
"""How long a server may take that is reachable and not overloaded."""
FORWARD_SECONDS: Final = 15.0
"""The same with kubectl and an API server in between."""

Write = Callable[[str], None]


async def through(place: Where, namespace: str, options: Options, write: Write, say: Say) -> None:
    """Show what is wanted of the NATS that runs in a cluster."""
    forwarding = Forwarding(place, namespace)
    async with through_cluster.credentials(place, namespace) as folder, asyncio.TaskGroup() as group:
        keeping = group.create_task(forwarding.keep())
        settings = through_cluster.settings(folder, forwarding)
        try:
            await show(settings, options, write, say, within=FORWARD_SECONDS)
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
    async with connect(settings) as bus:
        await _connected(bus, settings, within)
        try:
            await Reader(bus, options.subject, _begin(options)).run(shown, is_patient=options.follow, say=say)
        except errors.NotFound:
            raise errors.NotFound(
                f"{settings.nats_url} has no stream of events for {settings.service}: does raybus run with this NATS? "
                "'python -m common.bus.provision streams' makes the stream"
            ) from None
    if shown.is_start_missing:
        raise errors.NotFound(
            f"no event with the id {options.replay!r} is stored"
            f"{'' if options.service is None else ' for this RayService'}; 'raybus events -o json' shows the ids"
        )
    if shown.count == 0:
        say("no events")


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
