"""Send each event of raybus to an HTTP receiver, in order.

An event is repeated until the receiver accepts it or it becomes a dead letter. Only NATS keeps
state (a durable consumer: the position, and the attempts of each event), so this process may end
and move at any time.

The request follows the Standard Webhooks specification. Its body is the CloudEvent as stored.
`webhook-id` is the event's id, the same in every repetition, so that receivers can skip known ids.
`webhook-signature` is an HMAC-SHA256 of id, time and body with the shared secret.

An answer of 2xx acknowledges the event. Any other answer is retried with a growing delay. After
WEBHOOK_ATTEMPTS the event becomes a dead letter: a line on standard output, and a request to
DEAD_LETTER_URL if that is set. `raybus events --replay ID` shows an event as long as the stream
keeps it.

    variable                  default
    RAYBUS_NATS_URL           (needed)     tls://HOST:PORT
    RAYBUS_NATS_CREDENTIALS   (needed)     a folder with seed and ca.crt, see ../README.md
    WEBHOOK_URL               (needed)     where events go
    WEBHOOK_SECRET_FILE       (needed)     a file with the shared secret: whsec_ and base64
    WEBHOOK_ATTEMPTS          10           then the event is a dead letter
    WEBHOOK_FIRST_DELAY       1            seconds before the second attempt, doubled each time
    WEBHOOK_LONGEST_DELAY     300          seconds
    WEBHOOK_TIMEOUT           10           seconds for one attempt
    DEAD_LETTER_URL           (none)       gets what could not be delivered, signed in the same way
    SUBSCRIBER_NAME           webhook      consumer at NATS; a new name gets all events
    SUBSCRIBER_FILTER         ray.events.> ray.events.<namespace>.<rayservice>.<kind>
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

STREAM = "RAY_EVENTS"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in the environment."""

    nats: str
    seed: Path
    authority: Path
    url: str
    secret: bytes
    attempts: int
    first_delay: float
    longest_delay: float
    timeout: float
    dead_letters: str
    name: str
    filter: str

    def delay(self, attempt: int) -> float:
        """Return the seconds between an attempt, counted from 1, and the next."""
        return min(self.longest_delay, self.first_delay * 2 ** (attempt - 1))


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the environment; end with a line that names what is wrong."""

    def needed(variable: str) -> str:
        if not environ.get(variable):
            sys.exit(f"{variable} is not set; see the top of {Path(__file__).name}")
        return environ[variable]

    def number(variable: str, default: float, *, least: float) -> float:
        text = environ.get(variable, str(default))
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value < float("inf"):
            sys.exit(f"{variable}={text!r}: expected a number of {least:g} or more")
        return value

    folder = Path(needed("RAYBUS_NATS_CREDENTIALS"))
    seed = folder / "seed"
    return Settings(
        nats=needed("RAYBUS_NATS_URL"),
        seed=seed if seed.exists() else folder / "users" / "subscriber.seed",
        authority=folder / "ca.crt",
        url=needed("WEBHOOK_URL"),
        secret=read_secret(Path(needed("WEBHOOK_SECRET_FILE"))),
        attempts=int(number("WEBHOOK_ATTEMPTS", 10, least=1)),
        first_delay=number("WEBHOOK_FIRST_DELAY", 1, least=0),
        longest_delay=number("WEBHOOK_LONGEST_DELAY", 300, least=0),
        timeout=number("WEBHOOK_TIMEOUT", 10, least=0.1),
        dead_letters=environ.get("DEAD_LETTER_URL", ""),
        name=environ.get("SUBSCRIBER_NAME", "webhook"),
        filter=environ.get("SUBSCRIBER_FILTER", "ray.events.>"),
    )


def read_secret(file: Path) -> bytes:
    """Return the key in a file; its content is never shown."""
    try:
        return base64.b64decode(file.read_text().strip().removeprefix("whsec_"), validate=True)
    except OSError as problem:
        sys.exit(f"WEBHOOK_SECRET_FILE: {problem}")
    except (binascii.Error, ValueError):
        sys.exit(
            f"WEBHOOK_SECRET_FILE={file}: expected whsec_ and base64, as 'openssl rand -base64 "
            "32' makes it"
        )


def signed(secret: bytes, identity: str, body: bytes, *, now: int) -> dict[str, str]:
    """Return the headers of a request; `now` in seconds since 1970."""
    digest = hmac.new(secret, f"{identity}.{now}.".encode() + body, hashlib.sha256).digest()
    return {
        "Content-Type": "application/cloudevents+json",
        "webhook-id": identity,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


class _Identity(msgspec.Struct, frozen=True):
    id: str


def identity_of(message: Msg) -> str:
    """Return the id of an event; its place in the stream when it has none."""
    try:
        return msgspec.json.decode(message.data, type=_Identity).id
    except msgspec.DecodeError:
        return f"sequence-{message.metadata.sequence.stream}"


class Forwarder:
    """Takes events from NATS one after the other."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient) -> None:
        self._settings = settings
        self._http = http

    async def run(self, client: Client) -> None:
        """Forward until cancelled, whatever happens to NATS."""
        subscription: JetStreamContext.PullSubscription | None = None
        while True:
            try:
                subscription = subscription or await self._subscribe(client.jetstream())
                (message,) = await subscription.fetch(1, timeout=5)
                await self._forward(message)
            except NothingCame:
                continue
            except (NatsError, OSError) as problem:
                log("NATS fails, retrying", problem=str(problem))
                subscription = None  # the stream may have been lost, and our consumer with it
                await asyncio.sleep(1)

    async def _subscribe(self, stream: JetStreamContext) -> JetStreamContext.PullSubscription:
        name = self._settings.name
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            filter_subject=self._settings.filter,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=2 * self._settings.timeout + 10,
            # Later events wait behind an event that waits for its next attempt.
            max_ack_pending=1,
        )
        await stream.add_consumer(STREAM, config)
        return await stream.pull_subscribe_bind(consumer=name, stream=STREAM)

    async def _forward(self, message: Msg) -> None:
        attempt = message.metadata.num_delivered
        identity = identity_of(message)
        problem = await self._post(self._settings.url, identity, message.data)
        if problem is None:
            await message.ack()
        elif attempt < self._settings.attempts:
            delay = self._settings.delay(attempt)
            log(
                "not accepted, retrying",
                id=identity,
                attempt=attempt,
                problem=problem,
                seconds=delay,
            )
            await message.nak(delay=delay)
        else:
            await self._terminate(message, identity, problem)

    async def _terminate(self, message: Msg, identity: str, problem: str) -> None:
        log(
            "dead letter",
            id=identity,
            attempt=message.metadata.num_delivered,
            problem=problem,
            subject=message.subject,
        )
        if self._settings.dead_letters:
            refused = await self._post(self._settings.dead_letters, identity, message.data)
            if refused is not None:
                log("the dead letter was not accepted, retrying", id=identity, problem=refused)
                await message.nak(delay=self._settings.longest_delay)
                return
        await message.term()

    async def _post(self, url: str, identity: str, body: bytes) -> str | None:
        """Send an event; return why it was not accepted."""
        headers = signed(self._settings.secret, identity, body, now=int(time.time()))  # noqa: TID251  (the example stands alone)
        try:
            answer = await self._http.post(url, content=body, headers=headers)
        except httpx.HTTPError as problem:
            return f"{type(problem).__name__}: {problem}"
        return None if answer.is_success else f"status {answer.status_code}"


def log(message: str, **facts: object) -> None:
    """Write one line of JSON."""
    sys.stdout.write(json.dumps({"msg": message, **facts}) + "\n")
    sys.stdout.flush()


async def main() -> None:
    """Run until a signal."""
    settings = read_settings(os.environ)
    running = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(
            number, running.cancel if running else lambda: None
        )
    async with httpx.AsyncClient(timeout=settings.timeout, follow_redirects=False) as http:
        client = await nats.connect(
            settings.nats,
            name=settings.name,
            nkeys_seed=str(settings.seed),
            tls=ssl.create_default_context(cafile=str(settings.authority)),
            inbox_prefix="_INBOX_subscriber",
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
        )
        log("forwarding", url=settings.url, filter=settings.filter)
        await Forwarder(settings, http).run(client)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        sys.exit(0)
