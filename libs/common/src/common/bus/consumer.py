"""Read a stream in order: first the stored messages, then new ones.

A reading begins with the last message of every subject, or at a position in the stream. It uses a
push consumer, which numbers its deliveries. A missing number, a missing heartbeat or a lost
connection breaks the reading, which is not repaired: the reader starts a new one.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from typing import Final, cast

import msgspec

from common.bus.nats import Bus, StoredMessage
from common.bus.session import Incoming, Session
from common.clock import Silence

HEARTBEAT_SECONDS: Final = 5
MAX_SILENCE_SECONDS: Final = 12.0
"""Seconds without any message after which the server, or its consumer, counts as gone."""
LISTENING_SECONDS: Final = 6.0
"""Maximum seconds between two checks whether the server is silent.

Messages that arrive while this process is stopped wait unread in its socket. A longer interval
between two checks therefore counts as only this many seconds of silence.
"""
FORGOTTEN_SECONDS: Final = 10
"""Seconds after which the server deletes a consumer that nobody is subscribed to.

No NATS user needs the right to delete consumers, since the server deletes unused ones."""
NANOSECONDS: Final = 1_000_000_000

TakeMessage = Callable[[StoredMessage], None]
"""Function that is called with each message.

Any exception ends the reading of the stream; `ReadingInterrupted` is for expected reasons.
"""
StartPolicy = Mapping[str, object]
"""Start position of a consumer, as fields of the JetStream API."""
LAST_OF_EACH: Final[StartPolicy] = {"deliver_policy": "last_per_subject"}


def from_sequence(first: int) -> StartPolicy:
    """Return the policy to start at stream sequence `first`, or at the next message after it."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, first)}


def from_time(moment: datetime) -> StartPolicy:
    """Return the policy to start at the first message that was stored at `moment` or later."""
    return {"deliver_policy": "by_start_time", "opt_start_time": moment.isoformat()}


class ReadingInterrupted(Exception):
    """Raised when the messages read so far no longer count; the text has the reason."""


class StreamSource(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a stream that a consumer reads. `name` must be new for each consumer."""

    stream: str
    filter: str
    name: str
    headers_only: bool = False
    begin: StartPolicy = msgspec.field(default_factory=lambda: LAST_OF_EACH)


class _Delivered(msgspec.Struct, frozen=True):
    consumer_seq: int = 0


class _Created(msgspec.Struct, frozen=True):
    num_pending: int = 0
    delivered: _Delivered = _Delivered()


class RunningConsumer:
    """One reading of a stream, which ends when a message may have been missed.

    `take` gets each message. `read` is called when all messages stored before the start are taken.
    """

    def __init__(self, session: Session, take: TakeMessage, read: Callable[[], None]) -> None:
        self._session = session
        self._take = take
        self._read = read
        self._is_read = False
        self._last = 0
        self._silence = Silence(
            longest_gap=LISTENING_SECONDS, clock=asyncio.get_running_loop().time
        )
        self._broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def until_broken(self) -> str:
        """Wait until a message may have been missed; return the reason."""
        while not self._broken.done():
            remaining = MAX_SILENCE_SECONDS - self._silence.seconds()
            if remaining <= 0:
                self.abort(f"the server was silent for {MAX_SILENCE_SECONDS:g} s")
            await asyncio.wait((self._broken,), timeout=min(remaining, LISTENING_SECONDS))
        return self._broken.result()

    def abort(self, reason: str) -> None:
        """End the reading as broken; `until_broken` then returns `reason`."""
        if not self._broken.done():
            self._broken.set_result(reason)

    def finish(self) -> None:
        """Call `read` if it was not called yet: all messages stored before the start were taken."""
        if not self._is_read and not self._broken.done():
            self._is_read = True
            self._read()

    async def receive(self, message: Incoming) -> None:
        """Handle a delivery, a heartbeat or a flow-control request of the server."""
        self._silence.end()
        if self._broken.done():
            return
        headers = cast("Mapping[str, str]", message.headers or {})
        if (status := headers.get("Status")) is not None:
            if status != "100":
                self.abort(f"the server ended the consumer: {headers.get('Description', status)}")
            elif question := message.reply or headers.get("Nats-Consumer-Stalled"):
                await self._session.publish(question)
            elif int(headers.get("Nats-Last-Consumer", self._last)) != self._last:
                self.abort(f"deliveries up to {headers['Nats-Last-Consumer']} are missing")
            return
        _, stream_seq, consumer_seq, _, pending = parse_position(message.reply)
        if int(consumer_seq) != self._last + 1:
            self.abort(f"delivery {self._last + 1} is missing")
            return
        self._last += 1
        try:
            self._take(StoredMessage(message.subject, int(stream_seq), headers, message.data))
        except Exception as problem:  # noqa: BLE001  (the reader's state is unknown now)
            is_meant = isinstance(problem, ReadingInterrupted)
            self.abort(
                str(problem) if is_meant else f"{message.subject} could not be taken: {problem!r}"
            )
        if pending == "0":
            self.finish()


@contextlib.asynccontextmanager
async def consume(
    bus: Bus, source: StreamSource, *, take: TakeMessage, read: Callable[[], None]
) -> AsyncGenerator[RunningConsumer]:
    """Read a part of a stream for the duration of the block; `take` gets each message.

    `read` is called once, when all messages that the stream held at the start have been taken.
    """
    session = await bus.session()
    reading = RunningConsumer(session, take, read)
    inbox = f"{session.inbox}.deliver.{source.name}"
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(reading.abort, "closed")
        stack.callback(session.when_lost(reading.abort))
        stack.push_async_callback(await session.listen(inbox, reading.receive))
        config = {
            "name": source.name,
            "deliver_subject": inbox,
            **source.begin,
            "filter_subject": source.filter,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_SECONDS * NANOSECONDS,
            "inactive_threshold": FORGOTTEN_SECONDS * NANOSECONDS,
            "headers_only": source.headers_only,
            "mem_storage": True,
            "num_replicas": 1,
        }
        request = {"stream_name": source.stream, "action": "create", "config": config}
        # The filter is part of the subject, so that permissions can restrict it.
        subject = f"CONSUMER.CREATE.{source.stream}.{source.name}.{source.filter}"
        created = await bus.api(subject, request, _Created)
        # the stream holds no message to read
        if created.num_pending + created.delivered.consumer_seq == 0:
            reading.finish()
        yield reading


def parse_position(reply: str) -> list[str]:
    """Return the position of a delivery, from the tokens of its reply subject.

    The list is: delivery count, stream sequence, consumer sequence, time and number of pending
    messages. The form of a reply subject is
    `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<count>`, followed by `.<stream
    sequence>.<consumer sequence>.<time>.<pending>[.<random>]`.
    """
    tokens = reply.split(".")
    first = 4 if len(tokens) == 9 else 6
    return tokens[first : first + 5]
