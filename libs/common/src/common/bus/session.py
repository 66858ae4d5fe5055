"""One connection to NATS: requests, subscriptions, and callbacks when it is lost."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final, TypeVar, cast

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from common import errors
from common.bus.client import NatsClient

REQUEST_SECONDS: Final = 2.0
"""Timeout of a request in seconds.

A server that is dying never answers a request, so waiting longer gains nothing."""
CLOSE_SECONDS: Final = 1.0
CLOSED_CHECK_SECONDS: Final = 0.5

LOST: Final = "the connection to NATS was lost"
FULL_DISK: Final = "; its log shows whether its disk is full (it answers again after a restart)"
T = TypeVar("T")
Incoming = Msg
"""A message from the server: data, a heartbeat or a flow-control request."""
Handler = Callable[[Incoming], Awaitable[None]]


class Session:
    """One connection, from its start to its loss. No request or subscription outlives it."""

    def __init__(self, client: NatsClient, *, inbox: str) -> None:
        self.client = client
        self.inbox = inbox
        self.lost: str | None = None
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        """The requested subject (in lower case) and the future answer of each pending request.

        The key is the last token of the reply subject.
        """
        self._on_loss: set[Callable[[str], None]] = set()
        self._tokens = count()
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """Subscribe to the reply subjects of this session's requests."""

        async def take(message: Msg) -> None:
            _, answer = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
            if answer is not None and not answer.done():
                answer.set_result(message)

        await self._start_subscription(f"{self.inbox}.answer.*", take)

    async def request(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        read: Callable[[Msg], T],
    ) -> T:
        """Send a request and return the result of `read` for its answer.

        Raises:
            Unavailable: There was no answer within `REQUEST_SECONDS`, no responder, or no
                connection.
            Rejected: The payload is larger than the server accepts.
        """
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (subject.lower(), answer)
        try:
            if self.lost is not None:
                raise errors.Unavailable(self.lost)
            await self.client.publish(
                subject, payload, reply=f"{self.inbox}.answer.{token}", headers=headers
            )
            async with asyncio.timeout(REQUEST_SECONDS):
                message = await answer
        except TimeoutError:  # most often the server has a full disk
            hint = "" if subject.startswith("$") else FULL_DISK
            raise errors.Unavailable(
                f"NATS did not answer {subject} within {REQUEST_SECONDS:g} s{hint}"
            ) from None
        except nats_errors.MaxPayloadError as problem:
            raise errors.Rejected(
                f"{subject}: {len(payload)} bytes are more than the server takes"
            ) from problem
        except (nats_errors.Error, OSError) as problem:
            raise errors.Unavailable(
                f"NATS cannot be asked: {errors.text_of(problem)}"
            ) from problem
        finally:
            self._waiting.pop(token, None)
            if answer.done() and not answer.cancelled():
                # retrieved, so that asyncio does not log it after a cancellation
                answer.exception()
        if parse_status(message) == "503":
            raise errors.Unavailable(
                f"no responders for {subject}: the stream is missing or JetStream is off"
            )
        return read(message)

    async def publish(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None:
        """Send a message without waiting for an answer. Does nothing if the connection is lost.

        `reply` is the subject for an answer, if one is wanted.
        """
        if self.lost is not None:
            return
        try:
            await self.client.publish(subject, payload, reply=reply)
        except (nats_errors.Error, OSError) as problem:
            raise errors.Unavailable(
                f"NATS cannot be reached: {errors.text_of(problem)}"
            ) from problem

    async def listen(self, subject: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        """Subscribe a handler to a subject; return the function that ends the subscription."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                subscription = await self._start_subscription(subject, handler)
        except (nats_errors.Error, TimeoutError) as problem:
            raise errors.Unavailable(
                f"NATS cannot be listened to: {errors.text_of(problem)}"
            ) from problem

        async def end() -> None:
            if self.lost is None:
                with contextlib.suppress(nats_errors.Error, TimeoutError):
                    async with asyncio.timeout(REQUEST_SECONDS):
                        await subscription.unsubscribe()

        return end

    def when_lost(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Register a callback for the loss of the connection; return the function that removes it.

        The callback receives the reason. It is called at once if the connection is already lost.
        """
        if self.lost is not None:
            callback(self.lost)
        self._on_loss.add(callback)
        return lambda: self._on_loss.discard(callback)

    async def until_lost(self) -> str:
        """Wait for the loss of this connection; return the reason.

        The state of the nats-py client is checked too, because nats-py calls back only as the last
        step of closing. If an earlier step fails, such as flushing to a server that has just died,
        nats-py does not call back at all.
        """
        while self.lost is None and not self.client.is_closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSED_CHECK_SECONDS):
                    await self._ended.wait()
        self.end(LOST)
        return self.lost or LOST

    def end(self, reason: str) -> None:
        """Mark the connection as lost: fail all pending requests and call the callbacks."""
        if self.lost is not None:
            return
        self.lost = reason
        self._ended.set()
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(errors.Unavailable(reason))
        for callback in list(self._on_loss):
            callback(reason)

    async def is_answered(self) -> bool:
        """Return whether the server answers a ping within `REQUEST_SECONDS`.

        A server answers a ping even if its streams do not work.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            await self.client.send_ping(answer)
        except (nats_errors.Error, OSError, AssertionError):
            return False
        await asyncio.wait((answer,), timeout=REQUEST_SECONDS)
        return answer.done()

    async def close(self, reason: str) -> None:
        """Close the connection; `Bus` then opens a new one, to another server if there are several.

        This method calls `end` itself, because a connection with a failed handshake never reports
        that it is closed.
        """
        self.end(reason)
        with contextlib.suppress(nats_errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.client.close()

    def forbidden(self, subject: str, reason: str) -> None:
        """Fail the pending requests to `subject`, to which this NATS user may not publish."""
        for waiting_subject, answer in self._waiting.values():
            if waiting_subject == subject.lower() and not answer.done():
                answer.set_exception(errors.Unavailable(reason))

    async def _start_subscription(self, subject: str, handler: Handler) -> Subscription:
        # The signature of `subscribe` has an untyped Future.
        subscribe = cast(
            "Callable[..., Awaitable[Subscription]]",
            self.client.subscribe,  # pyright: ignore[reportUnknownMemberType]
        )
        return await subscribe(subject, cb=handler)


def parse_status(message: Msg) -> str:
    """Return the status code, such as 404, of an answer without data; empty for any other."""
    return cast("Mapping[str, str]", message.headers or {}).get("Status", "")
