"""What the API server tells, turned into what the stream must hold."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest_asyncio

from common.bus import sharding, subjects
from common.bus.feed import Synced
from common.bus.messages import Gone, State
from common.bus.sharding import Root
from common.kube import resources
from common.kube.resources import Resource
from support.fakes.stream import FakeStateStream
from watcher.outbox import Outbox
from watcher.relay import Relay, Source

SERVICES, CLUSTERS, PODS, MORE_PODS = range(4)


class Setup:
    """A relay, and the messages that it put, by subject."""

    def __init__(self, stream: FakeStateStream, outbox: Outbox) -> None:
        self.stream = stream
        self.outbox = outbox
        self.reasons: list[str] = []
        self.relay = Relay(outbox, self.reasons.append)

    def source(self, number: int, resource: Resource) -> Source:
        return self.relay.sink(number, resource)

    def waiting(self) -> dict[str, State | Gone | Synced]:
        """Return what would be sent, before any worker runs."""
        puts = self.outbox._next  # pyright: ignore[reportPrivateUsage]  (nobody else needs to know)
        return {where: put.message for where, put in puts.items()}


@pytest_asyncio.fixture
async def setup() -> AsyncGenerator[Setup]:
    stream = FakeStateStream()
    yield Setup(stream, Outbox(stream, await stream.load(), lambda _: None))


def an_object(
    name: str, version: int, *, owner: tuple[str, str] | None = None, origin: str | None = None, uid: str = "u"
) -> bytes:
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    if origin:
        metadata["labels"] = {"ray.io/originated-from-cr-name": origin, "ray.io/originated-from-crd": "RayService"}
    return msgspec.json.encode({"metadata": metadata})


def subject(root: Root, kind: str, name: str) -> str:
    return subjects.state(sharding.place_of(root), kind, "ns", name)


SVC = Root("RayService", "ns", "svc")
DEMO = Root("RayCluster", "ns", "demo")


async def test_children_wait_for_their_parents_while_lists_run(setup: Setup) -> None:
    setup.source(PODS, resources.POD).present(an_object("pod", 5, owner=("RayCluster", "demo")))
    assert setup.waiting() == {}

    setup.source(CLUSTERS, resources.RAY_CLUSTER).present(an_object("demo", 4, origin="svc"))

    assert set(setup.waiting()) == {subject(SVC, "RayCluster", "demo"), subject(SVC, "Pod", "pod")}


async def test_an_orphan_stands_below_its_controller_once_all_is_listed(setup: Setup) -> None:
    setup.source(PODS, resources.POD).present(an_object("pod", 5, owner=("RayCluster", "demo")))
    setup.relay.everything_is_listed()

    assert set(setup.waiting()) == {subject(DEMO, "Pod", "pod")}


async def test_an_orphan_moves_when_its_parent_shows_up(setup: Setup) -> None:
    setup.relay.everything_is_listed()
    setup.source(PODS, resources.POD).present(an_object("pod", 5, owner=("RayCluster", "demo")))
    setup.source(CLUSTERS, resources.RAY_CLUSTER).present(an_object("demo", 6, origin="svc"))

    put = setup.waiting()
    assert isinstance(put[subject(SVC, "Pod", "pod")], State)
    assert put[subject(DEMO, "Pod", "pod")] == Gone(
        kind="Pod", namespace="ns", name="pod", version="5", moved_to=sharding.place_of(SVC)
    )
    assert setup.reasons == []


async def test_a_tree_that_changes_its_root_needs_a_new_list(setup: Setup) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.present(an_object("demo", 4))
    setup.source(PODS, resources.POD).present(an_object("pod", 5, owner=("RayCluster", "demo")))
    setup.relay.everything_is_listed()

    clusters.present(an_object("demo", 6, origin="svc"))

    assert "moves to another root" in setup.reasons[0]


async def test_an_older_state_is_passed_over(setup: Setup) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.present(an_object("demo", 9))
    clusters.present(an_object("demo", 8))

    put = setup.waiting()[subject(DEMO, "RayCluster", "demo")]
    assert isinstance(put, State)
    assert put.version == "9"


async def test_a_deletion_loses_to_the_same_object_seen_elsewhere_in_that_version(setup: Setup) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.present(an_object("demo", 4))
    clusters.gone(an_object("demo", 10))

    assert setup.waiting()[subject(DEMO, "RayCluster", "demo")] == Gone(
        kind="RayCluster", namespace="ns", name="demo", version="9"
    )


async def test_an_object_that_two_watches_show_is_gone_when_both_say_so(setup: Setup) -> None:
    first, second = setup.source(PODS, resources.POD), setup.source(MORE_PODS, resources.POD)
    setup.relay.everything_is_listed()
    first.present(an_object("pod", 5))
    second.present(an_object("pod", 5))

    first.gone(an_object("pod", 6))
    assert all(isinstance(each, State) for each in setup.waiting().values())
    second.listed(set(), "20")
    assert [each.version for each in setup.waiting().values() if isinstance(each, Gone)] == ["20"]


async def test_what_the_stream_holds_and_nobody_lists_is_gone() -> None:
    stream = FakeStateStream()
    stale = State(kind="RayCluster", namespace="ns", name="old", uid="u", version="1", form="1", body=b"{}")
    old = subject(Root("RayCluster", "ns", "old"), "RayCluster", "old")
    stream.put(old, stale, 3)
    stream.put(subjects.synced(1), Synced(epoch="before", version=1), 4)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(CLUSTERS, resources.RAY_CLUSTER).listed(set(), "40")
    setup.source(PODS, resources.POD).listed(set(), "38")
    setup.relay.everything_is_listed()

    assert setup.waiting() == {old: Gone(kind="RayCluster", namespace="ns", name="old", version="38")}


async def test_an_object_that_stands_under_an_old_root_is_moved_at_the_start() -> None:
    stream = FakeStateStream()
    body = State(kind="Pod", namespace="ns", name="pod", uid="u", version="5", form="1", body=b"{}")
    stream.put(subject(DEMO, "Pod", "pod"), body, 3)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(SERVICES, resources.RAY_SERVICE).present(an_object("svc", 2))
    setup.source(CLUSTERS, resources.RAY_CLUSTER).present(an_object("demo", 4, origin="svc"))
    setup.source(PODS, resources.POD).present(an_object("pod", 5, owner=("RayCluster", "demo")))
    setup.source(PODS, resources.POD).listed({("ns", "pod")}, "9")
    setup.relay.everything_is_listed()

    moved = setup.waiting()[subject(DEMO, "Pod", "pod")]
    assert isinstance(moved, Gone)
    assert moved.moved_to == sharding.place_of(SVC)


async def test_a_kind_that_is_not_served_does_not_count_for_the_version(setup: Setup) -> None:
    setup.source(CLUSTERS, resources.RAY_CLUSTER).listed(set(), "40")
    setup.source(PODS, resources.HTTP_ROUTE).listed(set(), "")

    assert setup.relay.version == 40


async def test_every_partition_is_marked(setup: Setup) -> None:
    setup.relay.mark("epoch", 40)

    assert setup.waiting() == {
        subjects.synced(partition): Synced(epoch="epoch", version=40) for partition in range(sharding.PARTITIONS)
    }
