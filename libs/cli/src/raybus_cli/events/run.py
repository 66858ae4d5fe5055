"""The steps of `raybus events`: connect to NATS, read the stream in order (its content, then new events), report missing events.

A broken read is repeated behind the last consumed event. A stream that was created anew counts from 1
again, so it is read from its start; events that come twice are skipped by their id.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Protocol

import msgspec

from common import errors
from common.bus.access import Keys
from common.bus.consumer import Begin, Reading, Source, consume, from_sequence, from_time
from common.bus.nats import Bus, Stored, connect
from common.bus.subjects import EVENTS_STREAM
from common.settings import Settings
from raybus_cli.events import connection
from raybus_cli.events.connection import Forwarding
from raybus_cli.events.show import Options, Show
from raybus_cli.kubeconfig import Where

RETRY_SECONDS: Final = 1.0

Report = Callable[[str], None]


class Taker(Protocol):
    """Consumes the events one after the other; each method returns whether more are wanted."""

    def take(self, event: Stored) -> bool:
        """Take the next event."""
        ...

    def caught_up(self) -> bool:
        """Note that there are no more for now; called once after each begin."""
        ...


_Items = asyncio.Queue[Stored | str | None]
"""An event; None for "no more for now"; or the reason of a broken read."""


class Reader:
    """One pass over the events of a filter."""

    def __init__(self, bus: Bus, subject: str, begin: Begin) -> None:
        self._bus = bus
        self._subject = subject
        self._first = begin
        self._begin = begin
        self._created: str | None = None
        self._count = 0

    async def run(self, taker: Taker, *, is_patient: bool, report: Report) -> None:
        """Hand events on until no more are wanted; a patient reader waits for NATS and the stream to come back."""
        while True:
            try:
                why = await self._read(taker)
            except (errors.Unavailable, errors.NotFound) as problem:
                if self._created is None or not is_patient:
                    raise
                why = str(problem)
            if why is None:
                return
            report(f"{why}; going on after the last event in {RETRY_SECONDS:g} s")
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, taker: Taker) -> str | None:
        """Read until no more are wanted (None), or until the reading breaks (the reason)."""
        info = await self._bus.stream(EVENTS_STREAM)
        if self._created not in {None, info.created}:
            self._begin = self._first
        self._created = info.created
        self._count += 1
        name = f"{self._bus.current.inbox.rpartition('.')[2]}-{self._count}"
        source = Source(stream=EVENTS_STREAM, filter=self._subject, name=name, begin=self._begin)
        items: _Items = asyncio.Queue()
        async with consume(
            self._bus, source, take=items.put_nowait, read=lambda: items.put_nowait(None)
        ) as reading:
            return await self._consume(reading, items, taker)

    async def _consume(self, reading: Reading, items: _Items, taker: Taker) -> str | None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_put_when_broken(reading, items))
            why = await self._hand_on(items, taker)
            watching.cancel()
        return why

    async def _hand_on(self, items: _Items, taker: Taker) -> str | None:
        while True:
            match await items.get():
                case Stored() as event:
                    wants_more = taker.take(event)
                    self._begin = from_sequence(event.sequence + 1)
                case str() as why:
                    return why
                case None:
                    wants_more = taker.caught_up()
            if not wants_more:
                return None


async def _put_when_broken(reading: Reading, items: _Items) -> None:
    items.put_nowait(await reading.until_broken())


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
    async with (
        connection.key(place, namespace, forwarding) as (settings, keys),
        asyncio.TaskGroup() as group,
    ):
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
        await reach.read(
            options.subject, _begin(options), shown, is_patient=options.follow, report=report
        )
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

    async def read(
        self, subject: str, begin: Begin, taker: Taker, *, is_patient: bool, report: Report
    ) -> None:
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
