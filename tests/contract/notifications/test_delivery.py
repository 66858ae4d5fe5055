"""`python -m notifications` against a real nats-server with named subscribers, and webhooks on loopback."""

import base64
import hashlib
import hmac
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from common.bus import streams
from common.upgrade import events as upgrade_events
from nats_admin.subscribers import ACK_WAIT, NamedSubscriber
from notifications.delivery import EXTEND_SECONDS
from notifications.settings import MAX_TIMEOUT
from support import job_events as jobs
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.servers.loopback import served
from support.servers.outside import Outside, outside
from support.servers.process import Process
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

TIMEOUT: Final = 45.0
"""Timeout in seconds.

It is longer than the 30 s after which NATS redelivers messages of a killed process."""
KEY: Final = b"32 bytes that both sides know 12"
PATH: Final = "/services/very-secret"
SLACK: Final = NamedSubscriber("slack")
PAGER: Final = NamedSubscriber("pager")
EVENTS: Final = an_example_upgrade()
IDS: Final = [event.id for event in EVENTS]
FILE: Final = """\
destinations:
- name: slack
- name: pager
  format: generic
allowHttp: true
"""


class Receiver:
    """A webhook for each destination.

    It answers 503 for the next few requests, or always with a status that a test sets.
    """

    def __init__(self) -> None:
        self.requests: dict[str, list[tuple[dict[str, str], bytes]]] = {"slack": [], "pager": []}
        self.accepted: dict[str, list[str]] = {"slack": [], "pager": []}
        """Ids of the events that were answered with 200, by destination."""
        self.answers: dict[str, list[web.Response]] = {"slack": [], "pager": []}
        self.down: set[str] = set()
        self.port = 0

    async def take(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.requests[name].append((dict(request.headers), await request.read()))
        if name in self.down:
            return web.Response(status=503)
        if self.answers[name]:
            return self.answers[name].pop(0)
        self.accepted[name].append(request.headers["Idempotency-Key"])
        return web.Response(text="ok")

    def ids(self, name: str) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _ in self.requests[name]]

    def bodies(self, name: str) -> list[dict[str, Any]]:
        return [msgspec.json.decode(body) for _, body in self.requests[name]]

    async def until(self, name: str, count: int) -> None:
        await eventually(
            lambda: len(self.requests[name]) >= count,
            within=TIMEOUT,
            what=f"{count} requests; {self.ids(name)}",
        )


class Notifier(Process):
    """The process, its settings and its log."""

    def __init__(self, at: Outside, receiver: Receiver, folder: Path) -> None:
        super().__init__()
        self.file, self.secrets = folder / "notifications.yaml", folder / "secrets"
        self.log = folder / "log"
        self.file.write_text(FILE)
        self.secrets.mkdir()
        for name in receiver.requests:
            (self.secrets / f"{name}.url").write_text(
                f"http://127.0.0.1:{receiver.port}{PATH}/{name}\n"
            )
        (self.secrets / "pager.key").write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._environment = {
            **os.environ,
            "RAYBUS_NATS_URL": at.url,
            "RAYBUS_NATS_CREDENTIALS": str(at.folder),
            "RAYBUS_NOTIFICATIONS_FILE": str(self.file),
            "RAYBUS_NOTIFICATIONS_SECRETS": str(self.secrets),
            "RAYBUS_HTTP_PORT": str(self._port),
            "NO_PROXY": "127.0.0.1",
        }

    def start(self, **variables: str) -> None:
        with self.log.open("ab") as out:
            self.spawn(
                [sys.executable, "-m", "notifications"],
                out=out,
                env={**self._environment, **variables},
            )

    def stop(self) -> int:
        return self.end(signal.SIGTERM, within=10.0)

    def kill(self) -> None:
        self.end(signal.SIGKILL, within=10.0)

    async def get(self, path: str) -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"http://127.0.0.1:{self._port}{path}")).text

    async def metric(self, name: str) -> Mapping[str, float]:
        """Return a metric by destination."""
        prefix = f'raybus_notifications_{name}{{destination="'
        lines = [
            line for line in (await self.get("/metrics")).splitlines() if line.startswith(prefix)
        ]
        return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}

    @property
    def logged(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.log.read_text().splitlines()]


@pytest_asyncio.fixture
async def at(tmp_path: Path) -> AsyncGenerator[Outside]:
    async with outside(tmp_path / "nats", subscribers=(SLACK, PAGER)) as running:
        await running.admit(SLACK, PAGER)
        yield running


@pytest_asyncio.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.add_routes([web.post(f"{PATH}/{{name}}", found.take)])
    async with served(app) as port:
        found.port = port
        yield found


@asynccontextmanager
async def notifying(at: Outside, receiver: Receiver, folder: Path) -> AsyncGenerator[Notifier]:
    notifier = Notifier(at, receiver, folder)
    notifier.start()
    try:
        yield notifier
    finally:
        notifier.kill()
        secrets = (PATH.rpartition("/")[2], base64.b64encode(KEY).decode())
        assert [each for each in secrets if each in notifier.log.read_text()] == [], (
            "a secret is in the log"
        )


@pytest_asyncio.fixture
async def notifier(at: Outside, receiver: Receiver, tmp_path: Path) -> AsyncGenerator[Notifier]:
    async with notifying(at, receiver, tmp_path) as running:
        yield running


async def test_each_destination_gets_each_event_once_and_in_order(
    at: Outside, receiver: Receiver, notifier: Notifier
) -> None:
    await at.publish(EVENTS)
    await at.publish(EVENTS[-2:], again="-again")
    await at.publish(a_retreat())
    for name in receiver.requests:
        await receiver.until(name, len(EVENTS) + len(a_retreat()))
        assert receiver.ids(name) == [*IDS, *(event.id for event in a_retreat())]
    assert receiver.bodies("slack")[0] == {
        "text": "default/greeter: upgrade from demo-x7k2p to demo-b4n9d started (SpecChanged, "
        "NewClusterWithIncrementalUpgrade)",
        "unfurl_links": False,
        "unfurl_media": False,
    }
    assert [body["event"] for body in receiver.bodies("pager")[: len(EVENTS)]] == [
        msgspec.json.decode(upgrade_events.encode(event).payload) for event in EVENTS
    ]
    assert await notifier.get("/readyz") == "ok\n"
    assert await notifier.metric("sent_total") == dict.fromkeys(
        receiver.requests, float(len(receiver.ids("slack")))
    )
    assert await notifier.metric("newest_event_timestamp_seconds") == dict.fromkeys(
        receiver.requests, a_retreat()[-1].time.timestamp()
    )
    assert notifier.stop() == 0


async def test_a_destination_with_a_key_gets_signed_requests(
    at: Outside, receiver: Receiver, notifier: Notifier
) -> None:
    await at.publish(EVENTS[:1])
    for name in receiver.requests:
        await receiver.until(name, 1)
    ((headers, body),) = receiver.requests["pager"]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    assert not [name for name in receiver.requests["slack"][0][0] if name.startswith("webhook-")]


async def test_a_destination_that_is_down_blocks_no_other_and_gets_its_events_later(
    at: Outside, receiver: Receiver, notifier: Notifier
) -> None:
    receiver.down = {"slack"}
    await at.publish(EVENTS)
    await receiver.until("pager", len(EVENTS))
    await receiver.until("slack", 2)
    assert set(receiver.ids("slack")) == {IDS[0]}
    receiver.down.clear()
    await eventually(
        lambda: receiver.ids("slack")[-1] == IDS[-1], within=TIMEOUT, what="the last event"
    )
    assert list(dict.fromkeys(receiver.ids("slack"))) == IDS
    assert receiver.ids("pager") == IDS


async def test_a_new_process_goes_on_where_the_former_one_was_stopped(
    at: Outside, receiver: Receiver, notifier: Notifier
) -> None:
    """While one destination is down, the other destination gets nothing twice.

    The waiting event is delivered as soon as the destination is up.
    """
    receiver.down = {"slack"}
    await at.publish(EVENTS[:3])
    await receiver.until("pager", 3)
    await receiver.until("slack", 1)
    await eventually_true(
        lambda: _is_acknowledged(at, 3), within=TIMEOUT, every=0.05, what="acknowledgements"
    )
    assert notifier.stop() == 0
    receiver.down.clear()
    tried = len(receiver.ids("slack"))
    await at.publish(EVENTS[3:])
    notifier.start()
    await receiver.until("slack", tried + len(EVENTS))
    await receiver.until("pager", len(EVENTS))
    assert receiver.ids("slack")[tried:] == IDS
    assert receiver.ids("pager") == IDS


class _Place(msgspec.Struct, frozen=True):
    stream_seq: int


class _Consumer(msgspec.Struct, frozen=True):
    ack_floor: _Place


async def _is_acknowledged(at: Outside, count: int) -> bool:
    bus = await at.bus("subscriber")
    return (
        await bus.api("CONSUMER.INFO.RAY_EVENTS.pager", None, _Consumer)
    ).ack_floor.stream_seq >= count


async def test_nothing_is_lost_when_the_process_is_killed_and_nats_restarts(
    at: Outside, receiver: Receiver, notifier: Notifier
) -> None:
    receiver.down = {"slack"}
    await at.publish(EVENTS[:2])
    await receiver.until("slack", 1)
    notifier.kill()
    at.secured.server.kill()
    at.secured.server.start()
    receiver.down.clear()
    notifier.start()
    await at.publish(EVENTS[2:])
    for accepted in receiver.accepted.values():
        await eventually(
            lambda accepted=accepted: set(accepted) == set(IDS), within=TIMEOUT, what="all events"
        )


async def test_an_event_is_dropped_after_so_many_attempts_and_the_next_one_follows(
    at: Outside, receiver: Receiver, tmp_path: Path
) -> None:
    notifier = Notifier(at, receiver, tmp_path)
    notifier.file.write_text(f"{FILE}attempts: 2\n")
    receiver.answers["slack"] = [web.Response(status=500), web.Response(status=500)]
    notifier.start()
    try:
        await at.publish(EVENTS[:2])
        await receiver.until("slack", 3)
        assert receiver.ids("slack") == [IDS[0], IDS[0], IDS[1]]
        await receiver.until("pager", 2)
        assert await notifier.metric("dropped_total") == {"slack": 1.0, "pager": 0.0}
        assert await notifier.metric("failed_total") == {"slack": 2.0, "pager": 0.0}
    finally:
        notifier.kill()
    (dropped,) = (line for line in notifier.logged if line["msg"] == "dropped")
    assert (dropped["destination"], dropped["id"], dropped["reason"]) == (
        "slack",
        IDS[0],
        "status 500, attempt 2 of 2",
    )


async def test_no_redirect_is_followed_and_no_answer_is_read(
    at: Outside, receiver: Receiver, notifier: Notifier
) -> None:
    elsewhere = {"Location": f"http://127.0.0.1:{receiver.port}{PATH}/pager"}
    receiver.answers["slack"] = [
        web.Response(status=307, headers=elsewhere),
        web.Response(body=b"x" * 50_000_000),
    ]
    await at.publish(EVENTS[:1])
    await receiver.until("slack", 2)
    await at.publish(EVENTS[1:2])
    await receiver.until("slack", 3)
    assert receiver.ids("slack") == [IDS[0], IDS[0], IDS[1]]
    await receiver.until("pager", 2)
    assert receiver.ids("pager") == IDS[:2]


async def test_filters_and_templates_of_the_file_are_used(
    at: Outside, receiver: Receiver, tmp_path: Path
) -> None:
    notifier = Notifier(at, receiver, tmp_path)
    notifier.file.write_text(
        "destinations:\n- {name: slack, kinds: [promoted], namespaces: [default], rayServices: [greeter]}\n"
        "allowHttp: true\ntemplates: {promoted: '*$name*: $upgrade_to'}\n"
    )
    notifier.start()
    try:
        await at.publish(
            [*EVENTS, *an_example_upgrade("other"), *an_example_upgrade(namespace="team-b")]
        )
        await at.publish(an_example_upgrade("last", namespace="default"))
        await receiver.until("slack", 1)
        await eventually_true(
            lambda: _is_done(at), within=TIMEOUT, every=0.05, what="the end of the stream"
        )
        assert [body["text"] for body in receiver.bodies("slack")] == ["*greeter*: demo-b4n9d"]
    finally:
        notifier.kill()


async def test_a_destination_gets_the_ends_of_the_runs_of_a_cron_job(
    at: Outside, receiver: Receiver, tmp_path: Path
) -> None:
    notifier = Notifier(at, receiver, tmp_path)
    notifier.file.write_text(
        "destinations:\n- {name: slack, kinds: [job-succeeded, job-failed], rayCronJobs: [nightly]}\n"
        "allowHttp: true\ntemplates: {job-failed: '$name: $reason in attempt $attempt_number'}\n"
    )
    notifier.start()
    try:
        of_jobs = [jobs.a_job_event(data, seconds=seconds) for seconds, data in jobs.EXAMPLES]
        await at.publish([*EVENTS, *of_jobs])
        await receiver.until("slack", 2)
        await eventually_true(
            lambda: _is_done(at), within=TIMEOUT, every=0.05, what="the end of the stream"
        )
        assert [body["text"] for body in receiver.bodies("slack")] == [
            f"team-a/{jobs.NAME}: the job has succeeded after 312 s",
            f"{jobs.NAME}: DeadlineExceeded in attempt 1",
        ]
    finally:
        notifier.kill()


class _Rest(msgspec.Struct, frozen=True):
    num_pending: int
    num_ack_pending: int


async def _is_done(at: Outside) -> bool:
    """Return whether every event of the stream is acknowledged."""
    found = await (await at.bus("subscriber")).api("CONSUMER.INFO.RAY_EVENTS.slack", None, _Rest)
    return (found.num_pending, found.num_ack_pending) == (0, 0)


async def test_events_from_before_the_destination_was_added_are_not_sent(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with outside(tmp_path / "nats", subscribers=(SLACK, PAGER)) as at:
        await at.publish(EVENTS)
        async with notifying(at, receiver, tmp_path) as notifier:
            await eventually_true(
                lambda: _names(notifier, "NATS_SUBSCRIBERS"),
                every=0.1,
                what="the remedy in /readyz",
            )
            await at.admit(SLACK, PAGER)
            await eventually_true(lambda: _names(notifier, "ok"), every=0.1, what="readiness")
            await at.publish(a_retreat())
            await receiver.until("slack", len(a_retreat()))
            assert receiver.ids("slack") == [event.id for event in a_retreat()]


async def _names(notifier: Notifier, text: str) -> bool:
    try:
        return text in await notifier.get("/readyz")
    except httpx.TransportError:
        return False


async def test_an_event_that_is_none_is_dropped(
    at: Outside, receiver: Receiver, notifier: Notifier
) -> None:
    service = await at.bus("service-reconciler")
    for number, payload in enumerate((b"{", b'{"type":"x"}')):
        await service.publish(
            "ray.events.a.b.c", payload, {}, expected=None, message_id=f"wrong-{number}"
        )
    await at.publish(EVENTS[:1])
    await receiver.until("slack", 1)
    assert receiver.ids("slack") == IDS[:1]
    assert (await notifier.metric("dropped_total"))["slack"] == 2.0


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            f"{FILE}templates: {{stalled: $reasson}}",
            "notifications.yaml: templates.stalled: there is no field $reasson",
        ),
        (FILE.replace("allowHttp: true", ""), "slack.url: expected https://; set allowHttp: true"),
    ],
)
async def test_a_wrong_setting_ends_the_process_with_one_line(
    at: Outside, receiver: Receiver, tmp_path: Path, text: str, reported: str
) -> None:
    notifier = Notifier(at, receiver, tmp_path)
    notifier.file.write_text(text)
    notifier.start()
    assert notifier.running.wait(timeout=20.0) == 2
    (line,) = notifier.log.read_text().splitlines()
    assert line.startswith("notifications: ")
    assert reported in line
    notifier.kill()


def test_the_time_that_nats_waits_covers_an_attempt_between_two_extensions() -> None:
    assert (EXTEND_SECONDS + MAX_TIMEOUT) * streams.SECOND < ACK_WAIT
