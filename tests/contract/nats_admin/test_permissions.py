"""The table of users against a real server with the generated configuration.

The tests check what each user may do, and what the server refuses.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from nats.aio.client import Client

from common import errors
from common.bus import nkeys, streams, subjects
from common.bus.consumer import StreamSource, consume
from common.bus.nats import connect
from common.settings import Settings
from nats_admin import event_streams, permissions, stream_keeper
from support.servers.relayed import Secured, secured_nats
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

STATE = "ray.state.3.service.pod.ns.one"
MARKER = "ray.state.3.service.synced"
JOB_STATE = "ray.state.3.job.rayjob.ns.sum"
JOB_MARKER = "ray.state.3.job.synced"
EVENT = "ray.events.ns.svc.started"
API = "$JS.API"
READ = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.>"
READ_PART = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.3.>"
READ_SERVICES = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.3.service.>"
READ_MARKER = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.0.service.synced"
READ_JOBS = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.3.job.>"
READ_JOB_MARKER = f"{API}.CONSUMER.CREATE.RAY_STATE.any.ray.state.0.job.synced"
READ_EVENTS = f"{API}.CONSUMER.CREATE.RAY_EVENTS.any.ray.events.>"
MAKE_STATE = {f"{API}.STREAM.INFO.RAY_STATE", f"{API}.STREAM.CREATE.RAY_STATE"}
MAKE_EVENTS = {f"{API}.STREAM.INFO.RAY_EVENTS", f"{API}.STREAM.CREATE.RAY_EVENTS"}
OTHER_STATE = "ray.state.63.cluster.raycluster.ns.other"
OTHER_EVENT = "ray.events.other.svc.promoted"
READING_SERVICES = {READ_SERVICES, READ_MARKER, "$JS.FC.RAY_STATE.any.1"}
READING_JOBS = {READ_JOBS, READ_JOB_MARKER, "$JS.FC.RAY_STATE.any.1"}
READING = {READ, READ_PART, *READING_SERVICES, *READING_JOBS}
MAKING = {
    f"{API}.STREAM.{verb}.{stream}"
    for verb in ("INFO", "CREATE")
    for stream in ("RAY_STATE", "RAY_EVENTS")
}
CHANGING = {f"{API}.STREAM.UPDATE.{stream}" for stream in ("RAY_STATE", "RAY_EVENTS")}
MAKING_MIRROR = {f"{API}.STREAM.{verb}.RAY_EVENTS" for verb in ("INFO", "CREATE")}
MAKING_CONSUMERS = {f"{API}.CONSUMER.{verb}.RAY_EVENTS.any" for verb in ("INFO", "CREATE")}

DISCOVERY = {f"{API}.INFO", f"{API}.STREAM.NAMES", f"{API}.STREAM.LIST"}
RECOVERING_STATE, RECOVERING_EVENTS = (
    {
        *(f"{API}.STREAM.{verb}.{stream}" for verb in ("INFO", "DELETE", "SNAPSHOT", "RESTORE")),
        *(f"$JS.SNAPSHOT.{verb}.{stream}.any" for verb in ("ACK", "RESTORE")),
    }
    for stream in ("RAY_STATE", "RAY_EVENTS")
)

ALLOWED: Final[dict[str, set[str]]] = {
    "watcher": {
        *READING,
        STATE,
        OTHER_STATE,
        MARKER,
        JOB_STATE,
        JOB_MARKER,
        f"{API}.STREAM.INFO.RAY_STATE",
        f"{API}.STREAM.PURGE.RAY_STATE",
        f"{API}.DIRECT.GET.RAY_STATE.{STATE}",
    },
    "cluster-reconciler": {*READING, "ray.members.cluster-reconciler"},
    "service-reconciler": {*READING_SERVICES, EVENT, OTHER_EVENT, "ray.members.service-reconciler"},
    "traffic-manager": {*READING_SERVICES, "ray.members.traffic-manager"},
    "job-reconciler": {*READING_JOBS, EVENT, OTHER_EVENT, "ray.members.job-reconciler"},
    "keeper": MAKING,
    "provisioner": MAKING | CHANGING,
    "keeper-outside": MAKING_MIRROR | MAKING_CONSUMERS,
    "provisioner-outside": {*MAKING_MIRROR, *MAKING_CONSUMERS, f"{API}.STREAM.UPDATE.RAY_EVENTS"},
    "administrator": {*DISCOVERY, *RECOVERING_STATE, *RECOVERING_EVENTS, "ray.recovery"},
    "administrator-outside": {
        *DISCOVERY,
        *RECOVERING_EVENTS,
        f"{API}.CONSUMER.NAMES.RAY_EVENTS",
        f"{API}.CONSUMER.LIST.RAY_EVENTS",
        f"{API}.CONSUMER.INFO.RAY_EVENTS.any",
        f"{API}.CONSUMER.DELETE.RAY_EVENTS.any",
        "ray.recovery",
    },
    "subscriber": {
        f"{API}.INFO",
        f"{API}.STREAM.NAMES",
        f"{API}.STREAM.LIST",
        f"{API}.STREAM.INFO.RAY_EVENTS",
        f"{API}.STREAM.MSG.GET.RAY_EVENTS",
        f"{API}.DIRECT.GET.RAY_EVENTS",
        f"{API}.DIRECT.GET.RAY_EVENTS.{EVENT}",
        f"{API}.CONSUMER.CREATE.RAY_EVENTS",
        f"{API}.CONSUMER.CREATE.RAY_EVENTS.any",
        f"{API}.CONSUMER.CREATE.RAY_EVENTS.any.>",
        f"{API}.CONSUMER.CREATE.RAY_EVENTS.any.{STATE}",
        READ_EVENTS,
        f"{API}.CONSUMER.INFO.RAY_EVENTS.any",
        f"{API}.CONSUMER.MSG.NEXT.RAY_EVENTS.any",
        f"{API}.CONSUMER.DELETE.RAY_EVENTS.any",
        "$JS.ACK.RAY_EVENTS.any.1.1.1.1.1",
        "$JS.FC.RAY_EVENTS.any.1",
    },
}
"""All subjects that each user may publish to, of those that are tried.

The server must refuse every other subject that is tried."""
USERS: Final = tuple(ALLOWED)
STREAMS: Final = ("RAY_STATE", "RAY_EVENTS", "OTHER")

CLASSES: Final[dict[str, list[str]]] = {
    "what others publish": [STATE, OTHER_STATE, MARKER, JOB_STATE, JOB_MARKER, EVENT, OTHER_EVENT],
    "the hint of each service's replicas": [f"ray.members.{name}" for name in permissions.SERVICES],
    "anything else": [
        *("anything.else", "ray.other", "ray.state", "ray.events", "ray.members.anybody"),
        "$KV.any.key",
    ],
    "answers to others": [*(f"_INBOX_{name}.answer.1" for name in USERS), "_INBOX.answer.1"],
    "streams: make, change, empty, remove": [
        f"{API}.STREAM.{verb}.{stream}"
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE")
        for stream in STREAMS
    ],
    "streams: read": [
        f"{API}.{verb}.{stream}"
        for verb in (
            "STREAM.INFO",
            "STREAM.MSG.GET",
            "DIRECT.GET",
            "CONSUMER.NAMES",
            "CONSUMER.LIST",
        )
        for stream in STREAMS
    ],
    "streams: read one message": [
        f"{API}.DIRECT.GET.RAY_STATE.{STATE}",
        f"{API}.DIRECT.GET.RAY_EVENTS.{EVENT}",
    ],
    "streams: list": [f"{API}.INFO", f"{API}.STREAM.NAMES", f"{API}.STREAM.LIST"],
    "consumers without a filter, or with another": [
        f"{API}.CONSUMER.{verb}"
        for stream in STREAMS
        for verb in (
            f"CREATE.{stream}",
            f"CREATE.{stream}.any",
            f"CREATE.{stream}.any.>",
            f"DURABLE.CREATE.{stream}.any",
        )
    ],
    "consumers of one stream with the filter of another": [
        f"{API}.CONSUMER.CREATE.RAY_STATE.any.{EVENT}",
        f"{API}.CONSUMER.CREATE.RAY_EVENTS.any.{STATE}",
    ],
    "consumers with a filter": [
        READ,
        READ_PART,
        READ_SERVICES,
        READ_MARKER,
        READ_JOBS,
        READ_JOB_MARKER,
        READ_EVENTS,
    ],
    "consumers: use and remove": [
        f"{API}.CONSUMER.{verb}.{stream}.any"
        for verb in ("INFO", "MSG.NEXT", "DELETE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN")
        for stream in STREAMS
    ],
    "snapshots": [
        f"$JS.SNAPSHOT.{verb}.{stream}.any" for verb in ("ACK", "RESTORE") for stream in STREAMS
    ],
    "an administrator's notice": ["ray.recovery"],
    "acknowledgements": [f"$JS.ACK.{stream}.any.1.1.1.1.1" for stream in STREAMS],
    "flow control": [f"$JS.FC.{stream}.any.1" for stream in STREAMS],
    "the server itself": [
        f"{API}.STREAM.LEADER.STEPDOWN.RAY_STATE",
        f"{API}.STREAM.PEER.REMOVE.RAY_STATE",
        f"{API}.META.LEADER.STEPDOWN",
        f"{API}.SERVER.REMOVE",
        f"{API}.ACCOUNT.PURGE.RAY",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.VARZ",
        "$SYS.REQ.ACCOUNT.RAY.CONNZ",
    ],
    "the border between the accounts": [
        "JS.ray.CONSUMER.CREATE.RAY_EVENTS",
        "JS.ray.CONSUMER.CREATE.RAY_STATE",
        "JS.ray.STREAM.DELETE.RAY_EVENTS",
        "mirror.outside.any",
    ],
}
PROBED: Final = list(dict.fromkeys(subject for group in CLASSES.values() for subject in group))
LISTENED: Final = (
    *(f"_INBOX_{name}.answer.1" for name in USERS),
    *(f"_INBOX_{name}.>" for name in USERS),
    *(f"ray.members.{name}" for name in permissions.SERVICES),
    "_INBOX.>",
    "ray.state.>",
    "ray.events.>",
    "ray.members.>",
    "ray.recovery",
    "mirror.outside.>",
    "JS.ray.>",
    "$JS.>",
    "$SYS.>",
    ">",
    "*",
)
BESIDES: Final[dict[str, set[str]]] = {
    "cluster-reconciler": {"ray.members.cluster-reconciler"},
    "service-reconciler": {"ray.members.service-reconciler"},
    "traffic-manager": {"ray.members.traffic-manager"},
    "job-reconciler": {"ray.members.job-reconciler"},
    "subscriber": {"_INBOX.>", "ray.events.>"},
    "administrator": {"_INBOX.>"},
    "keeper": {"ray.recovery"},
    "keeper-outside": {"ray.recovery"},
}
"""Subjects that a user receives besides its own inbox."""


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
        """Wait until the server has judged everything that was sent, and return its errors."""
        await self.client.flush()
        return self.refused


def _trusting(settings: Settings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(settings.nats_ca_file))


def test_each_user_is_probed_and_each_right_is_among_what_is_probed() -> None:
    assert set(USERS) == {user.name for user in permissions.USERS}
    assert {subject for allowed in ALLOWED.values() for subject in allowed} <= set(PROBED)
    unproved = {
        (user.name, right)
        for user in permissions.USERS
        for right in user.publish
        if not any(_matches(right, subject) for subject in ALLOWED[user.name])
    }
    assert unproved == set()


@pytest.mark.parametrize("user", USERS)
async def test_a_user_may_publish_what_its_row_allows_and_nothing_else(
    secured: Secured, user: str
) -> None:
    probe = Probe()
    await probe.open(secured.settings(user))
    try:
        for subject in PROBED:
            await probe.client.publish(subject, b"")
            await probe.client.flush()  # one at a time: of errors that come together some are lost
        refused = "\n".join(await probe.refusals())
        assert {subject for subject in PROBED if f'"{subject.lower()}"' not in refused} == ALLOWED[
            user
        ]
    finally:
        await probe.client.close()


@pytest.mark.parametrize("user", USERS)
async def test_a_user_receives_from_its_own_inbox_and_no_other(secured: Secured, user: str) -> None:
    probe = Probe()
    await probe.open(secured.settings(user))
    try:
        for subject in LISTENED:
            await probe.client.subscribe(subject)  # pyright: ignore[reportUnknownMemberType]  (an untyped Future in its signature)
            await probe.client.flush()
        refused = "\n".join(await probe.refusals())
        assert {subject for subject in LISTENED if f'"{subject.lower()}"' not in refused} == {
            f"_INBOX_{user}.answer.1",
            f"_INBOX_{user}.>",
        } | BESIDES.get(user, set())
    finally:
        await probe.client.close()


def _matches(right: str, subject: str) -> bool:
    """Return whether a pattern of the table covers a subject."""
    pattern, tokens = right.split("."), subject.split(".")
    if pattern[-1] == ">":
        return len(tokens) >= len(pattern) and all(
            a in {"*", b} for a, b in zip(pattern[:-1], tokens, strict=False)
        )
    return len(tokens) == len(pattern) and all(
        a in {"*", b} for a, b in zip(pattern, tokens, strict=True)
    )


async def test_a_seed_that_the_server_does_not_know_is_turned_away(
    secured: Secured, tmp_path: Path
) -> None:
    stranger = tmp_path / "users" / "stranger.seed"
    stranger.write_text(nkeys.new_seed())
    async with connect(secured.settings("stranger")) as bus:
        await eventually(lambda: "uthorization" in (bus.problem or ""), what="the refusal")


async def test_external_consumers_replay_events_and_see_nothing_else(secured: Secured) -> None:
    async with (
        connect(secured.settings("provisioner")) as own,
        connect(secured.settings("provisioner-outside")) as far,
    ):
        await own.session()
        await far.session()
        assert (
            await stream_keeper.ensure_streams(
                own, [streams.build_state_config(), event_streams.build_stream_config()]
            )
            == []
        )
        assert await stream_keeper.ensure_streams(far, [event_streams.build_mirror_config()]) == []
        assert (
            await stream_keeper.ensure_streams(
                own, [streams.build_state_config(), event_streams.build_stream_config()]
            )
            == []
        )
        assert await stream_keeper.ensure_streams(far, [event_streams.build_mirror_config()]) == []
    async with connect(secured.settings("service-reconciler")) as service:
        await service.session()
        await service.publish(
            EVENT, b'{"specversion":"1.0"}', {}, expected=None, message_id="event-1"
        )

    reported: list[bytes] = []
    async with connect(secured.settings("subscriber")) as outside:
        await outside.session()
        source = StreamSource(
            stream=subjects.EVENTS_STREAM, filter=subjects.ALL_EVENTS, name="replay"
        )
        async with consume(
            outside, source, take=lambda stored: reported.append(stored.payload), read=lambda: None
        ) as reading:
            await eventually(lambda: reported, what="the event in the mirror")
            assert not reading._broken.done()  # pyright: ignore[reportPrivateUsage]  (what `until_broken` waits for)
    assert reported == [b'{"specversion":"1.0"}']


async def test_a_stream_with_a_wrong_setting_is_named_field_by_field(secured: Secured) -> None:
    async with connect(secured.settings("provisioner")) as own:
        await own.session()
        await stream_keeper.ensure_streams(
            own, [{**streams.build_state_config(), "max_msgs_per_subject": 5}]
        )

        assert await stream_keeper.ensure_streams(own, [streams.build_state_config()]) == [
            "stream RAY_STATE: max_msgs_per_subject is 5, must be 1"
        ]


async def test_a_missing_stream_is_made_again_within_two_seconds(secured: Secured) -> None:
    async with connect(secured.settings("provisioner")) as own, asyncio.TaskGroup() as group:
        await own.session()
        check = stream_keeper.LastCheck()
        assert check.problem
        keeping = group.create_task(
            stream_keeper.keep_streams(
                own,
                [streams.build_state_config(), event_streams.build_stream_config()],
                last_check=check,
            )
        )
        await _until_there(secured, within=2.0)
        await eventually(lambda: check.problem is None, what="a check of all streams")
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
