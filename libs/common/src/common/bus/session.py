"""One connection to NATS, from its start to its loss: requests, subscriptions, and callbacks at its end."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final, TypeVar, cast

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from common import errors

REQUEST_SECONDS: Final = 2.0
"""A request that a dying server swallowed is never answered, so waiting longer gains nothing."""
CLOSE_SECONDS: Final = 1.0
CLOSED_CHECK_SECONDS: Final = 0.5

LOST: Final = "the connection to NATS was lost"
FULL_DISK: Final = "; its log shows whether its disk is full (it answers again after a restart)"
T = TypeVar("T")
Incoming = Msg
"""What a subscription receives: a message, a heartbeat or a question of the server."""
Handler = Callable[[Incoming], Awaitable[None]]


class Session:
    """One connection from its start to its loss; a new one never inherits anything."""

    def __init__(self, client: Client, *, inbox: str) -> None:
        self.client = client
        self.inbox = inbox
        self.lost: str | None = None
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        """For each request that waits, by the last token of its inbox: the subject in lower case, and where the answer goes."""
        self._on_loss: set[Callable[[str], None]] = set()
        self._tokens = count()
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """Listen for answers."""

        async def take(message: Msg) -> None:
            _, answer = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
            if answer is not None and not answer.done():
                answer.set_result(message)

        await self._subscribe(f"{self.inbox}.answer.*", take)

    async def request(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        read: Callable[[Msg], T],
    ) -> T:
        """Send a request and return what `read` makes of its answer; `Unavailable` when there is none, or the connection ends."""
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
        except TimeoutError:  # a publish that is never answered: most often the disk
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
                answer.exception()  # retrieved, so that asyncio does not report it when we were cancelled meanwhile
        if status_of(message) == "503":
            raise errors.Unavailable(
                f"no responders for {subject}: the stream is missing or JetStream is off"
            )
        return read(message)

    async def publish(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None:
        """Send a message that is not answered here, such as the answer to a flow-control question."""
        if self.lost is not None:
            return
        try:
            await self.client.publish(subject, payload, reply=reply)
        except (nats_errors.Error, OSError) as problem:
            raise errors.Unavailable(
                f"NATS cannot be reached: {errors.text_of(problem)}"
            ) from problem

    async def listen(self, subject: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        """Subscribe; return how to end that."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                subscription = await self._subscribe(subject, handler)
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
        """Call back with the reason when the connection ends; return how to take that back."""
        if self.lost is not None:
            callback(self.lost)
        self._on_loss.add(callback)
        return lambda: self._on_loss.discard(callback)

    async def until_lost(self) -> str:
        """Wait for the end of this connection; return why.

        The library calls back last of all when it closes, and not at all when a step before that fails, as flushing to a server
        that has just died does. So its state is checked as well.
        """
        while self.lost is None and not self.client.is_closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSED_CHECK_SECONDS):
                    await self._ended.wait()
        self.end(LOST)
        return self.lost or LOST

    def end(self, why: str) -> None:
        """End all that depends on this connection, with the reason."""
        if self.lost is not None:
            return
        self.lost = why
        self._ended.set()
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(errors.Unavailable(why))
        for callback in list(self._on_loss):
            callback(why)

    async def is_answered(self) -> bool:
        """Return whether the server answers a ping in the time that a request is given, whatever its streams do.

        nats-py's own `flush` would do, but a ping that has timed out breaks its connection when the answer comes after all.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            await self.client._send_ping(answer)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]  (see above)
        except (nats_errors.Error, OSError, AssertionError):
            return False
        await asyncio.wait((answer,), timeout=REQUEST_SECONDS)
        return answer.done()

    async def close(self, why: str) -> None:
        """Close the connection, so that another one is made, to another server if there are several.

        A connection with a failed handshake never reports that it is closed.
        """
        self.end(why)
        with contextlib.suppress(nats_errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.client.close()

    def forbidden(self, subject: str, why: str) -> None:
        """Fail the requests that wait for an answer under a subject that the server let nothing through."""
        for asked, answer in self._waiting.values():
            if asked == subject.lower() and not answer.done():
                answer.set_exception(errors.Unavailable(why))

    async def _subscribe(self, subject: str, handler: Handler) -> Subscription:
        subscribe = cast("Callable[..., Awaitable[Subscription]]", self.client.subscribe)  # pyright: ignore[reportUnknownMemberType]  (an untyped Future in its signature)
        return await subscribe(subject, cb=handler)


def status_of(message: Msg) -> str:
    """Return the code of an answer that is a status and no message, such as 404."""
    return cast("Mapping[str, str]", message.headers or {}).get("Status", "")
