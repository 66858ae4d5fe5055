"""Watch events of the API server, and the messages that the stream must contain for them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from common.bus import forms, subjects
from common.bus.messages import Message, ObjectState, Quarantined, Synced, Tombstone
from common.bus.subjects import ObjectRef
from common.kube import resources
from common.kube.resources import Resource
from support.fakes.stream import FakeStateStream
from support.waiting import eventually
from watcher import publish_filter
from watcher.outbox import Outbox
from watcher.relay import Relay, RelaySource

SERVICES, CLUSTERS, PODS, MORE_PODS = range(4)


class Setup:
    """A relay, with the messages that it put, by subject."""

    def __init__(self, stream: FakeStateStream, outbox: Outbox) -> None:
        self.stream = stream
        self.outbox = outbox
        self.reasons: list[str] = []
        self.relay = Relay(outbox, self.reasons.append)

    def source(self, number: int, resource: Resource) -> RelaySource:
        return RelaySource(self.relay, number, resource)

    @property
    def is_moving(self) -> bool:
        """Return whether a tree is still on its way to its new place."""
        return bool(self.relay._held_back)  # pyright: ignore[reportPrivateUsage]  (nobody else needs to know)

    def waiting(self) -> dict[str, Message]:
        """Return the messages that would be sent, before any worker runs."""
        puts = self.outbox._next  # pyright: ignore[reportPrivateUsage]  (nobody else needs to know)
        return {where: put.message for where, put in puts.items()}


@pytest_asyncio.fixture
async def setup() -> AsyncGenerator[Setup]:
    stream = FakeStateStream()
    yield Setup(stream, Outbox(stream, await stream.load(), lambda _: None))


def an_object(
    name: str,
    version: int,
    *,
    owner: tuple[str, str] | None = None,
    origin: str | None = None,
    uid: str = "u",
) -> bytes:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": uid,
        "resourceVersion": str(version),
    }
    if owner:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    if origin:
        metadata["labels"] = {
            "ray.io/originated-from-cr-name": origin,
            "ray.io/originated-from-crd": "RayService",
        }
    return msgspec.json.encode({"metadata": metadata})


def subject(root: ObjectRef, kind: str, name: str) -> str:
    return subjects.build_state_subject(subjects.locate_tree(root), kind, "ns", name)


SVC = ObjectRef("RayService", "ns", "svc")
DEMO = ObjectRef("RayCluster", "ns", "demo")
POD_FORM = forms.get_form("Pod")


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
    assert isinstance(put[subject(SVC, "Pod", "pod")], ObjectState)
    assert put[subject(DEMO, "Pod", "pod")] == Tombstone(
        kind="Pod", namespace="ns", name="pod", version="5", moved_to=subjects.locate_tree(SVC)
    )
    assert setup.reasons == []


class Running:
    """A relay with workers for outbox and moves, and the resulting content of the stream."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
        self.pods = setup.source(PODS, resources.POD)

    def holds(self, kind: type[Message]) -> dict[str, Message]:
        """Return the subjects that contain a message of a kind."""
        return {
            where: each
            for where, each in self.setup.stream.messages.items()
            if isinstance(each, kind)
        }

    async def at_rest(self) -> None:
        await eventually(
            lambda: len(self.setup.outbox) == 0 and not self.setup.is_moving, what="the moves"
        )


@asynccontextmanager
async def running(setup: Setup) -> AsyncGenerator[Running]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(setup.outbox.work()) for _ in range(8)]
        tasks.append(group.create_task(setup.relay.move()))
        yield Running(setup)
        for task in tasks:
            task.cancel()


async def test_a_tree_moves_to_its_new_root_without_a_new_list(setup: Setup) -> None:
    async with running(setup) as harness:
        harness.clusters.present(an_object("demo", 4))
        for number in range(100):
            harness.pods.present(an_object(f"pod-{number}", 5, owner=("RayCluster", "demo")))
        setup.relay.everything_is_listed()
        await harness.at_rest()
        before = len(setup.stream.stored)

        harness.clusters.present(an_object("demo", 6, origin="svc"))
        await harness.at_rest()

    states = harness.holds(ObjectState)
    assert set(states) == {
        subject(SVC, "RayCluster", "demo"),
        *(subject(SVC, "Pod", f"pod-{number}") for number in range(100)),
    }
    assert setup.reasons == []
    order = [
        (type(message), where.split(".")[4]) for where, message in setup.stream.stored[before:]
    ]
    assert order[0] == (Tombstone, "raycluster"), (
        "no root is reconciled while its objects are on their way"
    )
    assert order[-1][1] == "pod" or order[-1] == (ObjectState, "raycluster")
    placed = order.index((ObjectState, "raycluster"))
    assert sum(each == (ObjectState, "pod") for each in order[:placed]) >= 100 - 8, (
        "at most what was in flight comes after"
    )


async def test_endpoint_slices_are_published_as_long_as_their_cluster_has_a_ray_service(
    setup: Setup,
) -> None:
    slices = setup.source(MORE_PODS, resources.ENDPOINT_SLICE)
    below = {where: subject(where, "EndpointSlice", "head") for where in (SVC, DEMO)}
    async with running(setup) as harness:
        setup.relay.everything_is_listed()
        harness.clusters.present(an_object("demo", 4))
        slices.present(an_object("head", 5, owner=("RayCluster", "demo")))
        await harness.at_rest()
        assert not any("endpointslice" in where for where, _ in setup.stream.stored)

        harness.clusters.present(an_object("demo", 6, origin="svc"))
        await harness.at_rest()
        found = harness.holds(ObjectState)[below[SVC]]
        assert isinstance(found, ObjectState)
        assert found.version == "5"

        harness.clusters.present(an_object("demo", 7))
        await harness.at_rest()
        assert isinstance(setup.stream.messages.get(below[SVC]), Tombstone)
        assert below[DEMO] not in setup.stream.messages

        harness.clusters.present(an_object("demo", 8, origin="svc"))
        await harness.at_rest()
        assert below[SVC] in harness.holds(ObjectState)
        slices.gone(an_object("head", 9, owner=("RayCluster", "demo")))
        await harness.at_rest()
        assert below[SVC] not in harness.holds(ObjectState)
    assert setup.reasons == []


async def test_an_endpoint_slice_that_nothing_reads_any_more_when_all_is_listed_is_gone(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watcher.relay.TRIES", 5)
    old = subject(SVC, "EndpointSlice", "head")
    async with running(setup) as harness:
        harness.clusters.present(an_object("demo", 4, origin="svc"))
        setup.source(MORE_PODS, resources.ENDPOINT_SLICE).present(
            an_object("head", 5, owner=("RayCluster", "demo"))
        )
        await eventually(
            lambda: old in harness.holds(ObjectState),
            what="the slice in the tree of its RayService",
        )
        harness.clusters.present(an_object("demo", 6))
        setup.relay.everything_is_listed()
        await harness.at_rest()

    assert isinstance(setup.stream.messages.get(old), Tombstone)
    assert setup.reasons == [], "the session goes on"


async def test_an_endpoint_slice_that_an_earlier_build_published_for_nobody_is_gone() -> None:
    stream = FakeStateStream()
    stale = ObjectState(
        kind="EndpointSlice",
        namespace="ns",
        name="head",
        uid="u",
        version="5",
        form="1",
        body=b"{}",
    )
    old = subject(DEMO, "EndpointSlice", "head")
    stream.put(old, stale, 3)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(CLUSTERS, resources.RAY_CLUSTER).present(an_object("demo", 4))
    setup.source(MORE_PODS, resources.ENDPOINT_SLICE).present(
        an_object("head", 5, owner=("RayCluster", "demo"))
    )
    setup.source(CLUSTERS, resources.RAY_CLUSTER).listed({("ns", "demo")}, "9")
    setup.relay.everything_is_listed()

    assert isinstance(setup.waiting()[old], Tombstone)


async def test_a_pod_that_does_not_run_yet_is_published_with_what_follows(setup: Setup) -> None:
    async with running(setup) as harness:
        setup.relay.everything_is_listed()
        harness.clusters.present(an_object("demo", 4))
        for version, phase in ((5, "Pending"), (6, "Pending"), (7, "Running"), (8, "Running")):
            pod: Any = msgspec.json.decode(an_object("pod", version, owner=("RayCluster", "demo")))
            harness.pods.present(msgspec.json.encode({**pod, "status": {"phase": phase}}))
            await asyncio.sleep(0.01)
        await harness.at_rest()

    versions = [
        each.version
        for where, each in setup.stream.stored
        if isinstance(each, ObjectState) and ".pod." in where
    ]
    assert versions == ["7", "8"]


async def test_no_pod_waits_while_lists_run(setup: Setup) -> None:
    async with running(setup) as harness:
        harness.clusters.present(an_object("demo", 4))
        pod: Any = msgspec.json.decode(an_object("pod", 5, owner=("RayCluster", "demo")))
        harness.pods.present(msgspec.json.encode({**pod, "status": {"phase": "Pending"}}))
        await eventually(lambda: len(setup.outbox) == 0, what="the pod's publication")


async def test_a_root_that_changes_all_the_time_ends_with_its_whole_tree_in_one_place(
    setup: Setup,
) -> None:
    async with running(setup) as harness:
        harness.clusters.present(an_object("demo", 4))
        for number in range(50):
            harness.pods.present(an_object(f"pod-{number}", 5, owner=("RayCluster", "demo")))
        setup.relay.everything_is_listed()
        for flip in range(21):
            harness.clusters.present(
                an_object("demo", 10 + flip, origin="svc" if flip % 2 else "other")
            )
            for _ in range(flip):
                await asyncio.sleep(0)
        await harness.at_rest()

    other = ObjectRef("RayService", "ns", "other")
    states = harness.holds(ObjectState)
    assert {where.split(".")[2] for where in states} == {str(subjects.compute_partition(other))}
    assert len(states) == 51
    assert setup.reasons == []


async def test_a_tree_that_moves_all_the_time_does_not_hold_up_another_one(setup: Setup) -> None:
    async with running(setup) as harness:
        harness.clusters.present(an_object("demo", 4))
        for number in range(1000):
            harness.pods.present(an_object(f"pod-{number}", 5, owner=("RayCluster", "demo")))
        setup.relay.everything_is_listed()
        await harness.at_rest()
        before = len(setup.stream.stored)

        harness.clusters.present(an_object("demo", 6, origin="svc"))
        await asyncio.sleep(0)
        harness.clusters.present(an_object("victim", 7))
        mine = subject(ObjectRef("RayCluster", "ns", "victim"), "RayCluster", "victim")
        await harness.at_rest()

    order = [where for where, _ in setup.stream.stored[before:]]
    assert len(order) > 2000
    assert order.index(mine) < 400, "not behind the whole tree"


async def test_a_child_that_changes_and_one_that_goes_while_their_tree_moves_end_as_they_should(
    setup: Setup,
) -> None:
    async with running(setup) as harness:
        harness.clusters.present(an_object("demo", 4))
        for number in range(3):
            harness.pods.present(an_object(f"pod-{number}", 5, owner=("RayCluster", "demo")))
        setup.relay.everything_is_listed()
        await harness.at_rest()

        harness.clusters.present(an_object("demo", 6, origin="svc"))
        harness.pods.present(an_object("pod-0", 7, owner=("RayCluster", "demo")))
        harness.pods.gone(an_object("pod-1", 8, owner=("RayCluster", "demo")))
        await harness.at_rest()

    states = {
        where: message
        for where, message in harness.holds(ObjectState).items()
        if isinstance(message, ObjectState)
    }
    versions = {(message.name, message.version) for message in states.values()}
    assert versions == {("demo", "6"), ("pod-0", "7"), ("pod-2", "5")}
    assert {where.split(".")[2] for where in states} == {str(subjects.compute_partition(SVC))}


async def test_an_older_state_is_passed_over(setup: Setup) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.present(an_object("demo", 9))
    clusters.present(an_object("demo", 8))

    put = setup.waiting()[subject(DEMO, "RayCluster", "demo")]
    assert isinstance(put, ObjectState)
    assert put.version == "9"


async def test_a_deletion_loses_to_the_same_object_seen_elsewhere_in_that_version(
    setup: Setup,
) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.present(an_object("demo", 4))
    clusters.gone(an_object("demo", 10))

    assert setup.waiting()[subject(DEMO, "RayCluster", "demo")] == Tombstone(
        kind="RayCluster", namespace="ns", name="demo", version="9"
    )


async def test_an_object_in_two_watches_is_deleted_when_both_report_it(setup: Setup) -> None:
    first, second = setup.source(PODS, resources.POD), setup.source(MORE_PODS, resources.POD)
    setup.relay.everything_is_listed()
    first.present(an_object("pod", 5))
    second.present(an_object("pod", 5))

    first.gone(an_object("pod", 6))
    assert all(isinstance(each, ObjectState) for each in setup.waiting().values())
    first.reached("20")
    second.listed(set(), "20")
    assert [each.version for each in setup.waiting().values() if isinstance(each, Tombstone)] == [
        "20"
    ]


async def test_a_list_without_an_object_waits_for_the_other_watches_of_its_kind(
    setup: Setup,
) -> None:
    first, second = setup.source(PODS, resources.POD), setup.source(MORE_PODS, resources.POD)
    setup.relay.everything_is_listed()
    first.listed(set(), "4")
    second.listed(set(), "4")
    first.present(an_object("relabelled", 5))
    first.present(an_object("deleted", 5))

    # Both watches were down while one object left the first selector for the second.
    first.listed(set(), "20")
    assert all(isinstance(each, ObjectState) for each in setup.waiting().values())

    second.present(an_object("relabelled", 10))
    second.listed({("ns", "relabelled")}, "21")
    put = setup.waiting().values()
    assert [(each.name, each.version) for each in put if isinstance(each, ObjectState)] == [
        ("relabelled", "10")
    ]
    assert [(each.name, each.version) for each in put if isinstance(each, Tombstone)] == [
        ("deleted", "20")
    ]


async def test_a_bookmark_of_the_other_watch_ends_the_wait(setup: Setup) -> None:
    first, second = setup.source(PODS, resources.POD), setup.source(MORE_PODS, resources.POD)
    setup.relay.everything_is_listed()
    first.present(an_object("pod", 5))
    second.listed(set(), "6")

    first.listed(set(), "20")
    second.reached("19")
    assert [type(each) for each in setup.waiting().values()] == [ObjectState]
    second.reached("20")
    assert [type(each) for each in setup.waiting().values()] == [Tombstone]


async def test_watches_of_another_namespace_are_not_waited_for(setup: Setup) -> None:
    here = RelaySource(setup.relay, PODS, resources.POD, "ns")
    RelaySource(setup.relay, MORE_PODS, resources.POD, "elsewhere")
    setup.relay.everything_is_listed()
    here.present(an_object("pod", 5))

    here.listed(set(), "20")

    assert [type(each) for each in setup.waiting().values()] == [Tombstone]


async def test_the_tombstone_of_what_nobody_lists_has_the_version_of_its_own_kind() -> None:
    """A reader that wrote the object after the first list of another kind must still remove it."""
    stream = FakeStateStream()
    stale = ObjectState(
        kind="RayCluster", namespace="ns", name="old", uid="u", version="1", form="1", body=b"{}"
    )
    old = subject(ObjectRef("RayCluster", "ns", "old"), "RayCluster", "old")
    stream.put(old, stale, 3)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(PODS, resources.POD).listed(set(), "38")
    setup.source(CLUSTERS, resources.RAY_CLUSTER).listed(set(), "40")
    setup.relay.everything_is_listed()

    assert setup.waiting() == {
        old: Tombstone(kind="RayCluster", namespace="ns", name="old", version="40")
    }


async def test_what_the_stream_holds_and_nobody_lists_is_gone() -> None:
    stream = FakeStateStream()
    stale = ObjectState(
        kind="RayCluster", namespace="ns", name="old", uid="u", version="1", form="1", body=b"{}"
    )
    old = subject(ObjectRef("RayCluster", "ns", "old"), "RayCluster", "old")
    stream.put(old, stale, 3)
    stream.put(subjects.build_marker_subject(1), Synced(epoch="before", version=1), 4)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(CLUSTERS, resources.RAY_CLUSTER).listed(set(), "40")
    setup.source(PODS, resources.POD).listed(set(), "38")
    setup.relay.everything_is_listed()

    assert setup.waiting() == {
        old: Tombstone(kind="RayCluster", namespace="ns", name="old", version="40")
    }


async def test_a_root_that_is_listed_after_its_tree_is_published_at_once() -> None:
    stream = FakeStateStream()
    held = ObjectState(
        kind="RayService", namespace="ns", name="svc", uid="u", version="2", form="1", body=b"{}"
    )
    stream.put(subject(SVC, "RayService", "svc"), held, 3)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(CLUSTERS, resources.RAY_CLUSTER).present(an_object("demo", 4, origin="svc"))
    setup.source(PODS, resources.POD).present(an_object("pod", 5, owner=("RayCluster", "demo")))
    setup.source(SERVICES, resources.RAY_SERVICE).present(an_object("svc", 6))
    setup.source(SERVICES, resources.RAY_SERVICE).listed({("ns", "svc")}, "9")
    setup.relay.everything_is_listed()

    published = setup.waiting()[subject(SVC, "RayService", "svc")]
    assert isinstance(published, ObjectState)
    assert published.version == "6"


@pytest.mark.parametrize("before", [SVC, DEMO], ids=["in its place", "in another place"])
async def test_an_object_that_is_held_back_when_all_is_listed_is_not_declared_deleted(
    before: ObjectRef,
) -> None:
    stream = FakeStateStream()
    held = ObjectState(
        kind="RayCluster", namespace="ns", name="demo", uid="u", version="2", form="1", body=b"{}"
    )
    stream.put(subject(before, "RayCluster", "demo"), held, 3)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    clusters, pods = (
        setup.source(CLUSTERS, resources.RAY_CLUSTER),
        setup.source(PODS, resources.POD),
    )
    clusters.present(an_object("demo", 4, uid="before"))
    pods.present(an_object("pod", 5, owner=("RayCluster", "demo")))
    clusters.gone(an_object("demo", 5, uid="before"))
    setup.source(SERVICES, resources.RAY_SERVICE).present(an_object("svc", 6))
    clusters.present(an_object("demo", 7, origin="svc"))
    clusters.listed({("ns", "demo")}, "9")
    assert setup.is_moving
    setup.relay.everything_is_listed()

    put = setup.waiting().get(subject(before, "RayCluster", "demo"))
    assert put is None or (isinstance(put, Tombstone) and put.moved_to == subjects.locate_tree(SVC))


async def test_a_kind_that_only_another_build_publishes_is_not_declared_deleted() -> None:
    stream = FakeStateStream()
    novel = ObjectState(
        kind="Novel", namespace="ns", name="one", uid="u", version="1", form="1.0", body=b"{}"
    )
    stream.put(subject(DEMO, "Novel", "one"), novel, 3)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(CLUSTERS, resources.RAY_CLUSTER).listed(set(), "40")
    setup.relay.everything_is_listed()

    assert setup.waiting() == {}


async def test_after_a_take_over_all_is_published_in_the_form_of_this_build_whatever_its_version() -> (
    None
):
    stream = FakeStateStream()
    for number, form in enumerate(("1-f73851c4", "1.9", "2.0", POD_FORM)):
        name = f"pod-{number}"
        held = ObjectState(
            kind="Pod", namespace="ns", name=name, uid="u", version="5", form=form, body=b"{}"
        )
        stream.put(subject(ObjectRef("Pod", "ns", name), "Pod", name), held, number + 1)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    pods = setup.source(PODS, resources.POD)
    for number in range(4):
        pods.present(an_object(f"pod-{number}", 5))
    pods.listed({("ns", f"pod-{number}") for number in range(4)}, "9")
    setup.relay.everything_is_listed()

    put = [each for each in setup.waiting().values() if isinstance(each, ObjectState)]
    assert {(each.name, each.form) for each in put} == {
        ("pod-0", POD_FORM),
        ("pod-1", POD_FORM),
        ("pod-2", POD_FORM),
    }


async def test_an_object_that_stands_under_an_old_root_is_moved_at_the_start() -> None:
    stream = FakeStateStream()
    body = ObjectState(
        kind="Pod", namespace="ns", name="pod", uid="u", version="5", form="1", body=b"{}"
    )
    stream.put(subject(DEMO, "Pod", "pod"), body, 3)
    setup = Setup(stream, Outbox(stream, await stream.load(), lambda _: None))

    setup.source(SERVICES, resources.RAY_SERVICE).present(an_object("svc", 2))
    setup.source(CLUSTERS, resources.RAY_CLUSTER).present(an_object("demo", 4, origin="svc"))
    setup.source(PODS, resources.POD).present(an_object("pod", 5, owner=("RayCluster", "demo")))
    setup.source(PODS, resources.POD).listed({("ns", "pod")}, "9")
    setup.relay.everything_is_listed()

    moved = setup.waiting()[subject(DEMO, "Pod", "pod")]
    assert isinstance(moved, Tombstone)
    assert moved.moved_to == subjects.locate_tree(SVC)


async def test_a_kind_that_is_not_served_does_not_count_for_the_version(setup: Setup) -> None:
    setup.source(CLUSTERS, resources.RAY_CLUSTER).listed(set(), "40")
    setup.source(PODS, resources.HTTP_ROUTE).listed(set(), "")

    assert setup.relay.version == 40


async def test_every_partition_is_marked(setup: Setup) -> None:
    marker = Synced(epoch="epoch", version=40, renewed=10.0)
    setup.relay.publish_marker(marker)

    assert setup.waiting() == {
        f"ray.state.{partition}.{tree}.synced": (
            msgspec.structs.replace(marker, renewed=0.0) if partition else marker
        )
        for partition in range(subjects.PARTITIONS)
        for tree in ("service", "job")
    }


async def test_a_renewal_repeats_the_marker_of_the_first_partition(setup: Setup) -> None:
    marker = Synced(epoch="epoch", version=40, renewed=10.0)
    setup.relay.renew_marker(marker)

    assert setup.waiting() == {f"ray.state.0.{tree}.synced": marker for tree in ("service", "job")}


async def test_a_list_below_an_earlier_one_ends_the_session(setup: Setup) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.listed(set(), "500")
    clusters.listed(set(), "500")
    assert setup.reasons == []

    clusters.listed(set(), "90")

    assert "the API server's store was restored from a backup" in setup.reasons[0]


async def test_an_object_that_nests_too_deep_is_in_quarantine_and_others_pass(setup: Setup) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.present(an_object("hostile", 4), "it nests deeper than 100 levels")
    clusters.present(an_object("demo", 5))
    setup.relay.everything_is_listed()

    put = setup.waiting()
    hostile = put[subject(ObjectRef("RayCluster", "ns", "hostile"), "RayCluster", "hostile")]
    assert isinstance(hostile, Quarantined)
    assert (hostile.version, hostile.why) == ("4", "it nests deeper than 100 levels")
    assert isinstance(put[subject(DEMO, "RayCluster", "demo")], ObjectState)


async def test_whatever_an_object_does_to_a_decoder_it_alone_is_in_quarantine(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_resource: Resource, raw: bytes) -> bytes:
        if b"hostile" in raw:
            raise RecursionError
        return raw

    monkeypatch.setattr(publish_filter, "trim", fail)
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    for name in ("hostile", "demo"):
        clusters.present(an_object(name, 4))
    setup.relay.everything_is_listed()

    kinds = {
        message.name: type(message)
        for message in setup.waiting().values()
        if not isinstance(message, Synced)
    }
    assert kinds == {"hostile": Quarantined, "demo": ObjectState}


async def test_an_object_leaves_quarantine_with_the_version_that_can_be_read(setup: Setup) -> None:
    clusters = setup.source(CLUSTERS, resources.RAY_CLUSTER)
    clusters.present(an_object("demo", 4), "it nests too deep")
    setup.relay.everything_is_listed()
    clusters.present(an_object("demo", 5))

    assert isinstance(setup.waiting()[subject(DEMO, "RayCluster", "demo")], ObjectState)


async def test_what_stands_for_an_object_is_small_and_leads_to_its_root(setup: Setup) -> None:
    metadata = {
        "name": "pod",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "4",
        "annotations": {"a": "x" * 100_000},
        "labels": {"ray.io/cluster": "demo", **{f"label-{number}": "x" for number in range(1000)}},
        "ownerReferences": [{"kind": "RayCluster", "name": "demo", "controller": True}],
    }
    setup.source(PODS, resources.POD).present(
        msgspec.json.encode({"metadata": metadata}), "it nests too deep"
    )
    setup.relay.everything_is_listed()

    message = setup.waiting()[subject(DEMO, "Pod", "pod")]
    assert isinstance(message, Quarantined)
    assert len(message.body) < 500
    assert b'"ray.io/cluster":"demo"' in message.body
