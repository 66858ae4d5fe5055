"""Reads raybus' events in Python: durable, at least once, each event handled once.

    pip install nats-py
    RAYBUS_NATS_URL=tls://127.0.0.1:4222 RAYBUS_NATS_CREDENTIALS=DIR python subscriber.py

DIR is a folder with `seed` and `ca.crt`: ../README.md describes how to make one, and
`raybus up --data-dir` writes one. The server stores the position of this subscriber under its NAME,
also while the subscriber is away.

An event may come again, with the same id: if this process ended before it acknowledged the event,
or if raybus ended before it knew that the event was stored. The ids of handled events are therefore
kept in a small database. Put your own code into `handle`.
"""

import asyncio
import json
import os
import signal
import sqlite3
import ssl
import sys
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

STREAM = "RAY_EVENTS"
NAME = os.environ.get("SUBSCRIBER_NAME", "python-example")
"""Two processes with one name share the work; two names get every event each."""
FILTER = os.environ.get("SUBSCRIBER_FILTER", "ray.events.>")
"""`ray.events.<namespace>.<rayservice or rayjob>.<kind>`; a dot in a name becomes an underscore."""
DATABASE = os.environ.get("SUBSCRIBER_DATABASE", "handled.db")
ACKNOWLEDGE_WITHIN = 60.0
"""Seconds after which the server delivers an unacknowledged event again."""


def handle(event: dict[str, Any]) -> None:
    """Process one event.

    An exception is reported on standard error, and the event is delivered again.
    """
    kind = event["type"].removeprefix("io.raybus.").removesuffix(".v1")
    if kind.startswith("job."):
        attempt = event["data"]["attempt"]
        text = f"{kind} attempt {attempt['number']} {attempt['cluster']}"
    else:
        upgrade = event["data"]["upgrade"]
        text = f"{kind.removeprefix('upgrade.')} {upgrade['from']} -> {upgrade['to']}"
    sys.stdout.write(f"{event['time']} {event['subject']} {text}\n")
    sys.stdout.flush()


async def connect() -> Client:
    """Connect as the user for external consumers, and again whenever the connection is lost."""
    folder = Path(os.environ["RAYBUS_NATS_CREDENTIALS"])
    seed = folder / "seed"
    return await nats.connect(
        os.environ["RAYBUS_NATS_URL"],
        name=NAME,
        nkeys_seed=str(seed if seed.exists() else folder / "users" / "subscriber.seed"),
        tls=ssl.create_default_context(cafile=str(folder / "ca.crt")),
        inbox_prefix="_INBOX_subscriber",
        max_reconnect_attempts=-1,
        reconnect_time_wait=1,
    )


async def subscribe(stream: JetStreamContext) -> JetStreamContext.PullSubscription:
    """Create the durable consumer, or use the existing one."""
    config = ConsumerConfig(
        name=NAME,
        durable_name=NAME,
        filter_subject=FILTER,
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACKNOWLEDGE_WITHIN,
        # One event at a time, so that the order holds even if an event comes again.
        max_ack_pending=1,
    )
    await stream.add_consumer(STREAM, config)
    return await stream.pull_subscribe_bind(consumer=NAME, stream=STREAM)


async def take(message: Msg, handled: sqlite3.Connection) -> None:
    """Handle an event unless it was handled before; acknowledge it only then."""
    event: dict[str, Any] = json.loads(message.data)
    try:
        with handled:  # the id is kept if, and only if, `handle` came to its end
            if handled.execute(
                "INSERT OR IGNORE INTO handled VALUES (?, ?)", (event["source"], event["id"])
            ).rowcount:
                handle(event)
    except Exception as problem:  # noqa: BLE001  (whatever it was, the event must come again)
        sys.stderr.write(f"event {event['id']} is delivered again in 5 s: {problem!r}\n")
        await message.nak(delay=5)
        return
    await message.ack()


async def run() -> None:
    """Process events one after the other; reconnect when NATS fails."""
    client = await connect()
    handled = sqlite3.connect(DATABASE)
    handled.execute(
        "CREATE TABLE IF NOT EXISTS handled (source TEXT, id TEXT, PRIMARY KEY (source, id))"
    )
    subscription: JetStreamContext.PullSubscription | None = None
    while True:
        try:
            subscription = subscription or await subscribe(client.jetstream())
            (message,) = await subscription.fetch(1, timeout=5)
        except NothingCame:
            continue
        except (NatsError, OSError) as problem:
            sys.stderr.write(f"NATS: {problem}; retrying\n")
            subscription = None  # the stream may have been lost, and our consumer with it
            await asyncio.sleep(1)
            continue
        await take(message, handled)


async def main() -> None:
    """Run until a signal."""
    running = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(
            number, running.cancel if running else lambda: None
        )
    await run()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        sys.exit(0)
    except KeyError as missing:
        sys.exit(
            f"the environment variable {missing} is needed; see the top of {Path(__file__).name}"
        )
