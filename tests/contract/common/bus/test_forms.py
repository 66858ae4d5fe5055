"""Different builds on one bus: what a reader does with messages of another build (ADR 16)."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from common.bus import forms, messages, streams, subjects
from common.bus.forms import MessageForm
from common.bus.messages import Message, ObjectState, Synced, Tombstone
from common.bus.nats import Bus, connect
from common.bus.state_feed import StateFeed
from common.bus.subjects import PARTITIONS, TreeKind, TreeLocation
from common.settings import Settings
from nats_admin import stream_keeper
from support.fakes.listener import Recorder
from support.servers.nats import nats_server
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

FIRST = dict.fromkeys(forms.FIRST_KINDS, "1.0")
NUMBER = count()


class Watcher:
    """A watcher of some build, which publishes messages and markers in the forms of that build."""

    def __init__(self, bus: Bus, listed: dict[str, str], *, pod: str = "1.0") -> None:
        self._bus = bus
        self._listed = listed
        self._pod = pod

    async def pod(self, name: str = "one", *, version: int = 10, **fields: object) -> None:
        metadata = {"namespace": "ns", "name": name, "resourceVersion": str(version)}
        body = msgspec.json.encode({"metadata": metadata, **fields})
        state = ObjectState(
            kind="Pod",
            namespace="ns",
            name=name,
            uid="u",
            version=str(version),
            form=self._pod,
            body=body,
        )
        await self.store(under(name), state)

    async def mark(self, epoch: str, version: int = 20) -> None:
        await self.store(
            subjects.build_marker_subject(3),
            Synced(epoch=epoch, version=version, forms=self._listed),
        )
        await self.store(
            subjects.build_marker_subject(0),
            Synced(epoch=epoch, version=version, forms=self._listed),
        )

    async def store(self, subject: str, message: Message, **headers: str) -> None:
        wire = messages.encode(message)
        sent = wire.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        await self._bus.publish(
            subject, wire.payload, sent, expected=None, message_id=f"m-{next(NUMBER)}"
        )


class Setup(msgspec.Struct, frozen=True):
    """A reader of this build, and a publisher."""

    bus: Bus
    feed: StateFeed
    recorder: Recorder

    def watcher(self, listed: dict[str, str] | None = None, *, pod: str = "1.0") -> Watcher:
        return Watcher(self.bus, FIRST | {"Pod": pod} if listed is None else listed, pod=pod)

    async def synced(self, version: int = 20) -> None:
        await eventually(
            lambda: self.recorder.is_synced and self.recorder.syncs[-1] == version, what="the load"
        )

    async def refused(self) -> str:
        """Wait until the reader reports why it does not read, and check that it does not decide.

        Return the reason.
        """
        await eventually(lambda: self.feed.problem is not None, what="the reason")
        await asyncio.sleep(0.3)
        assert not self.recorder.is_synced
        return self.feed.problem or ""


def under(name: str) -> str:
    return subjects.build_state_subject(TreeLocation(3, TreeKind.SERVICE), "Pod", "ns", name)


@pytest_asyncio.fixture
async def setup(tmp_path: Path) -> AsyncGenerator[Setup]:
    with nats_server(tmp_path) as server:
        async with (
            connect(Settings(service="test", nats_url=server.url)) as bus,
            asyncio.TaskGroup() as group,
        ):
            await bus.session()
            await stream_keeper.ensure_streams(bus, [streams.build_state_config()])
            feed, recorder = (
                StateFeed(bus, reader="test", kinds=frozenset({"Pod", "RayCluster"})),
                Recorder(),
            )
            tasks = [
                group.create_task(feed.follow(3, recorder)),
                group.create_task(feed.check_forms()),
            ]
            yield Setup(bus, feed, recorder)
            for task in tasks:
                task.cancel()


@pytest.mark.parametrize("form", ["1.0", "1.7", "1", "1-f73851c4"])
async def test_a_reader_reads_its_own_major_and_what_the_build_before_it_wrote(
    setup: Setup, form: str
) -> None:
    await setup.watcher(pod=form).pod()
    await setup.watcher({} if "." not in form else None, pod=form).mark("a")

    await setup.synced()
    assert setup.recorder.names("Pod") == {"one"}
    assert setup.feed.problem is None


@pytest.mark.parametrize("form", ["2.0", "1-0badf00d", "next"])
async def test_a_reader_takes_nothing_of_another_major_and_waits_for_a_watcher_of_its_own(
    setup: Setup, form: str
) -> None:
    newer = setup.watcher(pod=form)
    await newer.pod(phase="as it was called then")
    await newer.mark("newer")

    assert f"Pod {form}, expected 1.0 or a later 1.x" in await setup.refused()
    assert setup.recorder.names("Pod") == set()

    ours = setup.watcher()
    await ours.pod()
    await ours.mark("ours", 30)
    await setup.synced(30)
    assert setup.recorder.names("Pod") == {"one"}
    await eventually(lambda: setup.feed.problem is None, what="the end of the refusal")


async def test_what_all_partitions_have_in_common_is_logged_once_a_second(setup: Setup) -> None:
    newer = setup.watcher(pod="2.0")
    with capture_logs() as logged:
        for partition in range(PARTITIONS):
            place = TreeLocation(partition, TreeKind.SERVICE)
            state = ObjectState(
                kind="Pod",
                namespace="ns",
                name="one",
                uid="u",
                version="10",
                form="2.0",
                body=b"{}",
            )
            await newer.store(subjects.build_state_subject(place, "Pod", "ns", "one"), state)
        async with asyncio.TaskGroup() as group:
            follow = setup.feed.follow
            tasks = [group.create_task(follow(each, Recorder())) for each in range(PARTITIONS)]
            await asyncio.sleep(2)
            for task in tasks:
                task.cancel()

    reasons = [each["why"] for each in logged if each["log_level"] == "warning"]
    assert "Pod 2.0, expected 1.0" in reasons[0]
    assert len(reasons) <= PARTITIONS // 4


async def test_a_reader_that_needs_a_field_does_not_take_its_absence_for_a_default(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(forms.MIN_MINOR, "Pod")
    older = setup.watcher({})  # of a build that does not list its forms
    await older.pod()
    await older.mark("older")

    assert "Pod 1.0, expected 1.1 or a later 1.x" in await setup.refused()

    newer = setup.watcher(pod="1.1")
    await newer.pod(added="field")
    await newer.mark("newer", 30)
    await setup.synced(30)
    assert setup.recorder.objects["Pod", "ns", "one"]["added"] == "field"


async def test_a_reader_that_can_do_without_a_field_decides_behind_an_older_watcher(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(forms.FORMS, "Pod", MessageForm(1, 2))
    older = setup.watcher()
    await older.pod()
    await older.mark("older")

    await setup.synced()


async def test_a_reader_stops_at_the_first_message_of_a_watcher_that_was_rolled_back(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(forms.MIN_MINOR, "Pod")
    newer, older = setup.watcher(pod="1.1"), setup.watcher({})
    for name in ("one", "two"):
        await newer.pod(name)
    await newer.mark("newer")
    await setup.synced()

    await older.pod("one", version=25)  # it has not marked anything yet

    await eventually(lambda: not setup.recorder.is_synced, what="the end of decisions")
    await eventually(lambda: setup.recorder.names("Pod") == {"two"}, what="what can be read")
    await asyncio.sleep(0.3)
    assert not setup.recorder.is_synced

    await newer.store(under("one"), Tombstone(kind="Pod", namespace="ns", name="one", version="26"))
    await eventually(lambda: setup.recorder.is_synced, what="the load")
    assert setup.recorder.names("Pod") == {"two"}


async def test_a_kind_that_the_watcher_does_not_publish_is_not_taken_for_absent(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(forms.FORMS, "Novel", MessageForm(1, 0))
    reader, recorder = (
        StateFeed(setup.bus, reader="novel", kinds=frozenset({"Pod", "Novel"})),
        Recorder(),
    )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(reader.follow(3, recorder)),
            group.create_task(reader.check_forms()),
        ]
        await setup.watcher({}).mark("older")
        await setup.synced()  # a reader that does not decode it continues

        await eventually(lambda: reader.problem is not None, what="the reason")
        assert "Novel not published, expected 1.0" in (reader.problem or "")
        assert recorder.syncs == []

        await setup.watcher(FIRST | {"Novel": "1.0"}).mark("newer", 30)
        await eventually(lambda: recorder.is_synced, what="the load")
        for task in tasks:
            task.cancel()


async def test_a_kind_that_is_not_read_may_have_any_form(setup: Setup) -> None:
    watcher = setup.watcher(FIRST | {"Job": "2.0", "Novel": "7.1"})
    job = ObjectState(
        kind="Job", namespace="ns", name="one", uid="u", version="1", form="2.0", body=b"unknown"
    )
    await watcher.store(
        subjects.build_state_subject(TreeLocation(3, TreeKind.SERVICE), "Job", "ns", "one"), job
    )
    novel = msgspec.structs.replace(job, kind="Novel", form="7.1")
    await watcher.store(
        subjects.build_state_subject(TreeLocation(3, TreeKind.SERVICE), "Novel", "ns", "one"), novel
    )
    await watcher.mark("a")

    await setup.synced()


async def test_a_marker_of_another_major_counts_for_nothing(setup: Setup) -> None:
    watcher = setup.watcher()
    await watcher.pod()
    for partition in (0, 3):
        marker = Synced(epoch="a", version=20, forms=FIRST)
        await watcher.store(subjects.build_marker_subject(partition), marker, Raybus_Form="2.0")

    assert "Synced 2.0, expected 1.1" in await setup.refused()


@pytest.mark.parametrize("header", [{"Raybus_Encoding": "lzma"}, {"Raybus_Form": "2.0"}])
async def test_a_reader_that_cannot_decode_a_deletion_does_not_decide_as_if_the_object_existed(
    setup: Setup, header: dict[str, str]
) -> None:
    watcher = setup.watcher()
    await watcher.pod("one")
    await watcher.pod("two")
    await watcher.mark("a")
    await setup.synced()

    state = ObjectState(
        kind="Pod", namespace="ns", name="one", uid="u", version="21", form="1.0", body=b"{}"
    )
    gone = Tombstone(kind="Pod", namespace="ns", name="one", version="21")
    await watcher.store(under("one"), gone if "Raybus_Form" in header else state, **header)

    await eventually(lambda: not setup.recorder.is_synced, what="the end of decisions")
    await eventually(lambda: setup.recorder.names("Pod") == {"two"}, what="what can be read")
    await asyncio.sleep(0.3)
    assert not setup.recorder.is_synced


async def test_what_stands_under_no_subject_of_ours_is_passed_over(setup: Setup) -> None:
    watcher = setup.watcher()
    state = ObjectState(
        kind="Pod", namespace="ns", name="one", uid="u", version="21", form="9.0", body=b"{}"
    )
    await watcher.store("ray.state.3.service.by-node.pod.ns.node-1.one", state)
    await watcher.mark("a")

    await setup.synced()
    assert setup.recorder.names("Pod") == set()
