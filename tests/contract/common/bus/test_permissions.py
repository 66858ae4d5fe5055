"""The table of users against a real server with the generated configuration: what each may do, and what it is refused."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from nats.aio.client import Client

from common import errors
from common.bus import credentials, permissions, provision, streams, subjects
from common.bus.consumer import Source, consume
from common.bus.nats import connect
from common.runtime.settings import Settings
from support.servers.relayed import Secured, secured_nats
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

STATE = "ray.state.3.pod.ns.one"
MARKER = "ray.state.3.synced"
EVENT = "ray.events.ns.svc.Started"
API = "$JS.API"
READ = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.>"
READ_PART = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.3.>"

ALLOWED: Final[dict[str, set[str]]] = {
    "watcher": {STATE, MARKER, READ, READ_PART, f"{API}.STREAM.INFO.RAY_STATE", f"{API}.DIRECT.GET.RAY_STATE.{STATE}"},
    "cluster-reconciler": {READ, READ_PART},
    "service-reconciler": {READ, READ_PART, EVENT},
    "traffic-manager": {READ, READ_PART, EVENT},
    "provisioner": {
        f"{API}.STREAM.INFO.RAY_STATE",
        f"{API}.STREAM.CREATE.RAY_STATE",
        f"{API}.STREAM.INFO.RAY_EVENTS",
        f"{API}.STREAM.CREATE.RAY_EVENTS",
    },
    "provisioner-outside": {f"{API}.STREAM.INFO.RAY_EVENTS", f"{API}.STREAM.CREATE.RAY_EVENTS"},
    "subscriber": {f"{API}.STREAM.INFO.RAY_EVENTS", f"{API}.CONSUMER.CREATE.RAY_EVENTS.any.ray.events.>"},
}
PROBED: Final = sorted(
    {subject for allowed in ALLOWED.values() for subject in allowed}
    | {
        f"{API}.STREAM.DELETE.RAY_STATE",
        f"{API}.STREAM.PURGE.RAY_STATE",
        f"{API}.STREAM.UPDATE.RAY_STATE",
        f"{API}.STREAM.MSG.DELETE.RAY_STATE",
        f"{API}.STREAM.DELETE.RAY_EVENTS",
        f"{API}.STREAM.PURGE.RAY_EVENTS",
        f"{API}.STREAM.CREATE.OTHER",
        f"{API}.CONSUMER.CREATE.RAY_STATE",
        f"{API}.CONSUMER.CREATE.RAY_STATE.any",
        f"{API}.CONSUMER.CREATE.RAY_STATE.any.>",
        f"{API}.CONSUMER.DELETE.RAY_STATE.any",
        "$SYS.REQ.SERVER.PING",
        "anything.else",
    }
)


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncGenerator[Secured]:
    async with secured_nats(tmp_path) as running:
        yield running


class Probe:
    """A plain connection of one user that remembers what the server refused."""

    def __init__(self) -> None:
        self.client = Client()
        self.refused: list[str] = []

    async def open(self, settings: Settings) -> None:
        async def on_error(problem: Exception) -> None:
            self.refused.append(str(problem).lower())

        await self.client.connect(
            servers=[settings.nats_url],
            nkeys_seed=str(settings.nats_seed_file),
            tls=_trusting(settings),
            error_cb=on_error,
            allow_reconnect=False,
        )

    async def refusals(self) -> list[str]:
        """Wait for the server to have judged all that was sent; return what it said."""
        await self.client.flush()
        return self.refused


def _trusting(settings: Settings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(settings.nats_ca_file))


@pytest.mark.parametrize("user", [user.name for user in permissions.USERS])
async def test_a_user_may_publish_what_its_row_says_and_nothing_else(secured: Secured, user: str) -> None:
    probe = Probe()
    await probe.open(secured.settings(user))
    try:
        for subject in PROBED:
            await probe.client.publish(subject, b"")
            await probe.client.flush()
        refused = await probe.refusals()
        allowed = {subject for subject in PROBED if not any(f'"{subject.lower()}"' in each for each in refused)}
        assert allowed == ALLOWED[user]
    finally:
        await probe.client.close()


@pytest.mark.parametrize("user", [user.name for user in permissions.USERS])
async def test_a_user_hears_its_own_inbox_and_no_other(secured: Secured, user: str) -> None:
    probe = Probe()
    await probe.open(secured.settings(user))
    try:
        for subject in [f"_INBOX_{name}.x" for name in ALLOWED] + ["ray.state.>", ">", "ray.events.>"]:
            await probe.client.subscribe(subject)  # pyright: ignore[reportUnknownMemberType]  (an untyped Future in its signature)
            await probe.client.flush()
        refused = await probe.refusals()
        own = {f"_inbox_{user}.x", *(["ray.events.>"] if user == "subscriber" else [])}
        heard = [f"_inbox_{name}.x" for name in ALLOWED] + ["ray.state.>", ">", "ray.events.>"]
        assert {subject for subject in heard if not any(f'"{subject}"' in each for each in refused)} == own
    finally:
        await probe.client.close()


async def test_a_seed_that_the_server_does_not_know_is_turned_away(secured: Secured, tmp_path: Path) -> None:
    stranger = tmp_path / "users" / "stranger.seed"
    stranger.write_text(credentials.new_seed())
    async with connect(secured.settings("stranger")) as bus:
        await eventually(lambda: "uthorization" in (bus.problem or ""), what="the refusal")


async def test_outsiders_replay_events_and_see_nothing_else(secured: Secured) -> None:
    async with connect(secured.settings("provisioner")) as own, connect(secured.settings("provisioner-outside")) as far:
        await own.session()
        await far.session()
        assert await provision.ensure(own, [streams.state(), streams.events()]) == []
        assert await provision.ensure(far, [streams.events_mirror()]) == []
        assert await provision.ensure(own, [streams.state(), streams.events()]) == []
        assert await provision.ensure(far, [streams.events_mirror()]) == []
    async with connect(secured.settings("service-reconciler")) as service:
        await service.session()
        await service.publish(EVENT, b'{"specversion":"1.0"}', {}, expected=None, message_id="event-1")

    told: list[bytes] = []
    async with connect(secured.settings("subscriber")) as outside:
        await outside.session()
        source = Source(stream=subjects.EVENTS_STREAM, filter=subjects.ALL_EVENTS, name="replay")
        async with consume(
            outside, [source], take=lambda stored: told.append(stored.payload), read=lambda: None
        ) as reading:
            await eventually(lambda: told, what="the event in the mirror")
            assert not reading.is_broken
    assert told == [b'{"specversion":"1.0"}']


async def test_a_stream_with_a_wrong_setting_is_named_field_by_field(secured: Secured) -> None:
    async with connect(secured.settings("provisioner")) as own:
        await own.session()
        await provision.ensure(own, [{**streams.state(), "max_msgs_per_subject": 5}])

        assert await provision.ensure(own, [streams.state()]) == [
            "stream RAY_STATE: max_msgs_per_subject is 5, must be 1"
        ]


async def test_a_missing_stream_is_made_again_within_two_seconds(secured: Secured) -> None:
    async with connect(secured.settings("provisioner")) as own, asyncio.TaskGroup() as group:
        await own.session()
        keeping = group.create_task(provision.keep(own, [streams.state(), streams.events()]))
        await _until_there(secured, within=2.0)
        secured.server.kill()
        secured.server.lose_store()
        secured.server.start()
        await _until_there(secured, within=4.0)
        keeping.cancel()


async def _until_there(secured: Secured, *, within: float) -> None:
    async with connect(secured.settings("watcher")) as bus, asyncio.timeout(within):
        while True:
            try:
                await bus.session()
                await bus.stream(subjects.STATE_STREAM)
            except errors.Retryable:
                await asyncio.sleep(0.05)
            else:
                return
