"""The two ways to read a stream: an ordered view of it, and a durable consumer message by message.

A view holds the last message of every subject, or all since a place in the stream, and then what follows. A server-side push
consumer numbers its deliveries; a number that is missing, a heartbeat that does not come, or a lost
connection breaks the reading, and the reader starts over with a new one. Nothing is ever repaired in place.

A message of a durable pull consumer is the reader's until it is acknowledged, or not extended in time. That needs no right but
those of a named subscriber: to ask about its consumer, to read from it, and to acknowledge.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec

from common import errors
from common.bus.nats import Bus, Stored
from common.bus.session import Incoming, Session, status_of

HEARTBEAT_SECONDS: Final = 5
SILENCE_SECONDS: Final = 12.0
"""After so long without a message, the server or its consumer is gone."""
FORGOTTEN_SECONDS: Final = 10
"""The server drops a consumer without a subscriber after this long; so no user needs the right to delete one."""
EXPIRES_SECONDS: Final = 20
"""How long the server holds a request that it has no message for."""
GRACE_SECONDS: Final = 5.0
NANOSECONDS: Final = 1_000_000_000
_REQUEST: Final = msgspec.json.encode({"batch": 1, "expires": EXPIRES_SECONDS * NANOSECONDS})
_EXPIRED: Final = "408"
_NO_RESPONDERS: Final = "503"

Take = Callable[[Stored], None]
"""Takes one message; what it raises breaks the reading."""
Begin = Mapping[str, object]
"""Where in a stream a consumer begins, as the JetStream API takes it."""
LAST_OF_EACH: Final[Begin] = {"deliver_policy": "last_per_subject"}


def from_sequence(first: int) -> Begin:
    """Begin with the message of a sequence, or the next that there is."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, first)}


def from_time(moment: datetime) -> Begin:
    """Begin with the first message that was stored at a moment or later."""
    return {"deliver_policy": "by_start_time", "opt_start_time": moment.isoformat()}


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a stream that a consumer reads, and its begin; the name must be new each time."""

    stream: str
    filter: str
    name: str
    headers_only: bool = False
    begin: Begin = msgspec.field(default_factory=lambda: LAST_OF_EACH)

    def request(self, inbox: str) -> dict[str, Any]:
        """Return the request that creates the consumer."""
        return {
            "stream_name": self.stream,
            "action": "create",
            "config": {
                "name": self.name,
                "deliver_subject": inbox,
                **self.begin,
                "filter_subject": self.filter,
                "ack_policy": "none",
                "max_deliver": 1,
                "replay_policy": "instant",
                "flow_control": True,
                "idle_heartbeat": HEARTBEAT_SECONDS * NANOSECONDS,
                "inactive_threshold": FORGOTTEN_SECONDS * NANOSECONDS,
                "headers_only": self.headers_only,
                "mem_storage": True,
                "num_replicas": 1,
            },
        }


class _Delivered(msgspec.Struct, frozen=True):
    consumer_seq: int = 0


class _Created(msgspec.Struct, frozen=True):
    num_pending: int = 0
    delivered: _Delivered = _Delivered()


class Reading:
    """A consumer at the server, and what it has delivered."""

    def __init__(self, session: Session, take: Take, read: Callable[[], None]) -> None:
        self._session = session
        self._take = take
        self._read = read
        self._is_read = False
        self._last = 0
        loop = asyncio.get_running_loop()
        self._received_at = loop.time()
        self._broken: asyncio.Future[str] = loop.create_future()

    async def until_broken(self) -> str:
        """Wait until something may have been missed; return why."""
        loop = asyncio.get_running_loop()
        self._received_at = loop.time()
        while not self._broken.done():
            silent_at = self._received_at + SILENCE_SECONDS
            if silent_at <= loop.time():
                self.abort(f"the server was silent for {SILENCE_SECONDS:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(silent_at):
                    await asyncio.shield(self._broken)
        return self._broken.result()

    def abort(self, why: str) -> None:
        """Break the reading: what was read no longer counts."""
        if not self._broken.done():
            self._broken.set_result(why)

    def finish(self) -> None:
        """Report once that all earlier messages have been taken."""
        if not self._is_read:
            self._is_read = True
            self._read()

    async def receive(self, message: Incoming) -> None:
        """Take a delivery, a heartbeat or a flow-control question."""
        self._received_at = asyncio.get_running_loop().time()
        if self._broken.done():
            return
        headers = cast("Mapping[str, str]", message.headers or {})
        if "Status" in headers:
            await self._answer(message, headers)
            return
        _, stream_seq, consumer_seq, _, pending = _position(message.reply)
        if int(consumer_seq) != self._last + 1:
            self.abort(f"delivery {self._last + 1} is missing")
            return
        self._last += 1
        try:
            self._take(Stored(message.subject, int(stream_seq), headers, message.data))
        except Exception as problem:  # noqa: BLE001  (whatever it was, the reader's state is now unknown: it must start over)
            self.abort(f"{message.subject} could not be taken: {problem!r}")
        if pending == "0":
            self.finish()

    async def _answer(self, message: Incoming, headers: Mapping[str, str]) -> None:
        if headers["Status"] != "100":
            self.abort(f"the server ended the consumer: {headers.get('Description', headers['Status'])}")
        elif question := message.reply or headers.get("Nats-Consumer-Stalled"):
            await self._session.publish(question)
        elif int(headers.get("Nats-Last-Consumer", self._last)) != self._last:
            self.abort(f"deliveries up to {headers['Nats-Last-Consumer']} are missing")


@contextlib.asynccontextmanager
async def consume(bus: Bus, source: Source, *, take: Take, read: Callable[[], None]) -> AsyncGenerator[Reading]:
    """Follow a part of a stream as long as the block lasts; `read` is called once when all earlier messages have been taken."""
    session = await bus.session()
    reading = Reading(session, take, read)
    inbox = f"{session.inbox}.deliver.{source.name}"
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(reading.abort, "closed")
        stack.callback(session.when_lost(reading.abort))
        stack.push_async_callback(await session.listen(inbox, reading.receive))
        # The subject holds the filter, so permissions can restrict it.
        subject = f"CONSUMER.CREATE.{source.stream}.{source.name}.{source.filter}"
        created = await bus.api(subject, source.request(inbox), _Created)
        if created.num_pending + created.delivered.consumer_seq == 0:  # there is nothing to read
            reading.finish()
        yield reading


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waits for its acknowledgement."""

    subject: str
    payload: bytes
    reply: str
    """The subject of acknowledgements."""
    count: int
    """How often it was delivered, this time included."""
    stored_at: datetime


class _Info(msgspec.Struct, frozen=True):
    created: datetime


class Pull:
    """A durable consumer over one connection."""

    def __init__(self, bus: Bus, session: Session, consumer: str, created: datetime) -> None:
        self.created = created
        """When the consumer was made."""
        self.inbox = f"{session.inbox}.pull"
        self.received: asyncio.Queue[Incoming | str] = asyncio.Queue()
        """Messages, and the reason at the end of the connection."""
        self._bus = bus
        self._session = session
        self._consumer = consumer

    async def next(self) -> Delivery:
        """Wait for a message, however long; raise `Retryable` when the connection or the consumer is gone."""
        while True:
            await self._session.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self._consumer}", _REQUEST, reply=self.inbox)
            try:
                async with asyncio.timeout(EXPIRES_SECONDS + GRACE_SECONDS):
                    message = await self.received.get()
            except TimeoutError:
                raise errors.Unavailable(f"NATS does not answer for consumer {self._consumer}") from None
            if isinstance(message, str):
                raise errors.Unavailable(message)
            status = status_of(message)
            if not status:
                break
            if status == _NO_RESPONDERS:
                raise errors.NotFound(f"consumer {self._consumer} does not exist")
            if status != _EXPIRED:
                text = (message.headers or {}).get("Description", status)
                raise errors.Unavailable(f"the server ended a request to consumer {self._consumer}: {text}")
        count, _, _, nanoseconds, _ = _position(message.reply)
        at = datetime.fromtimestamp(int(nanoseconds) / NANOSECONDS, tz=UTC)
        subject, payload, reply = message.subject, message.data, message.reply
        return Delivery(subject=subject, payload=payload, reply=reply, count=int(count), stored_at=at)

    async def acknowledge(self, delivery: Delivery) -> None:
        """Have the server record that a message is done, and wait until it has; it does not come again."""
        await self._bus.current.request(delivery.reply, b"+ACK")

    async def extend(self, delivery: Delivery) -> None:
        """Begin the time anew after which the server delivers a message again."""
        await self._session.publish(delivery.reply, b"+WPI")

    async def release(self, delivery: Delivery) -> None:
        """Have the server deliver a message again at once, to the next reader."""
        await self._session.publish(delivery.reply, b"-NAK")


@contextlib.asynccontextmanager
async def pulling(bus: Bus, stream: str, consumer: str) -> AsyncGenerator[Pull]:
    """Read a consumer over the connection that stands, or the next one; raise `NotFound` if it does not exist."""
    session = await bus.session()
    name = f"{stream}.{consumer}"
    pull = Pull(bus, session, name, (await bus.api(f"CONSUMER.INFO.{name}", None, _Info)).created)

    async def receive(message: Incoming) -> None:
        pull.received.put_nowait(message)

    end = await session.listen(pull.inbox, receive)
    forget = session.when_lost(pull.received.put_nowait)
    try:
        yield pull
    finally:
        forget()
        await end()


def _position(reply: str) -> list[str]:
    """Return delivery count, stream sequence, consumer sequence, time and pending count.

    The form is `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<count>.<stream seq>.<consumer seq>.<time>.<pending>[.<random>]`.
    """
    tokens = reply.split(".")
    first = 4 if len(tokens) == 9 else 6
    return tokens[first : first + 5]
