"""A session that prepares, and the messages that it publishes once it leads; the history of its
versions, and the order of its lists.
"""

import asyncio
from contextlib import suppress
from functools import partial
from itertools import count
from typing import cast

import pytest
from msgspec import structs

from common.bus import forms, subjects
from common.bus.messages import ObjectState, Synced, Tombstone
from common.bus.subjects import ObjectRef
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE, Resource
from common.kube.watch import Watch, WatchTarget
from support.builders.manifests import a_ray_cluster
from support.fakes.stream import FakeStateStream
from support.fakes.watchable_kube import WatchableKube
from support.tables import cases
from support.waiting import eventually
from watcher import publish_filter, session
from watcher.session import Sessions, choose_epoch, choose_history, run_in_turn
from watcher.term import Term


@cases(
    ("before", "version", "expected"),
    {
        "an empty stream": (None, 100, ""),
        "versions went on": (Synced(epoch="old", version=90), 100, ""),
        "nothing happened": (Synced(epoch="old", version=100), 100, ""),
        "versions began again at a lower one": (Synced(epoch="old", version=101), 100, "new"),
        "versions went on after a restore": (
            Synced(epoch="old", version=90, history="h"),
            100,
            "h",
        ),
        "a second restore": (Synced(epoch="old", version=101, history="h"), 100, "new"),
    },
)
def test_a_history_ends_when_versions_begin_again_below(
    before: Synced | None, version: int, expected: str
) -> None:
    assert choose_history(before, version, "new") == expected


class FakeWatch(Watch):
    """A collection that is listed some time after the request; None for never."""

    def __init__(self, resource: Resource, seconds: float | None) -> None:
        self.target = WatchTarget(resource=resource)
        self.known = asyncio.Event()
        self.asked_at: float | None = None
        self._seconds = seconds

    async def run(self) -> None:
        self.asked_at = asyncio.get_running_loop().time()
        if self._seconds is not None:
            await asyncio.sleep(self._seconds)
            self.known.set()
        await asyncio.Event().wait()


@pytest.mark.looptime
@cases(
    ("seconds", "begins"),
    {
        "once both are listed": ((1.0, 2.0), 2.0),
        "a list that fails delays the others for a while only": (
            (1.0, None),
            session.FIRST_KINDS_TIMEOUT,
        ),
    },
)
async def test_what_users_create_is_listed_before_all_else(
    seconds: tuple[float | None, ...], begins: float
) -> None:
    first = [
        FakeWatch(kind, each)
        for kind, each in zip((RAY_CLUSTER, RAY_SERVICE), seconds, strict=True)
    ]
    other = FakeWatch(POD, 1.0)
    began = asyncio.get_running_loop().time()
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            await run_in_turn((other, *first))
    assert [each.asked_at for each in first] == [began, began]
    assert other.asked_at == began + begins


def test_the_first_lists_are_of_kinds_that_are_followed() -> None:
    required = {kind for kind, _ in publish_filter.REQUIRED}
    assert not session.FIRST_KINDS - required - set(publish_filter.OPTIONAL)


HERE = Synced(epoch="here", version=100, forms=forms.list_forms(), history="h")


@cases(
    ("marker", "version", "expected"),
    {
        "nothing happened": (HERE, 100, "here"),
        "versions went on": (HERE, 120, "here"),
        "versions began again at a lower one, or our lists are older": (HERE, 99, None),
        "an empty stream": (None, 120, None),
        "other partitions": (structs.replace(HERE, partitions=32), 120, None),
        "a watcher of another build": (structs.replace(HERE, forms={}), 120, None),
    },
)
def test_readers_go_on_where_a_complete_stream_was_handed_over(
    marker: Synced | None, version: int, expected: str | None
) -> None:
    assert choose_epoch(marker, version) == expected


STEADY, GHOST = (
    subjects.build_state_subject(
        subjects.locate_tree(ObjectRef("RayCluster", "ns", name)), "RayCluster", "ns", name
    )
    for name in ("steady", "ghost")
)


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> WatchableKube:
    monkeypatch.setattr(publish_filter, "REQUIRED", ((RAY_SERVICE, ""), (RAY_CLUSTER, "")))
    monkeypatch.setattr(publish_filter, "OPTIONAL", ())
    return WatchableKube()


class Watcher:
    """The sessions of one watcher."""

    def __init__(self, kube: WatchableKube, stream: FakeStateStream, name: str) -> None:
        epochs = (f"{name}{number}" for number in count())
        self.term = Term()
        self.sessions = Sessions(
            cast("KubeClient", kube), stream, [], new_epoch=partial(next, epochs)
        )
        self._task = asyncio.create_task(self.sessions.run(self.term))  # noqa: TID251  (ended one after the other)

    async def lead(self, *, is_handed_over: bool = False) -> None:
        self.term.is_handed_over = is_handed_over
        self.term.begun.set()
        await eventually(
            lambda: self.sessions.problem is None, within=5.0, what="a complete stream"
        )

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


async def a_leader_and_its_successor(
    kube: WatchableKube, stream: FakeStateStream
) -> tuple[Watcher, Watcher]:
    """Return a watcher that leads, with a cluster to publish, and a prepared one."""
    await kube.create(RAY_CLUSTER, "ns", a_ray_cluster("steady"))
    one = Watcher(kube, stream, "one")
    await one.lead()
    two = Watcher(kube, stream, "two")
    await two.term.prepared.wait()
    return one, two


def epochs(stream: FakeStateStream) -> set[str]:
    return {each.epoch for each in stream.messages.values() if isinstance(each, Synced)}


@pytest.mark.looptime
@pytest.mark.parametrize("is_handed_over", [True, False])
async def test_a_prepared_watcher_publishes_what_the_leader_before_it_did_not(
    kube: WatchableKube, is_handed_over: bool
) -> None:
    """Readers need no new load if the watcher was handed a complete stream (ADR 39)."""
    stream = FakeStateStream()
    one, two = await a_leader_and_its_successor(kube, stream)
    await asyncio.sleep(30.0)
    stored = len(stream.stored)
    await one.end()

    stream.put(
        GHOST,
        ObjectState(
            kind="RayCluster",
            namespace="ns",
            name="ghost",
            uid="g",
            version="1",
            form="1",
            body=b"{}",
        ),
        999,
    )
    await kube.patch(
        RAY_CLUSTER,
        "ns",
        "steady",
        PatchRequest(body={"metadata": {"annotations": {"changed": "yes"}}}),
    )
    await asyncio.sleep(30.0)
    assert len(stream.stored) == stored + 1

    await two.lead(is_handed_over=is_handed_over)
    steady = stream.messages[STEADY]
    assert isinstance(steady, ObjectState)
    assert b"changed" in steady.body
    assert isinstance(stream.messages[GHOST], Tombstone)
    assert epochs(stream) == ({"one0"} if is_handed_over else {"two0"})
    await asyncio.sleep(30.0)  # it takes no message of the leader before for one of another watcher
    assert epochs(stream) == ({"one0"} if is_handed_over else {"two0"})
    await two.end()


@pytest.mark.looptime
async def test_a_preparation_for_a_stream_that_is_created_anew_is_repeated(
    kube: WatchableKube,
) -> None:
    stream = FakeStateStream()
    one, two = await a_leader_and_its_successor(kube, stream)
    await one.end()
    stream.created = "again"
    stream.messages.clear()
    stream.entries.clear()
    await two.lead(is_handed_over=True)
    assert STEADY in stream.messages
    assert epochs(stream) == {"two0"}
    await two.end()
