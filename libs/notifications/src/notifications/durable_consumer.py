"""Reads a durable pull consumer of NATS one message at a time.

NATS gives a delivered message to another reader if it is not acknowledged in time, or if the reader
releases the message. The reader can extend the time. The reader needs only the rights of a named
subscriber: to get the state of its consumer, to read from it, and to acknowledge.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Final

import msgspec

from common import errors
from common.bus.consumer import NANOSECONDS, parse_position
from common.bus.nats import Bus
from common.bus.session import Incoming, Session, parse_status

EXPIRES_SECONDS: Final = 20
"""Seconds for which the server keeps a request open while there is no message."""
GRACE_SECONDS: Final = 5.0
MAX_RECEIVED: Final = 8
"""Maximum number of unread answers of the server.

Only one request is open at a time, so a correct server never sends as many.
"""
_REQUEST: Final = msgspec.json.encode({"batch": 1, "expires": EXPIRES_SECONDS * NANOSECONDS})
_EXPIRED: Final = "408"
_NO_RESPONDERS: Final = "503"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A received message that is not acknowledged yet."""

    subject: str
    payload: bytes
    reply: str
    """The subject to which acknowledgements are published."""
    count: int
    """Number of deliveries of this message, including this one."""
    stored_at: datetime


class _Info(msgspec.Struct, frozen=True):
    created: datetime


class Pull:
    """Reads a durable consumer over one NATS connection."""

    def __init__(self, bus: Bus, session: Session, consumer: str, created: datetime) -> None:
        self.created = created
        """When the consumer was created. An event that was stored earlier is not sent."""
        self.inbox = f"{session.inbox}.pull"
        self._received: asyncio.Queue[Incoming | str] = asyncio.Queue(MAX_RECEIVED)
        """Received messages; after the loss of the connection only the reason, as a text."""
        self._bus = bus
        self._session = session
        self._consumer = consumer

    async def receive(self, message: Incoming) -> None:
        """Queue an answer of the server; wait while `MAX_RECEIVED` answers are unread."""
        await self._received.put(message)

    def end(self, reason: str) -> None:
        """Make `wait_for_next` fail with this reason, because the connection is lost.

        Unread messages are discarded; NATS redelivers them over a new connection.
        """
        while not self._received.empty():
            self._received.get_nowait()
        self._received.put_nowait(reason)

    async def wait_for_next(self) -> Delivery:
        """Wait for the next message, without a time limit.

        Raises:
            Retryable: The connection or the consumer is gone.
        """
        while True:
            await self._session.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._consumer}", _REQUEST, reply=self.inbox
            )
            try:
                async with asyncio.timeout(EXPIRES_SECONDS + GRACE_SECONDS):
                    message = await self._received.get()
            except TimeoutError:
                raise errors.Unavailable(
                    f"NATS does not answer for consumer {self._consumer}"
                ) from None
            if isinstance(message, str):
                raise errors.Unavailable(message)
            status = parse_status(message)
            if not status:
                break
            if status == _NO_RESPONDERS:
                raise errors.NotFound(f"consumer {self._consumer} does not exist")
            if status != _EXPIRED:
                text = (message.headers or {}).get("Description", status)
                raise errors.Unavailable(
                    f"the server ended a request to consumer {self._consumer}: {text}"
                )
        count, _, _, nanoseconds, _ = parse_position(message.reply)
        at = datetime.fromtimestamp(int(nanoseconds) / NANOSECONDS, tz=UTC)
        subject, payload, reply = message.subject, message.data, message.reply
        return Delivery(
            subject=subject, payload=payload, reply=reply, count=int(count), stored_at=at
        )

    async def acknowledge(self, delivery: Delivery) -> None:
        """Acknowledge a message, so that it is not redelivered, and wait for the confirmation."""
        await self._bus.current.request(delivery.reply, b"+ACK", read=parse_status)

    async def extend(self, delivery: Delivery) -> None:
        """Restart the time after which the server delivers a message again."""
        await self._session.publish(delivery.reply, b"+WPI")

    async def release(self, delivery: Delivery) -> None:
        """Make the server redeliver a message at once, to any reader."""
        await self._session.publish(delivery.reply, b"-NAK")


@contextlib.asynccontextmanager
async def pull_messages(bus: Bus, stream: str, consumer: str) -> AsyncGenerator[Pull]:
    """Read `consumer` of `stream` over the current NATS connection; wait until a connection exists.

    The subscription ends with the context. Raises `NotFound` if the consumer does not exist.
    """
    session = await bus.session()
    name = f"{stream}.{consumer}"
    pull = Pull(bus, session, name, (await bus.api(f"CONSUMER.INFO.{name}", None, _Info)).created)

    end = await session.listen(pull.inbox, pull.receive)
    forget = session.when_lost(pull.end)
    try:
        yield pull
    finally:
        forget()
        await end()
