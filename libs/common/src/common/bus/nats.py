"""The connection to NATS and JetStream: the only module that imports nats-py.

Requests to the JetStream API are plain JSON here, because nats-py's helpers hide what we must decide ourselves: they
lose rejected publishes, recreate consumers over gaps, and replay buffered publishes after a reconnect. A lost connection
ends a `Session`; everything that hangs on it is told at once, and `Bus` begins a new one.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final, TypeVar, cast

import msgspec
import structlog
from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from common import errors
from common.observability import metrics
from common.runtime.settings import Settings

log = structlog.get_logger()
T = TypeVar("T")

REQUEST_SECONDS: Final = 2.0
"""A request that a dying server swallowed is never answered, so waiting longer gains nothing."""
CONNECT_SECONDS: Final = 10.0
FIRST_RETRY: Final = 0.1
LONGEST_RETRY: Final = 2.0
CLOSED_CHECK_SECONDS: Final = 0.5
PING_SECONDS: Final = 3
"""A server that hangs without closing is given up after three of these."""

WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
NO_STREAM: Final = 10059
TOO_LARGE: Final = frozenset({10054, 10109})


class Failure(msgspec.Struct, frozen=True):
    """Why the JetStream API refused."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    error: Failure | None = None


class PubAck(msgspec.Struct, frozen=True):
    """Where a message was stored."""

    stream: str
    seq: int
    duplicate: bool = False


class StreamState(msgspec.Struct, frozen=True):
    """What a stream holds."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream as the server describes it; `created` and `state.last_seq` tell a recreated one."""

    created: str
    state: StreamState
    config: dict[str, object] = {}


class Stored(msgspec.Struct, frozen=True):
    """A message that a stream holds."""

    subject: str
    sequence: int
    headers: Mapping[str, str]
    payload: bytes


Incoming = Msg
"""What a subscription hears: a message, a heartbeat or a question of the server."""
Hear = Callable[[Incoming], Awaitable[None]]


class Session:
    """One connection from its start to its loss; a new one never inherits anything."""

    def __init__(self, client: Client, *, inbox: str) -> None:
        self.client = client
        self.inbox = inbox
        self.lost: str | None = None
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._on_loss: set[Callable[[str], None]] = set()
        self._count = 0

    async def open(self) -> None:
        """Listen for answers."""
        await self._subscribe(f"{self.inbox}.answer.*", self._answered)

    async def request(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> Msg:
        """Send a request and wait for its answer; `Unavailable` when there is none, or the connection ends."""
        self._count += 1
        token = str(self._count)
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            if self.lost is not None:
                raise errors.Unavailable(self.lost)
            await self.client.publish(subject, payload, reply=f"{self.inbox}.answer.{token}", headers=headers)
            async with asyncio.timeout(REQUEST_SECONDS):
                message = await answer
        except TimeoutError:
            raise errors.Unavailable(
                f"NATS did not answer {subject} within {REQUEST_SECONDS:g} s (or the user may not publish there)"
            ) from None
        except nats_errors.MaxPayloadError as problem:
            raise errors.Rejected(f"{subject}: {len(payload)} bytes are more than the server takes") from problem
        except (nats_errors.Error, OSError) as problem:
            raise errors.Unavailable(f"NATS cannot be asked: {_text(problem)}") from problem
        finally:
            self._waiting.pop(token, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # looked at, so that asyncio does not report it when we were cancelled meanwhile
        if _status(message) == "503":
            raise errors.Unavailable(f"nobody answers {subject}: the stream is missing or JetStream is off")
        return message

    async def tell(self, subject: str) -> None:
        """Send an empty message, such as the answer to a flow-control question."""
        if self.lost is None:
            await self.client.publish(subject)

    async def listen(self, subject: str, hear: Hear) -> Callable[[], Awaitable[None]]:
        """Subscribe; return how to end that."""
        try:
            subscription = await self._subscribe(subject, hear)
        except nats_errors.Error as problem:
            raise errors.Unavailable(f"NATS cannot be listened to: {_text(problem)}") from problem

        async def end() -> None:
            if self.lost is None:
                with contextlib.suppress(nats_errors.Error):
                    await subscription.unsubscribe()

        return end

    def when_lost(self, tell: Callable[[str], None]) -> Callable[[], None]:
        """Have a callback told why the connection ended; return how to take that back."""
        if self.lost is not None:
            tell(self.lost)
        self._on_loss.add(tell)
        return lambda: self._on_loss.discard(tell)

    def end(self, why: str) -> None:
        """Tell all that hangs on this connection that it is over."""
        if self.lost is not None:
            return
        self.lost = why
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(errors.Unavailable(why))
        for tell in list(self._on_loss):
            tell(why)

    async def _subscribe(self, subject: str, hear: Hear) -> Subscription:
        subscribe = cast("Callable[..., Awaitable[Subscription]]", self.client.subscribe)  # pyright: ignore[reportUnknownMemberType]  (an untyped Future in its signature)
        return await subscribe(subject, cb=hear)

    async def _answered(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)


class Bus:
    """NATS as a service uses it; `run` keeps the connection, everything else raises `Unavailable` while there is none."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._arrived = asyncio.Event()
        self._problem: str | None = f"not yet connected to NATS at {settings.nats_url}"
        self._last_error = ""

    @property
    def problem(self) -> str | None:
        """Say why there is no connection; None while there is one. What readiness asks."""
        return self._problem

    async def run(self) -> None:
        """Stay connected until cancelled: back off and log once per change of the reason."""
        retry = FIRST_RETRY
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    session, closed = await self._connect()
            except (nats_errors.Error, OSError, TimeoutError, ssl.SSLError) as problem:
                self._note(self._last_error or _text(problem))
                _stop_if_cancelled()
                await asyncio.sleep(retry)
                retry = min(LONGEST_RETRY, retry * 2)
                continue
            retry = FIRST_RETRY
            try:
                _stop_if_cancelled()
                self._began(session)
                await _end_of(session.client, closed)
                self._note(self._last_error or "the connection was lost")
            finally:
                self._ended(session)
                await session.client.close()

    async def session(self) -> Session:
        """Wait for a connection."""
        while self._session is None:
            self._arrived.clear()
            await self._arrived.wait()
        return self._session

    @property
    def current(self) -> Session:
        """Return the connection that stands, or raise `Unavailable`."""
        if self._session is None:
            raise errors.Unavailable(self._problem or "not connected to NATS")
        return self._session

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str], *, expected: int | None, message_id: str
    ) -> PubAck:
        """Store a message, if `expected` is still the subject's last sequence (0: none); else `Conflict`.

        The same `message_id` twice within the stream's window stores it once, so a retry after a lost answer is safe.
        """
        sent = {**headers, "Nats-Msg-Id": message_id}
        if expected is not None:
            sent["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        answer = await self.current.request(subject, payload, sent)
        return _decoded(subject, answer.data, PubAck)

    async def stream(self, name: str) -> StreamInfo:
        """Describe a stream; `NotFound` when it does not exist."""
        return await self.api(f"STREAM.INFO.{name}", None, StreamInfo)

    async def last(self, stream: str, subject: str) -> Stored | None:
        """Return the last message under a subject."""
        answer = await self.current.request(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"")
        headers = answer.headers or {}
        if _status(answer) == "404":
            return None
        if "Nats-Sequence" not in headers:
            raise errors.Unavailable(f"{subject} cannot be read: {headers.get('Description', 'no sequence')}")
        return Stored(subject, int(headers["Nats-Sequence"]), headers, answer.data)

    async def api(self, subject: str, body: object, answer_type: type[T]) -> T:
        """Ask the JetStream API."""
        payload = b"" if body is None else msgspec.json.encode(body)
        answer = await self.current.request(f"$JS.API.{subject}", payload)
        return _decoded(subject, answer.data, answer_type)

    async def _connect(self) -> tuple[Session, asyncio.Event]:
        self._last_error = ""
        client = Client()
        closed = asyncio.Event()
        session = Session(client, inbox=f"_INBOX_{self._settings.service}.{client._nuid.next().decode()}")  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  (the library's own source of unique names)

        async def on_closed() -> None:
            session.end("the connection to NATS was lost")
            closed.set()

        try:
            await client.connect(
                servers=[self._settings.nats_url],
                name=self._settings.service,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=2,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=2,
                error_cb=self._on_error,
                disconnected_cb=on_closed,
                closed_cb=on_closed,
                inbox_prefix=f"_INBOX_{self._settings.service}",
                nkeys_seed=str(self._settings.nats_seed_file) if self._settings.nats_seed_file else None,
                tls=self._tls(),
            )
            await session.open()
        except BaseException:
            await client.close()
            raise
        return session, closed

    def _tls(self) -> ssl.SSLContext | None:
        ca = self._settings.nats_ca_file
        if ca is None and not self._settings.nats_url.startswith("tls:"):
            return None
        try:
            return ssl.create_default_context(cafile=str(ca) if ca else None)
        except ssl.SSLError as problem:
            raise errors.InvalidSpec(f"RAYBUS_NATS_CA_FILE={ca}: no certificate in it ({problem})") from problem

    async def _on_error(self, problem: Exception) -> None:
        """Log what the library tells beside an answer; a refused permission appears only here."""
        self._last_error = _text(problem)
        if self._session is not None:
            log.warning("NATS reports an error", error=self._last_error)

    def _began(self, session: Session) -> None:
        self._session = session
        self._problem = None
        self._arrived.set()
        metrics.BUS_CONNECTED.set(1)
        log.info("connected to NATS", url=self._settings.nats_url)

    def _ended(self, session: Session) -> None:
        session.end("the connection to NATS was lost")
        self._session = None
        metrics.BUS_CONNECTED.set(0)

    def _note(self, reason: str) -> None:
        problem = f"NATS at {self._settings.nats_url} is not reachable: {reason}"
        if problem != self._problem:
            log.warning("NATS is not reachable", url=self._settings.nats_url, reason=reason)
        self._problem = problem


@contextlib.asynccontextmanager
async def connect(settings: Settings) -> AsyncGenerator[Bus]:
    """Run a connection as long as the block lasts; for tools and tests, a service runs `Bus.run` in its group."""
    bus = Bus(settings)
    problem: Exception | None = None
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bus.run())
        try:
            yield bus
        except Exception as found:  # noqa: BLE001  (raised again below, where no group wraps it)
            problem = found
        finally:
            running.cancel()
    if problem is not None:
        raise problem


async def _end_of(client: Client, closed: asyncio.Event) -> None:
    """Wait until a connection is closed.

    The library calls back last of all when it closes, and not at all when a step before that fails, as flushing to a server
    that has just died does. So its own word is asked as well.
    """
    while not closed.is_set() and not client.is_closed:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSED_CHECK_SECONDS):
                await closed.wait()


def _stop_if_cancelled() -> None:
    """End a task whose cancellation was swallowed: the library waits with `asyncio.wait_for`, which loses it in a race."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _decoded(subject: str, payload: bytes, answer_type: type[T]) -> T:
    try:
        refusal = msgspec.json.decode(payload, type=_Refusal)
        if refusal.error is None:
            return msgspec.json.decode(payload, type=answer_type)
    except msgspec.DecodeError as problem:
        raise errors.Unavailable(f"NATS answered {subject} with something unreadable: {problem}") from problem
    failure = refusal.error
    text = f"NATS refused {subject}: {failure.description} ({failure.err_code or failure.code})"
    if failure.err_code in WRONG_LAST_SEQUENCE:
        raise errors.Conflict(text)
    if failure.err_code == NO_STREAM:
        raise errors.NotFound(text)
    if failure.err_code in TOO_LARGE or failure.code == 400:
        raise errors.Rejected(text)
    raise errors.Unavailable(text)


def _status(message: Msg) -> str:
    """Return the code of an answer that is a status and no message, such as 404."""
    headers = cast("Mapping[str, str]", message.headers or {})
    return headers.get("Status", "")


def _text(problem: BaseException) -> str:
    return str(problem) or type(problem).__name__
