"""The steps of `raybus events`: connect to NATS, read the stream, then wait for new events.

If the connection breaks, the stream is read again from the last processed event on. A stream that
was created anew counts its sequences from 1, so it is read from its start; the receiver skips
repeated events by their id.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from common import errors
from common.bus.access import Keys
from common.bus.consumer import (
    StartPolicy,
    StreamSource,
    consume,
    from_sequence,
    from_time,
)
from common.bus.nats import Bus, StoredMessage, connect
from common.bus.server_errors import ServerError
from common.bus.subjects import EVENTS_STREAM
from common.settings import Settings
from raybus_cli.events import connection
from raybus_cli.events.connection import Forwarding
from raybus_cli.events.show import EventOptions, EventPrinter
from raybus_cli.kubeconfig import KubeAccess

RETRY_SECONDS: Final = 1.0

ReportProblem = Callable[[str], None]


class EventReceiver(Protocol):
    """Receives the events of a reader one after the other.

    Each method returns whether the reader should continue.
    """

    def receive(self, event: StoredMessage) -> bool:
        """Process the next event."""
        ...

    def finish_stored(self) -> bool:
        """Handle the end of the stored events. Called once in each read of the stream."""
        ...


class EventReader:
    """Reads the events that a subject filter selects, starting at `begin`."""

    def __init__(self, bus: Bus, subject: str, begin: StartPolicy) -> None:
        self._bus = bus
        self._subject = subject
        self._first = begin
        self._begin = begin
        self._created: str | None = None
        self._count = 0

    async def run(
        self, receiver: EventReceiver, *, is_patient: bool, report: ReportProblem
    ) -> None:
        """Pass events to `receiver` until one of its methods returns False.

        If `is_patient`, `Unavailable` and `NotFound` errors that follow a successful read are
        passed to `report` and the read is repeated. Otherwise these errors are raised.
        """
        while True:
            try:
                why = await self._read(receiver)
            except (errors.Unavailable, errors.NotFound) as problem:
                if self._created is None or not is_patient:
                    raise
                why = str(problem)
            if why is None:
                return
            report(f"{why}; going on after the last event in {RETRY_SECONDS:g} s")
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, receiver: EventReceiver) -> str | None:
        """Read until a method of `receiver` returns False, or until the read breaks.

        Returns None in the first case, and the reason in the second.
        """
        info = await self._bus.stream(EVENTS_STREAM)
        if self._created not in {None, info.created}:
            self._begin = self._first
        self._created = info.created
        self._count += 1
        name = f"{self._bus.current.inbox.rpartition('.')[2]}-{self._count}"
        source = StreamSource(
            stream=EVENTS_STREAM, filter=self._subject, name=name, begin=self._begin
        )
        handing = EventHandOver(receiver)
        try:
            async with consume(
                self._bus, source, take=handing.take, read=handing.finish_stored
            ) as reading:
                return await handing.run(reading)
        finally:
            if handing.last is not None:
                self._begin = from_sequence(handing.last + 1)


class BreakableConnection(Protocol):
    """A read of the stream that ends if the connection is lost or a message is missed."""

    async def until_broken(self) -> str:
        """Wait until a message may have been missed; return the reason."""
        ...


class EventHandOver:
    """Passes the events of one read to the receiver as they arrive, so that none is buffered."""

    def __init__(self, receiver: EventReceiver) -> None:
        self.last: int | None = None
        """Sequence of the last event that the receiver has processed."""
        self._receiver = receiver
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, reading: BreakableConnection) -> str | None:
        """Wait until the receiver wants no more events, or until the read breaks.

        Returns None in the first case, and the reason in the second. Passes on errors of the
        receiver.
        """
        async with asyncio.TaskGroup() as group:
            broken = group.create_task(reading.until_broken())
            await asyncio.wait((self._ended, broken), return_when=asyncio.FIRST_COMPLETED)
            broken.cancel()
        if not self._ended.done():
            return broken.result()
        return self._ended.result()

    def take(self, event: StoredMessage) -> None:
        if self._continue(partial(self._receiver.receive, event)):
            self.last = event.sequence

    def finish_stored(self) -> None:
        self._continue(self._receiver.finish_stored)

    def _continue(self, step: Callable[[], bool]) -> bool:
        """Call `step`, a method of the receiver, and return whether it ran without an error.

        If `step` returns False or raises an error, the read ends and no later step is called.
        """
        if self._ended.done():
            return False
        try:
            wants_more = step()
        except Exception as problem:  # noqa: BLE001  (`run` raises it)
            self._ended.set_exception(problem)
            return False
        if not wants_more:
            self._ended.set_result(None)
        return True


CONNECT_SECONDS: Final = 5.0
"""Connect timeout in seconds; enough for a server that is reachable and not overloaded."""
FORWARD_SECONDS: Final = 15.0
"""Connect timeout in seconds, for a connection through kubectl and an API server."""

WriteLine = Callable[[str], None]


class NatsAccess(msgspec.Struct, frozen=True):
    """Settings and credentials of a connection to NATS."""

    settings: Settings
    within: float = CONNECT_SECONDS
    """Timeout of connecting to NATS, in seconds."""
    keys: Keys | None = None
    """Credentials of the connection, if the settings name no seed file."""


ReadEvents = Callable[[NatsAccess], Awaitable[None]]
"""A function that uses a connection to NATS."""


async def run_through_forward(access: KubeAccess, namespace: str, read: ReadEvents) -> None:
    """Run `read` with a connection to the NATS of a cluster, through `kubectl port-forward`.

    An `Unavailable` error includes the error output of kubectl.
    """
    forwarding = Forwarding(access, namespace)
    async with (
        connection.register_key(access, namespace, forwarding) as (settings, keys),
        asyncio.TaskGroup() as group,
    ):
        keeping = group.create_task(forwarding.keep())
        try:
            await read(NatsAccess(settings, FORWARD_SECONDS, keys))
        except errors.Unavailable as problem:
            raise errors.Unavailable(
                f"{problem}; {forwarding.problem}" if forwarding.problem else str(problem)
            ) from None
        keeping.cancel()


async def show(
    way: NatsAccess, options: EventOptions, write: WriteLine, report: ReportProblem
) -> int:
    """Print the selected events and return their number.

    Raises `NotFound` if there is no stream, or if the event of `--replay` is not stored.
    """
    shown = EventPrinter(options, write)
    async with connect_to_bus(way) as reach:
        await reach.read(
            options.subject, _begin(options), shown, is_patient=options.follow, report=report
        )
    if shown.is_start_missing:
        raise errors.NotFound(
            f"no event with the id {options.replay!r} is stored"
            f"{'' if options.selected is None else ' for this object'}; 'raybus events -o "
            "json' shows the ids"
        )
    return shown.count


class StoredEvents:
    """A connection to a NATS server that has answered."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings

    async def read(
        self,
        subject: str,
        begin: StartPolicy,
        receiver: EventReceiver,
        *,
        is_patient: bool,
        report: ReportProblem,
    ) -> None:
        """Pass events whose subject matches `subject` to `receiver` until one method returns False.

        If `is_patient`, errors that follow a successful read are passed to `report` and the read is
        repeated. Raises `NotFound` if there is no stream.
        """
        try:
            await EventReader(self._bus, subject, begin).run(
                receiver, is_patient=is_patient, report=report
            )
        except errors.NotFound:
            raise errors.NotFound(
                f"{self._settings.nats_url} has no stream of events for "
                f"{self._settings.service}: does raybus run with "
                "this NATS? 'python -m nats_admin.provision streams' makes the stream"
            ) from None


@contextlib.asynccontextmanager
async def connect_to_bus(way: NatsAccess) -> AsyncGenerator[StoredEvents]:
    """Connect to NATS for an `async with` block.

    Raises `Unavailable` if NATS does not answer within `way.within` seconds, `Forbidden` if it
    rejects the user.
    """
    async with connect(way.settings, way.keys) as bus:
        await _follow_connection(bus, way)
        yield StoredEvents(bus, way.settings)


async def _follow_connection(bus: Bus, way: NatsAccess) -> None:
    settings = way.settings
    try:
        async with asyncio.timeout(way.within):
            await bus.session()
    except TimeoutError:
        problem = bus.problem or f"NATS at {settings.nats_url} does not answer"
        if bus.failure is ServerError.UNKNOWN_KEY and not settings.nats_register_key:
            raise errors.Forbidden(
                f"NATS at {settings.nats_url} does not know the user of {settings.nats_seed_file}; "
                "name the folder of this server's credentials with --nats-credentials"
            ) from None
        raise errors.Unavailable(problem) from None


def _begin(options: EventOptions) -> StartPolicy:
    return from_sequence(1) if options.since is None else from_time(options.since)
