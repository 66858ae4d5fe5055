"""The connection to NATS and JetStream. Only this module and `common.bus.session` import nats-py.

Requests to the JetStream API are plain JSON, because nats-py's helpers lose rejected publishes,
recreate consumers over gaps, and replay buffered publishes after a reconnect. A lost connection
ends its `Session` and everything that depends on it; then `Bus` begins a new one. A server that
announces its shutdown counts as lost too, so that its clients move to another server early.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
import structlog
from nats import errors as nats_errors

from common import errors
from common.bus import access, refusals, server_errors
from common.bus.access import FileKeys, Keys, Registration, ServerAccess
from common.bus.client import NatsClient
from common.bus.server_errors import ServerError
from common.bus.session import LOST, Incoming, Session, parse_status
from common.bus.streams import StreamInfo
from common.clock import SystemClock
from common.observability import metrics
from common.settings import Settings

log = structlog.get_logger()
T = TypeVar("T")

CONNECT_SECONDS: Final = 10.0
FIRST_RETRY: Final = 0.1
MAX_RETRY_DELAY: Final = 2.0
PING_SECONDS: Final = 3
"""Seconds between pings. After three unanswered pings, the connection is closed as lost."""

EXPIRY_WARNING: Final = timedelta(days=30)
MIN_VERSION: Final = (2, 11, 0)
"""Oldest accepted version of the NATS server. Older ones ignore the time to live of a message."""


class _PubAck(msgspec.Struct, frozen=True):
    seq: int


class StoredMessage(msgspec.Struct, frozen=True):
    """A message in a stream."""

    subject: str
    sequence: int
    headers: Mapping[str, str]
    payload: bytes


class Bus:
    """The connection of a service to NATS.

    `run` keeps it open. Without a connection, requests raise `Unavailable`, and `session` waits.
    """

    def __init__(self, settings: Settings, keys: Keys | None = None) -> None:
        self._settings = settings
        self.keys = keys or (Registration if settings.nats_register_key else FileKeys)(settings)
        self._session: Session | None = None
        self._may_publish: Callable[[], None] = lambda: None
        self._arrived = asyncio.Event()
        self.problem: str | None = f"not yet connected to NATS at {settings.nats_url}"
        """Why there is no connection; None while there is one."""
        self._last_error: Exception | None = None
        self.failure = ServerError.OTHER
        """Kind of the server's error that `problem` describes; `OTHER` while there is none."""

    async def run(self) -> None:
        """Stay connected until cancelled, with backoff; log each new reason of a failure once.

        Raises `InvalidSpec` if a file that the settings name is unusable at the start. After the
        start, an unusable file is retried.
        """
        self.keys.check()
        try:
            retry = FIRST_RETRY
            while True:
                if await self._serve_connection():
                    retry = FIRST_RETRY
                else:
                    await asyncio.sleep(retry)
                    retry = min(MAX_RETRY_DELAY, retry * 2)
        finally:
            await self.keys.close()

    async def _serve_connection(self) -> bool:
        """Connect, and wait for the loss of the connection.

        Return False if no connection was made.
        """
        self._last_error = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                session = await self._connect()
        except (
            nats_errors.Error,
            errors.RaybusError,
            OSError,
            TimeoutError,
            ssl.SSLError,
        ) as problem:
            self._record_failure(self._last_error or problem)
            _stop_if_cancelled()
            return False
        try:
            _stop_if_cancelled()
            self._session = session
            self.problem, self.failure = None, ServerError.OTHER
            self._arrived.set()
            metrics.BUS_CONNECTED.set(1)
            log.info("connected to NATS", url=self._settings.nats_url)
            await session.until_lost()
            self._record_failure(self._last_error or ConnectionError("the connection was lost"))
        finally:
            self._session = None
            metrics.BUS_CONNECTED.set(0)
            await session.close(LOST)
        return True

    async def session(self) -> Session:
        """Return the open connection; wait for one if necessary."""
        while self._session is None:
            self._arrived.clear()
            await self._arrived.wait()
        return self._session

    @property
    def current(self) -> Session:
        """The open connection; raises `Unavailable` if there is none."""
        if self._session is None:
            raise errors.Unavailable(self.problem or "not connected to NATS")
        return self._session

    def guard(self, check: Callable[[], None]) -> None:
        """Set a function to call before each publication; it raises an error to prevent one."""
        self._may_publish = check

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        *,
        expected: int | None,
        message_id: str,
    ) -> Awaitable[int]:
        """Store a message in its stream; return its sequence.

        If `expected` is given and is not the last sequence of the subject (0: no message), the
        server refuses with `Conflict`. The server stores the same `message_id` only once within the
        stream's duplicate window, so a retry after a lost answer is safe. But the server checks
        `expected` first: if the first attempt was stored, its retry raises `Conflict`.
        """
        self._may_publish()
        all_headers = {**headers, "Nats-Msg-Id": message_id}
        if expected is not None:
            all_headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        return self.current.request(
            subject,
            payload,
            all_headers,
            read=lambda answer: _decode_answer(subject, answer, _PubAck).seq,
        )

    def stream(self, name: str) -> Awaitable[StreamInfo]:
        """Return the state and configuration of a stream; raise `NotFound` if it does not exist."""
        return self.api(f"STREAM.INFO.{name}", None, StreamInfo)

    def last(self, stream: str, subject: str) -> Awaitable[StoredMessage | None]:
        """Return the last message under a subject; None if there is none."""

        def read(answer: Incoming) -> StoredMessage | None:
            headers = answer.headers or {}
            if parse_status(answer) == "404":
                return None
            if "Nats-Sequence" not in headers:
                raise errors.Unavailable(
                    f"{subject} cannot be read: {headers.get('Description', 'no sequence')}"
                )
            return StoredMessage(subject, int(headers["Nats-Sequence"]), headers, answer.data)

        return self.current.request(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", read=read)

    def api(self, subject: str, body: object, answer_type: type[T]) -> Awaitable[T]:
        """Send a request to the JetStream API, and decode the answer as `answer_type`."""
        payload = b"" if body is None else msgspec.json.encode(body)
        return self.current.request(
            f"$JS.API.{subject}",
            payload,
            read=lambda answer: _decode_answer(subject, answer, answer_type),
        )

    async def _connect(self) -> Session:
        server = await self.keys.next()
        client = NatsClient()
        name = client.make_unique_name()
        session = Session(client, inbox=f"_INBOX_{self._settings.service}.{name}")

        async def on_closed() -> None:
            session.end(LOST)

        async def on_lame_duck() -> None:
            log.info("NATS server shutting down; connecting to another one", url=server.url)
            session.end("the NATS server is about to stop")

        try:
            await client.connect(
                servers=[server.url],
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
                lame_duck_mode_cb=on_lame_duck,
                inbox_prefix=f"_INBOX_{self._settings.service}",
                nkeys_seed_str=server.seed,
                tls=server.tls,
            )
            self._check_tls(client, server)
            check_version(client.read_server_version())
            await session.open()
        except BaseException:
            await session.close(LOST)
            raise
        return session

    def _check_tls(self, client: NatsClient, server: ServerAccess) -> None:
        """Refuse a server without TLS if TLS is required; record when the certificates expire."""
        peer = client.find_tls_peer()
        if server.tls is not None and peer is None:
            raise nats_errors.Error(
                "the server does not offer TLS, which RAYBUS_NATS_URL or RAYBUS_NATS_CA_FILE "
                "asks for"
            )
        now = SystemClock().now()
        for certificate, end in access.read_expiries(peer, server.tls).items():
            metrics.BUS_CERTIFICATE_END.labels(certificate).set(end.timestamp())
            if end - now < EXPIRY_WARNING:
                log.warning(
                    "NATS certificate expires soon",
                    certificate=certificate,
                    ends=end.isoformat(timespec="seconds"),
                )

    async def _on_error(self, problem: Exception) -> None:
        """Handle an error that nats-py reports by a callback instead of an exception.

        A missing permission is reported only here.
        """
        if self._session is None:
            self._last_error = problem
            return
        text = errors.text_of(problem)
        log.warning("NATS reports an error", error=text)
        if (subject := server_errors.parse_refused_subject(problem)) is not None:
            self._session.forbidden(
                subject, f"the NATS user {self._settings.service} may not publish to {subject}"
            )

    def _record_failure(self, problem: BaseException) -> None:
        url = self._settings.nats_url
        is_cut_off = isinstance(problem, BrokenPipeError | ConnectionResetError)
        if is_cut_off and self.failure is not ServerError.OTHER:
            return  # the connection closed before its reason arrived; an earlier attempt got it
        failure = server_errors.classify(problem)
        if isinstance(problem, errors.RaybusError):
            reason = text = str(problem)
        else:
            reason = access.explain_error(problem, self._settings, self.keys)
            text = f"NATS at {url} is not reachable: {reason}"
        if text != self.problem:
            # A server learns a newly registered key within a second.
            is_unknown_key = failure is ServerError.UNKNOWN_KEY
            is_expected = self._settings.nats_register_key and is_unknown_key
            (log.info if is_expected else log.warning)(
                "NATS is not reachable", url=url, reason=reason
            )
        self.problem, self.failure = text, failure


@contextlib.asynccontextmanager
async def connect(settings: Settings, keys: Keys | None = None) -> AsyncGenerator[Bus]:
    """Keep a connection open for the duration of the block, for tools and tests.

    Services call `Bus.run`.
    """
    bus = Bus(settings, keys)
    bus.keys.check()
    problem: Exception | None = None
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bus.run())
        try:
            yield bus
        except Exception as raised:  # noqa: BLE001  (raised again below, outside of the group)
            problem = raised
        finally:
            running.cancel()
    if problem is not None:
        raise problem


def check_version(version: tuple[int, int, int] | None) -> None:
    """Raise `Unavailable` for a server that is too old. An unknown version is accepted."""
    if version is not None and version < MIN_VERSION:
        given, needed = (".".join(map(str, numbers)) for numbers in (version, MIN_VERSION))
        raise errors.Unavailable(
            f"NATS {given} is older than {needed}, the oldest version that raybus can use: update "
            "the NATS server"
        )


def _stop_if_cancelled() -> None:
    """Raise `CancelledError` if nats-py swallowed a cancellation.

    nats-py waits with `asyncio.wait_for`, which can lose a cancellation in a race.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _decode_answer(subject: str, answer: Incoming, answer_type: type[T]) -> T:
    try:
        refusal = msgspec.json.decode(answer.data, type=refusals.ApiAnswer)
        if refusal.error is None:
            return msgspec.json.decode(answer.data, type=answer_type)
    except msgspec.DecodeError as problem:
        raise errors.Unavailable(
            f"NATS answered {subject} with something unreadable: {problem}"
        ) from problem
    raise refusals.make_error(subject, refusal.error)
