"""What each message does to the cache, to the quarantine and to the queue: the keys that it enqueues, their order, and the partition of each."""

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.bus.feed import NOT_READ, PartitionListener
from common.bus.messages import ObjectState, Quarantined, Tombstone
from common.bus.subjects import TreeKind, TreeLocation
from common.observability import tracing
from common.observability.metrics import ReconcileMeter
from common.runtime.cache import Cache, Object
from common.runtime.informer import Informer
from common.runtime.key import Key, Watched
from common.runtime.work_queue import WorkQueue
from support.builders.messages import a_quarantine, a_state, a_tombstone

pytestmark = pytest.mark.looptime

NS = "ns"
A, B = Key(NS, "a"), Key(NS, "b")
BROKEN = "broken"
"""Name of an object for which the function that returns keys raises an error."""


def a_cluster(name: str = "a", version: int = 1, **fields: object) -> bytes:
    meta = {"namespace": NS, "name": name, "uid": name, "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": {**meta, **fields}})


def a_pod(cluster: str = "a", version: int = 1, **fields: object) -> bytes:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster, "uid": cluster}
    meta = {
        "namespace": NS,
        "name": "pod",
        "resourceVersion": str(version),
        "ownerReferences": [owner],
    }
    return msgspec.json.encode({"metadata": meta, **fields})


def a_move(kind: str, body: bytes, to: int) -> Tombstone:
    return a_tombstone(kind, body, moved_to=TreeLocation(to, TreeKind.SERVICE))


def keys_of(obj: Object) -> list[Key]:
    if obj.metadata.name == BROKEN:
        raise ValueError(BROKEN)
    return [Key(NS, each.name) for each in obj.metadata.owner_references] or [
        Key(NS, obj.metadata.name)
    ]


class _Queue(WorkQueue[Key]):
    def __init__(self) -> None:
        super().__init__(
            group_of=lambda key: key.namespace, rank=None, meter=ReconcileMeter("informer")
        )
        self.added: list[str] = []

    def add(
        self, key: Key, *, is_new: bool = False, is_due: bool = False, since: float | None = None
    ) -> None:
        self.added.append(f"new {key.name}" if is_new else key.name)
        super().add(key, is_new=is_new, is_due=is_due, since=since)


class Followed:
    """An informer that follows the partitions 1 and 2."""

    def __init__(self) -> None:
        self.cache = Cache()
        self._queue = _Queue()
        watched = Watched(
            kinds={"RayCluster": RayCluster, "Pod": Pod}, root=RayCluster, keys_of=keys_of
        )
        self.informer = Informer("informer", watched, cache=self.cache, queue=self._queue)
        self.first, self.second = (self.informer.hold(each) for each in (1, 2))
        for each in (self.first, self.second):
            each.loading("start")
            each.synced(0)

    def added(self) -> list[str]:
        """Return the keys that were enqueued since the last call."""
        added, self._queue.added = self._queue.added, []
        return added

    def take(self, listener: PartitionListener, kind: str, body: bytes) -> list[str]:
        """Deliver the state of an object; return the keys that it enqueues."""
        listener.take(a_state(kind, body), trace="")
        return self.added()

    def version(self, kind: type[Object], name: str) -> int | None:
        found = self.cache.get(kind, NS, name)
        return None if found is None else found.metadata.version


async def test_the_key_of_a_created_object_is_new_and_no_other() -> None:
    at = Followed()
    assert at.take(at.first, "RayCluster", a_cluster()) == ["new a"]
    assert at.take(at.first, "Pod", a_pod()) == ["a"]
    assert at.take(at.first, "RayCluster", a_cluster(version=2)) == ["a"]


async def test_a_second_root_has_keys_with_its_kind() -> None:
    at = Followed()
    watched = Watched(
        kinds={"RayCluster": RayCluster, "Pod": Pod},
        root=Pod,
        other_roots={"RayCluster": RayCluster},
        keys_of=lambda obj: [
            Key(NS, obj.metadata.name, "" if isinstance(obj, Pod) else "RayCluster")
        ],
    )
    at.informer.watched = watched
    assert at.take(at.first, "RayCluster", a_cluster()) == ["new a"]
    key = Key(NS, "a", "RayCluster")
    assert at.informer.may_reconcile(key)
    assert at.informer.root(key) == at.cache.get(RayCluster, NS, "a")
    assert not at.informer.is_followed(Key(NS, "a"))
    at.first.take(a_quarantine("RayCluster", a_cluster(version=2), "why"), trace="")
    assert at.informer.quarantine.find(key) is not None


async def test_a_root_that_a_write_of_this_process_created_is_enqueued() -> None:
    at = Followed()
    at.cache.put(msgspec.json.decode(a_cluster(), type=RayCluster))
    assert at.take(at.first, "RayCluster", a_cluster()) == ["new a"]
    assert at.take(at.first, "RayCluster", a_cluster()) == []


async def test_a_write_to_a_root_enqueues_the_root_above_it() -> None:
    at = Followed()
    above = Key(NS, "above")

    def with_above(obj: Object) -> list[Key]:
        return [Key(NS, obj.metadata.name), above]

    at.informer.watched = replace(at.informer.watched, keys_of=with_above)
    at.take(at.first, "RayCluster", a_cluster())
    at.cache.put(msgspec.json.decode(a_cluster(version=2), type=RayCluster))
    assert at.take(at.first, "RayCluster", a_cluster(version=2)) == ["a", "above"]
    at.cache.put(msgspec.json.decode(a_pod(), type=Pod))
    assert at.take(at.first, "Pod", a_pod()) == []


async def test_a_root_that_this_process_deleted_is_reconciled_to_remove_its_finalizer() -> None:
    at = Followed()
    at.take(at.first, "RayCluster", a_cluster())
    deleted = a_cluster(version=2, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f"])
    at.cache.put(msgspec.json.decode(deleted, type=RayCluster))  # the API server's answer
    assert at.take(at.first, "RayCluster", deleted) == ["a"]


async def test_a_state_before_the_deletion_makes_no_key_new() -> None:
    at = Followed()
    at.first.take(a_tombstone("RayCluster", a_cluster(version=5)), trace="")
    at.first.take(a_quarantine("RayCluster", a_cluster(version=3), "too large"), trace="")
    at.added()
    assert at.take(at.first, "RayCluster", a_cluster(version=3)) == ["a"]
    assert at.version(RayCluster, "a") is None


async def test_another_state_of_the_same_version_counts_in_a_reload_alone() -> None:
    at = Followed()
    at.take(at.first, "Pod", a_pod())
    assert at.take(at.first, "Pod", a_pod(spec={"nodeName": "n"})) == []


async def test_a_state_enqueues_its_keys_before_those_that_waited_for_it() -> None:
    at = Followed()
    at.first.take(a_quarantine("Pod", a_pod("a"), "too large"), trace="")
    assert at.added() == ["a"]
    assert at.take(at.first, "Pod", a_pod("b", version=2)) == ["b", "a"]


async def test_a_known_state_ends_the_quarantine() -> None:
    at = Followed()
    at.take(at.first, "RayCluster", a_cluster())
    at.first.take(a_quarantine("RayCluster", a_cluster(), "too large"), trace="")
    at.added()
    assert at.take(at.first, "RayCluster", a_cluster()) == ["a"]
    assert at.informer.may_reconcile(A)


async def test_an_object_in_quarantine_concerns_the_keys_of_its_last_state() -> None:
    at = Followed()
    at.take(at.first, "Pod", a_pod("a"))
    at.first.take(
        a_quarantine("Pod", b'{"metadata":{"namespace":"ns","name":"pod"}}', "too large"), trace=""
    )
    assert at.added() == ["a"]


async def test_an_object_in_quarantine_stays_in_the_cache_after_a_reload() -> None:
    at = Followed()
    at.take(at.first, "Pod", a_pod())
    at.first.loading("a new epoch")
    at.first.take(a_quarantine("Pod", a_pod(), "too large"), trace="")
    at.first.synced(10)
    assert at.version(Pod, "pod") == 1


@pytest.mark.parametrize(
    "message",
    [a_quarantine("RayCluster", a_cluster(), "too large"), a_state("RayCluster", a_cluster())],
)
async def test_an_object_without_readable_metadata_has_the_name_of_its_message(
    message: Quarantined | ObjectState,
) -> None:
    at = Followed()
    at.take(at.first, "RayCluster", a_cluster())
    at.first.take(replace(message, body=b'{"metadata":7}'), trace="")
    assert (at.added(), at.informer.may_reconcile(A)) == (["a"], False)
    at.first.take(a_tombstone("RayCluster", a_cluster(version=2)), trace="")
    assert (at.added(), at.informer.may_reconcile(A)) == (["a", "a"], True)


async def test_quarantine_decides_the_partition_of_a_key_without_one() -> None:
    at = Followed()
    at.first.take(a_quarantine("Pod", a_pod("a"), "too large"), trace="")
    at.take(at.second, "RayCluster", a_cluster("b"))
    at.first.take(a_quarantine("Pod", a_pod("b"), "too large"), trace="")
    assert at.informer.partition_of == {A: 1, B: 2}


async def test_an_object_that_breaks_its_keys_is_in_quarantine_and_counted() -> None:
    at = Followed()
    labels = {"controller": "informer", "kind": "RayCluster"}
    before = REGISTRY.get_sample_value("raybus_undecodable_messages_total", labels) or 0.0
    assert at.take(at.first, "RayCluster", a_cluster(BROKEN)) == [BROKEN]
    assert at.informer.quarantine.find(Key(NS, BROKEN)) is not None
    assert (at.version(RayCluster, BROKEN), at.informer.partition_of) == (
        None,
        {Key(NS, BROKEN): 1},
    )
    assert REGISTRY.get_sample_value("raybus_undecodable_messages_total", labels) == before + 1


async def test_an_older_tombstone_removes_nothing() -> None:
    at = Followed()
    at.take(at.first, "RayCluster", a_cluster(version=7))
    at.first.take(a_tombstone("RayCluster", a_cluster(version=6)), trace="")
    assert (at.added(), at.version(RayCluster, "a")) == ([], 7)


async def test_a_tombstone_counts_in_its_own_partition() -> None:
    at = Followed()
    at.first.take(a_tombstone("RayCluster", a_cluster(version=5)), trace="")
    assert at.take(at.second, "RayCluster", a_cluster(version=5)) == ["new a"]
    at.second.take(a_quarantine("Pod", a_pod("a"), "too large"), trace="")
    assert at.added() == ["a"]
    at.first.take(a_tombstone("Pod", a_pod("a")), trace="")
    assert (at.added(), at.informer.may_reconcile(A)) == ([], False)


async def test_the_key_of_a_root_is_in_the_partition_that_shows_the_root() -> None:
    at = Followed()
    at.take(at.first, "RayCluster", a_cluster())
    at.take(at.first, "Pod", a_pod())
    at.first.take(a_move("RayCluster", a_cluster(), 2), trace="")
    assert at.informer.partition_of == {A: 2}
    at.take(at.first, "RayCluster", a_cluster())  # its old partition is late
    assert at.informer.partition_of == {A: 1}
    at.take(at.second, "RayCluster", a_cluster())
    at.take(at.second, "Pod", a_pod())
    assert at.informer.partition_of == {A: 2}


async def test_a_late_message_of_the_old_partition_leaves_the_key_of_a_root_in_the_new_one() -> (
    None
):
    at = Followed()
    at.first.take(a_tombstone("RayCluster", a_cluster(version=5)), trace="")
    at.take(at.second, "RayCluster", a_cluster(version=5))
    at.take(at.first, "RayCluster", a_cluster(version=4))
    at.first.take(a_move("RayCluster", a_cluster(version=4), 9), trace="")
    assert (at.informer.partition_of, at.version(RayCluster, "a")) == ({A: 2}, 5)


async def test_the_move_of_a_child_leaves_its_key_where_its_root_is() -> None:
    at = Followed()
    at.take(at.first, "RayCluster", a_cluster())
    at.take(at.first, "Pod", a_pod())
    at.first.take(a_move("Pod", a_pod(), 2), trace="")
    assert (at.added(), at.informer.partition_of, at.version(Pod, "pod")) == ([], {A: 1}, 1)


@pytest.mark.parametrize("to", [9, NOT_READ])
async def test_a_move_out_of_reach_enqueues_the_keys_under_the_trace_of_the_last_change(
    to: int,
) -> None:
    at = Followed()
    at.first.take(a_state("Pod", a_pod()), trace="change")
    at.added()
    at.first.take(a_move("Pod", a_pod(), to), trace="move")
    assert (at.added(), at.version(Pod, "pod")) == (["a"], None)
    with at.informer.traces.reconciling(A):
        assert tracing.CURRENT.get() == "change"


async def test_a_partition_that_was_stopped_takes_no_call() -> None:
    at = Followed()
    at.take(at.first, "RayCluster", a_cluster())
    at.first.take(a_quarantine("Pod", a_pod(), "too large"), trace="")
    at.informer.stop({1})
    at.first.loading("on its way when we let go")
    at.first.rewound()
    at.first.synced(10)
    assert at.informer.quarantine.find(A) is not None
    assert (at.informer.was_synced, at.version(RayCluster, "a")) == (True, 1)
