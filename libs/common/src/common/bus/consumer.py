"""An ordered view of a stream: the last message of every subject, or all since a place in it, and then what follows.

A server-side push consumer numbers its deliveries; a number that is missing, a heartbeat that does not come, or a lost
connection breaks the reading, and the reader starts over with a new one. Nothing is ever repaired in place.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from common.bus.nats import Bus, Stored
from common.bus.session import Incoming, Session

HEARTBEAT_SECONDS: Final = 5
SILENCE_SECONDS: Final = 12.0
"""After so long without a message, the server or its consumer is gone."""
FORGOTTEN_SECONDS: Final = 10
"""The server drops a consumer without a subscriber after this long; so no user needs the right to delete one."""
NANOSECONDS: Final = 1_000_000_000

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

    @property
    def create_subject(self) -> str:
        """Return where the consumer is asked for; it holds the filter, so permissions can restrict it."""
        return f"CONSUMER.CREATE.{self.stream}.{self.name}.{self.filter}"

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
    """Some consumers that stand and fall together."""

    def __init__(self, take: Take, read: Callable[[], None]) -> None:
        self._take = take
        self._read = read
        self._unread = 0
        self._consumers: list[_Consumer] = []
        self._broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def until_broken(self) -> str:
        """Wait until something may have been missed; return why."""
        loop = asyncio.get_running_loop()
        for consumer in self._consumers:
            consumer.received_at = loop.time()
        while not self._broken.done():
            silent_at = min(consumer.received_at for consumer in self._consumers) + SILENCE_SECONDS
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

    @property
    def is_broken(self) -> bool:
        """Return whether what was read no longer counts, and no delivery is taken any more."""
        return self._broken.done()

    def take(self, message: Stored) -> None:
        """Hand a message on; a reader that fails must start over."""
        try:
            self._take(message)
        except Exception as problem:  # noqa: BLE001  (whatever it was, the reader's state is now unknown)
            self.abort(f"{message.subject} could not be taken: {problem!r}")

    def one_is_read(self) -> None:
        """Count a consumer that has delivered what there was."""
        self._unread -= 1
        if self._unread == 0:
            self._read()

    def add(self, consumers: "Sequence[_Consumer]") -> None:
        """Take the consumers in, before any of them delivers."""
        self._consumers = list(consumers)
        self._unread = len(consumers)
        if not consumers:
            self._read()


class _Consumer:
    """One consumer at the server."""

    def __init__(self, reading: Reading, session: Session) -> None:
        self._reading = reading
        self._session = session
        self._is_read = False
        self._last = 0
        self.received_at = asyncio.get_running_loop().time()

    def created(self, answer: _Created) -> None:
        """Take the server's count of how much there is to read."""
        if answer.num_pending + answer.delivered.consumer_seq == 0:
            self._finish()

    async def receive(self, message: Incoming) -> None:
        """Take a delivery, a heartbeat or a flow-control question."""
        self.received_at = asyncio.get_running_loop().time()
        if self._reading.is_broken:
            return
        headers = cast("Mapping[str, str]", message.headers or {})
        if "Status" in headers:
            await self._status(message, headers)
            return
        stream_seq, consumer_seq, pending = position_of(message.reply)
        if consumer_seq != self._last + 1:
            self._reading.abort(f"delivery {self._last + 1} is missing")
            return
        self._last = consumer_seq
        self._reading.take(Stored(message.subject, stream_seq, headers, message.data))
        if pending == 0:
            self._finish()

    async def _status(self, message: Incoming, headers: Mapping[str, str]) -> None:
        if headers["Status"] != "100":
            self._reading.abort(f"the server ended the consumer: {headers.get('Description', headers['Status'])}")
        elif message.reply:
            await self._session.publish(message.reply)
        elif stalled := headers.get("Nats-Consumer-Stalled"):
            await self._session.publish(stalled)
        elif int(headers.get("Nats-Last-Consumer", self._last)) != self._last:
            self._reading.abort(f"deliveries up to {headers['Nats-Last-Consumer']} are missing")

    def _finish(self) -> None:
        if not self._is_read:
            self._is_read = True
            self._reading.one_is_read()


@contextlib.asynccontextmanager
async def consume(
    bus: Bus, sources: Sequence[Source], *, take: Take, read: Callable[[], None]
) -> AsyncGenerator[Reading]:
    """Follow parts of a stream as long as the block lasts; `read` is called once when all earlier messages have been taken."""
    session = await bus.session()
    reading = Reading(take, read)
    consumers = [_Consumer(reading, session) for _ in sources]
    reading.add(consumers)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(reading.abort, "closed")
        stack.callback(session.when_lost(reading.abort))
        for consumer, source in zip(consumers, sources, strict=True):
            inbox = f"{session.inbox}.deliver.{source.name}"
            stack.push_async_callback(await session.listen(inbox, consumer.receive))
            consumer.created(await bus.api(source.create_subject, source.request(inbox), _Created))
        yield reading


def position_of(reply: str) -> tuple[int, int, int]:
    """Return stream sequence, consumer sequence and pending count.

    The form is `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<count>.<stream>.<consumer>.<time>.<pending>`.
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    return int(tokens[first]), int(tokens[first + 1]), int(tokens[first + 3])
