"""Delivers the events of one named subscriber to one destination, in order.

Destinations are independent, so no event waits for another destination. NATS stores the position
and the number of deliveries of each event, so the process can end at any time. An event is
acknowledged after the destination accepted it, or when it is dropped. If NATS redelivers an event
to a process that has already sent it, the process only acknowledges it.
"""

import asyncio
import contextlib
import ssl
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import Final

import httpx
import msgspec
import re2
import structlog

from common import errors, event_catalogue
from common.bus import cloud_events, subjects
from common.bus.cloud_events import CloudEvent, EventData, EventSource
from common.bus.nats import Bus
from common.clock import Clock
from common.ray.job_events import JobEventData
from notifications import metrics, request, templates
from notifications.durable_consumer import Delivery, Pull, pull_messages
from notifications.request import Drop, ReceiverAnswer
from notifications.settings import Destination, NotificationSettings

log = structlog.get_logger()

EXTEND_SECONDS: Final = 10.0
"""Seconds between two requests to NATS for more time until the acknowledgement.

This is a third of the time after which NATS redelivers an event.
"""
RECONNECT_SECONDS: Final = 1.0
MAX_REMEMBERED_EVENTS: Final = 10_000
RESOURCES: Final = frozenset(family.resource for family in event_catalogue.FAMILIES)
_IDENTITY: Final = re2.compile(r"[\x21-\x7e]{1,256}")


class Notification(msgspec.Struct, frozen=True):
    """A notification to send, with the id (`identity`) and the time of its event."""

    identity: str
    body: bytes
    time: datetime


class WebhookSender:
    """Sends the events of one named subscriber to one destination."""

    def __init__(
        self,
        destination: Destination,
        notifications: NotificationSettings,
        http: httpx.AsyncClient,
        *,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self.problem: str | None = "no event was asked for yet"
        """Why no event can be read from NATS; None if events can be read. Used for readiness."""
        self._destination = destination
        self._texts = notifications.texts
        self._secrets = notifications.secrets[destination.name]
        self._choices = notifications.choices
        self._http = http
        self._clock = clock
        self._jitter = jitter
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._log = log.bind(destination=destination.name)
        for metric in (metrics.SENT, metrics.FAILED, metrics.DROPPED, metrics.NEWEST):
            metric.labels(destination.name)

    async def run(self, bus: Bus) -> None:
        """Deliver events until cancelled; reconnect after each loss of the connection to NATS."""
        while True:
            try:
                async with pull_messages(
                    bus, subjects.EVENTS_STREAM, self._destination.name
                ) as pull:
                    self.problem = None
                    while True:
                        await self._take(pull, await pull.wait_for_next())
            except errors.NotFound as problem:
                self._note(f"{problem}; name {self._destination.name} in NATS_SUBSCRIBERS")
            except errors.Retryable as problem:
                self._note(str(problem))
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _take(self, pull: Pull, delivery: Delivery) -> None:
        message = self._read(delivery) if delivery.stored_at >= pull.created else None
        if message is not None and message.identity not in self._sent:
            try:
                await self._deliver(pull, delivery, message)
            except asyncio.CancelledError:
                with contextlib.suppress(errors.Unavailable):
                    await pull.release(delivery)
                raise
            self._remember(message.identity)
        await pull.acknowledge(delivery)

    def _read(self, delivery: Delivery) -> Notification | None:
        """Return the notification for an event; None if it is filtered out or unreadable."""
        try:
            event = event_catalogue.decode(delivery.payload)
        except msgspec.DecodeError as problem:
            return self._skip_unreadable(delivery, str(problem))
        source = cloud_events.parse_source(event.source)
        if source is None or source.resource not in RESOURCES:
            return self._skip_unreadable(delivery, "its source is no RayService and no RayJob")
        if not _IDENTITY.fullmatch(event.id):
            return self._skip_unreadable(delivery, "its id is no visible ASCII")
        cron_job = event.data.attempt.cron_job if isinstance(event.data, JobEventData) else ""
        kind = event_catalogue.kind_of(event.type)
        if not self._destination.is_interested_in(kind, source, cron_job):
            return None
        body = self._build_body(event, source, delivery.payload)
        return Notification(event.id, msgspec.json.encode(body), event.time)

    def _build_body(
        self, event: CloudEvent[EventData], source: EventSource, payload: bytes
    ) -> request.Slack | request.Generic:
        if self._destination.format == "slack":
            return request.Slack(
                templates.render(self._texts, event, source, escape=templates.strip_markup)
            )
        text = templates.render(self._texts, event, source, escape=str)
        return request.Generic(text, msgspec.Raw(payload))

    def _skip_unreadable(self, delivery: Delivery, reason: str) -> None:
        metrics.DROPPED.labels(self._destination.name).inc()
        self._log.error("unreadable event dropped", subject=delivery.subject, reason=reason)

    async def _deliver(self, pull: Pull, delivery: Delivery, message: Notification) -> None:
        """Send the notification until the destination accepts it or `request.decide` drops it."""
        name = self._destination.name
        for attempt in count(delivery.count):
            answer = await self._send_once(message)
            decision = request.decide(
                answer,
                attempt=attempt,
                max_attempts=self._choices.attempts,
                now=self._clock.now(),
                jitter=self._jitter(),
            )
            if decision is None:
                metrics.SENT.labels(name).inc()
                metrics.NEWEST.labels(name).set(message.time.timestamp())
                self._log.info("sent", id=message.identity, attempt=attempt)
                return
            metrics.FAILED.labels(name).inc()
            if isinstance(decision, Drop):
                metrics.DROPPED.labels(name).inc()
                self._log.error(
                    "dropped", id=message.identity, subject=delivery.subject, reason=decision.reason
                )
                return
            self._log.warning(
                "delivery not accepted; retrying",
                id=message.identity,
                attempt=attempt,
                reason=str(answer),
                seconds=decision.after,
            )
            await self._wait(pull, delivery, decision.after)

    async def _send_once(self, message: Notification) -> ReceiverAnswer:
        """Send one request and return its answer, or `NO_ANSWER` after an error.

        The body of the answer is not read, and no text of httpx is logged, because both can contain
        the URL, which is secret.
        """
        headers = request.build_headers(
            message.identity, message.body, key=self._secrets.key, now=self._clock.now()
        )
        try:
            async with (
                asyncio.timeout(self._choices.timeout_seconds),
                self._http.stream(
                    "POST",
                    self._secrets.url,
                    content=message.body,
                    headers=headers,
                    follow_redirects=False,
                ) as answer,
            ):
                return ReceiverAnswer(answer.status_code, answer.headers.get("Retry-After", ""))
        except (httpx.HTTPError, OSError, ssl.SSLError, TimeoutError) as problem:
            self._log.warning("no answer", error=type(problem).__name__)
            return ReceiverAnswer(request.NO_ANSWER)

    async def _wait(self, pull: Pull, delivery: Delivery, seconds: float) -> None:
        """Wait some seconds; meanwhile, keep NATS from redelivering the event."""
        until = self._clock.monotonic() + seconds
        while (remaining := until - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(remaining, EXTEND_SECONDS))
            # Without NATS the event is delivered again, and recognised by its id.
            with contextlib.suppress(errors.Unavailable):
                await pull.extend(delivery)

    def _remember(self, identity: str) -> None:
        self._sent[identity] = None
        if len(self._sent) > MAX_REMEMBERED_EVENTS:
            self._sent.popitem(last=False)

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warning("cannot read events; retrying", reason=problem)
        self.problem = problem
