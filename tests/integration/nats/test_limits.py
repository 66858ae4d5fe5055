"""A NATS server that cannot store: the publisher's error, and the recovery."""

import asyncio
import os
import random
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from common import errors
from common.bus import streams, subjects
from common.bus.messages import Message, ObjectState, Tombstone
from common.bus.nats import Bus, connect
from common.bus.subjects import TreeKind, TreeLocation
from common.kube.installation import Installation
from common.settings import Settings
from nats_admin import event_streams, stream_keeper
from nats_admin.reload import NeighborServer
from nats_admin.server_keeper import DiskWatch
from raybus_cli import child_processes
from support.fakes.kube import FakeKube
from support.servers.nats import nats_server
from support.tables import cases
from support.waiting import eventually, eventually_true
from watcher.adapters.bus import NatsStream
from watcher.outbox import Outbox

pytestmark = [pytest.mark.integration]

NOISE: Final = random.Random(1).randbytes(900_000)
SUBJECT: Final = "ray.state.3.pod.ns.one"


async def publish(bus: Bus, name: str = "one", payload: bytes = NOISE) -> int:
    return await bus.publish(
        f"ray.state.3.pod.ns.{name}", payload, {}, expected=None, message_id=name
    )


async def filled(bus: Bus) -> str:
    """Publish until the server refuses; return its error."""
    for number in range(20):
        try:
            await publish(bus, f"filler-{number}")
        except errors.RaybusError as problem:
            return f"{type(problem).__name__}: {problem}"
    raise AssertionError("the server took everything")


@pytest_asyncio.fixture
async def bus(tmp_path: Path) -> AsyncGenerator[Bus]:
    configuration = (
        f'max_payload: 2MB\njetstream {{store_dir: "{tmp_path}/jetstream", max_file_store: 3MB}}\n'
    )
    with nats_server(tmp_path, configuration=configuration) as server:
        async with connect(Settings(service="test", nats_url=server.url)) as connected:
            await connected.session()
            await stream_keeper.ensure_streams(connected, [streams.build_state_config()])
            yield connected


async def change(bus: Bus, **fields: object) -> None:
    await bus.api(
        "STREAM.UPDATE.RAY_STATE", {**streams.build_state_config(), **fields}, dict[str, Any]
    )


async def test_a_limit_of_the_server_is_named_and_nothing_that_is_stored_is_lost(bus: Bus) -> None:
    assert await filled(bus) == (
        "OutOfRoom: NATS refused ray.state.3.pod.ns.filler-4: insufficient resources (10023); "
        "raise the limits of JetStream or free its disk"
    )
    assert (await bus.stream("RAY_STATE")).state.messages == 4


async def test_a_stream_that_has_no_room_on_the_server_is_named(bus: Bus) -> None:
    with pytest.raises(errors.Unavailable) as refused:
        await stream_keeper.ensure_streams(bus, [event_streams.build_stream_config()])
    assert str(refused.value) == (
        "NATS refused STREAM.CREATE.RAY_EVENTS: insufficient storage resources available (10047); "
        "raise max_file_store of the server, or give it a larger disk"
    )


@cases(
    ("fields", "kind", "reason"),
    {
        "a limit of the stream": (
            {"max_bytes": 100_000, "discard": "new"},
            errors.Unavailable,
            "maximum bytes exceeded (10077); raise max_bytes of the stream or free its disk",
        ),
        "a limit of messages": (
            {"max_msg_size": 1000},
            errors.Rejected,
            "message size exceeds maximum allowed (10054); raise max_msg_size of the stream",
        ),
        "sealed": (
            {"sealed": True},
            errors.Unavailable,
            "invalid operation on sealed stream (10109); delete the stream; "
            "the provisioner makes it anew and it is filled again",
        ),
    },
)
async def test_a_stream_that_takes_no_message_reports_why(
    fields: dict[str, object], kind: type[errors.RaybusError], reason: str, bus: Bus
) -> None:
    await change(bus, **fields)

    with pytest.raises(kind) as refused:
        await publish(bus)
    assert str(refused.value) == f"NATS refused {SUBJECT}: {reason}"


async def test_a_wrong_stream_is_reported_field_by_field_and_corrected_by_the_provisioner(
    bus: Bus,
) -> None:
    await change(bus, max_bytes=1_000_000, allow_direct=False)
    await publish(bus)
    wrong = ["allow_direct is False, must be True", "max_bytes is 1000000, must be -1"]

    assert await stream_keeper.ensure_streams(bus, [streams.build_state_config()]) == [
        f"stream RAY_STATE: {field}" for field in wrong
    ]
    assert streams.find_unusable_fields((await bus.stream("RAY_STATE")).config) == wrong
    assert (
        await stream_keeper.ensure_streams(bus, [streams.build_state_config()], may_change=True)
        == []
    )
    assert (await bus.stream("RAY_STATE")).state.messages == 1


async def test_a_field_that_cannot_change_is_reported_with_the_reason_of_the_server(
    bus: Bus,
) -> None:
    await change(bus, sealed=True)

    assert await stream_keeper.ensure_streams(
        bus, [streams.build_state_config()], may_change=True
    ) == [
        # Sealing a stream has the server set this as well.
        "stream RAY_STATE: discard is 'new', must be 'old'",
        "stream RAY_STATE: sealed is True, must be False",
        "stream RAY_STATE: and cannot be changed: NATS refused STREAM.UPDATE.RAY_STATE: "
        "stream configuration update can not unseal a sealed stream (10052)",
    ]


async def test_a_stream_for_more_servers_than_there_are_is_named(bus: Bus) -> None:
    await bus.api("STREAM.DELETE.RAY_STATE", None, dict[str, Any])

    with pytest.raises(
        errors.Unavailable,
        match="too few servers of the cluster are there for the replicas asked for",
    ):
        await stream_keeper.ensure_streams(bus, [streams.build_state_config(replicas=3)])


async def test_an_object_of_1_2_megabytes_passes_and_what_is_too_large_is_named(bus: Bus) -> None:
    assert await publish(bus, payload=NOISE + NOISE[:300_000]) == 1

    with pytest.raises(errors.Rejected) as refused:
        await publish(bus, payload=3 * NOISE)
    assert str(refused.value) == f"{SUBJECT}: 2700000 bytes are more than the server takes"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def test_a_full_disk_is_named_and_the_server_stores_again_when_there_is_room(
    tiny_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor = child_processes.find_free_ports(1)[0]
    configuration = (
        f'max_payload: 2MB\nhttp: "127.0.0.1:{monitor}"\npid_file: "{tmp_path}/nats.pid"\n'
        f'jetstream {{store_dir: "{tiny_disk}/jetstream", max_file_store: 100MB}}\n'
    )
    beside = NeighborServer(
        folder=tmp_path, pid_file=tmp_path / "nats.pid", monitor=f"http://127.0.0.1:{monitor}"
    )
    with nats_server(tmp_path, configuration=configuration) as server:
        async with (
            connect(Settings(service="test", nats_url=server.url)) as bus,
            asyncio.TaskGroup() as group,
        ):
            await bus.session()
            await stream_keeper.ensure_streams(bus, [streams.build_state_config()])
            reported = await filled(bus)
            assert reported.endswith(
                "within 2 s; its log shows whether its disk is full (it answers again after a restart)"
            )

            await asyncio.to_thread(grow, tiny_disk)
            watching = group.create_task(DiskWatch(beside).run())
            await eventually(lambda: server.has_ended, within=30.0, what="the end of the server")
            await asyncio.to_thread(server.start)  # what a kubelet does
            await eventually_true(
                lambda: is_stored(bus), within=30.0, what="a message that is stored"
            )
            watching.cancel()
    assert (
        "the NATS server cannot write and is started anew; free its disk" in capsys.readouterr().out
    )


async def is_stored(bus: Bus) -> bool:
    await bus.session()
    try:
        await publish(bus, "afterwards")
    except errors.Unavailable:
        return False
    return True


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)


async def test_a_full_stream_takes_deletions_and_what_waited_is_stored_then(bus: Bus) -> None:
    stream = NatsStream(bus, Installation(FakeKube(), "raybus"), may_write=lambda: True)
    ends: list[str] = []
    outbox = Outbox(stream, {}, ends.append)
    place = TreeLocation(3, TreeKind.CLUSTER)

    def put(name: str, message: Message | None = None) -> None:
        body = b'{"noise":"' + NOISE.hex()[:900_000].encode() + b'"}'
        state = ObjectState(
            kind="Pod", namespace="ns", name=name, uid=name, version="1", form="1", body=body
        )
        outbox.put(subjects.build_state_subject(place, "Pod", "ns", name), message or state)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(outbox.work()) for _ in range(4)]
        for number in range(12):
            put(f"pod-{number}")
        await eventually(
            lambda: "insufficient resources" in (outbox.problem or ""), what="the refusal"
        )
        for number in range(12):
            put(
                f"pod-{number}",
                Tombstone(kind="Pod", namespace="ns", name=f"pod-{number}", version="2"),
            )
        put("victim")
        async with asyncio.timeout(20.0):
            await outbox.flush()
        assert ends == []
        for worker in workers:
            worker.cancel()

    assert isinstance(
        await stream.read(subjects.build_state_subject(place, "Pod", "ns", "victim")), ObjectState
    )
    assert outbox.problem is None
