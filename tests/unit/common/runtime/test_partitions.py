"""Partitions that a controller gains and loses: which keys may be reconciled, what is forgotten,
and what stays.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from common import errors
from common.api.core import Pod
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.bus.feed import NOT_READ
from common.bus.subjects import TreeKind, TreeLocation
from common.clock import SystemClock
from common.runtime.cache import Cache, Object, Objects
from common.runtime.controller import Controller
from common.runtime.key import Key, Watched
from support.builders.messages import a_quarantine, a_state, a_tombstone

pytestmark = pytest.mark.looptime

NS = "ns"


def a_cluster(name: str, version: int = 1) -> bytes:
    meta = {"namespace": NS, "name": name, "uid": name, "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": meta, "spec": {"headGroupSpec": {"template": {}}}})


def a_pod(cluster: str, name: str = "", version: int = 1) -> bytes:
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": cluster,
        "uid": cluster,
        "controller": True,
    }
    name = name or f"{cluster}-pod"
    meta = {
        "namespace": NS,
        "name": name,
        "uid": name,
        "resourceVersion": str(version),
        "ownerReferences": [owner],
    }
    return msgspec.json.encode({"metadata": meta})


def keys_of(obj: Object) -> list[Key]:
    owners = [each.name for each in obj.metadata.owner_references]
    return [Key(NS, owners[0] if owners else obj.metadata.name)]


class Shell:
    """A controller with reconciles whose duration the test sets."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.forgotten: list[str] = []
        watched = Watched(
            kinds={"RayCluster": RayCluster, "Pod": Pod}, root=RayCluster, keys_of=keys_of
        )
        self.reported: list[tuple[str, str]] = []
        self.report_fails_by: list[BaseException] = []
        self.controller = Controller(
            "test",
            watched,
            cache=self.cache,
            clock=SystemClock(),
            forget=[self._forget],
            report_quarantine=self._report,
        )
        self.reconciles: list[str] = []
        self.cut: list[str] = []
        self.seconds = 0.0
        self.again: timedelta | None = None

    async def reconcile(self, key: Key, now: datetime) -> datetime | None:
        self.reconciles.append(key.name)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cut.append(key.name)
            raise
        return None if self.again is None else now + self.again

    async def _report(self, _key: Key, about: ObjectMeta, why: str) -> None:
        if self.report_fails_by:
            raise self.report_fails_by.pop()
        self.reported.append((about.name, why))

    def _forget(self, objects: Objects) -> None:
        self.forgotten += [each.metadata.name for each in objects]

    async def run(self, script: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self.controller.run(self.reconcile, workers=4))
            await script()
            await asyncio.sleep(1)
            working.cancel()

    def names(self, kind: type[Object]) -> set[str]:
        return {each.metadata.name for each in self.cache.list_all(kind)}


async def test_one_partition_is_worked_on_while_another_one_loads() -> None:
    shell = Shell()
    first, second = shell.controller.informer.hold(1), shell.controller.informer.hold(2)
    for listener, name in ((first, "a"), (second, "b")):
        listener.loading("start")
        listener.take(a_state("RayCluster", a_cluster(name)), trace="")

    async def script() -> None:
        first.synced(10)
        await asyncio.sleep(1)
        assert shell.reconciles == ["a"]
        assert shell.controller.informer.loading == 1
        second.synced(10)

    await shell.run(script)
    assert shell.reconciles == ["a", "b"]


async def test_a_reload_of_one_partition_touches_nothing_of_another() -> None:
    shell = Shell()
    first, second = shell.controller.informer.hold(1), shell.controller.informer.hold(2)
    first.take(a_state("RayCluster", a_cluster("a")), trace="")
    second.take(a_state("RayCluster", a_cluster("b")), trace="")
    first.synced(10)
    second.synced(10)

    async def script() -> None:
        await asyncio.sleep(1)
        first.loading("its consumer broke")
        first.synced(20)

    await shell.run(script)
    assert shell.names(RayCluster) == {"b"}
    assert shell.reconciles == ["a", "b", "a"]


class Reload(Shell):
    """Three clusters, each with a pod, at rest; afterwards their partition is loaded again."""

    def __init__(self) -> None:
        super().__init__()
        self.listener = self.controller.informer.hold(1)
        self.load(10)

    def load(self, version: int, *, without: str = "", newer: str = "") -> None:
        self.show(without=without, newer=newer)
        self.listener.synced(version)

    async def rest(self) -> None:
        """Wait for the reconciles after the first load, which are not counted."""
        await asyncio.sleep(1)
        self.reconciles.clear()

    def show(self, *, without: str = "", newer: str = "") -> None:
        for name in "abc":
            self.listener.take(a_state("RayCluster", a_cluster(name)), trace="")
            if name != without:
                self.listener.take(
                    a_state("Pod", a_pod(name, version=2 if name == newer else 1)), trace=""
                )


async def test_a_reload_has_only_those_reconciled_that_it_changes() -> None:
    shell = Reload()

    async def script() -> None:
        await shell.rest()
        shell.listener.loading("a new epoch")
        shell.load(20)
        await asyncio.sleep(1)
        assert shell.reconciles == []
        shell.listener.loading("a new epoch")
        shell.load(30, newer="b")
        await asyncio.sleep(1)
        assert shell.reconciles == ["b"]
        shell.listener.loading("a new epoch")
        shell.load(40, newer="b", without="c")

    await shell.run(script)
    assert shell.reconciles == ["b", "c"]


@pytest.mark.parametrize(
    "is_due", [pytest.param(True, id="due"), pytest.param(False, id="enqueued")]
)
async def test_what_is_due_or_enqueued_during_a_reload_is_reconciled_after_it(
    *, is_due: bool
) -> None:
    shell = Reload()
    shell.again = timedelta(seconds=2) if is_due else None

    async def script() -> None:
        await shell.rest()
        shell.again = None
        shell.listener.loading("the watcher is silent")
        if not is_due:
            shell.controller.queue.add(Key(NS, "b"))
        await asyncio.sleep(3)
        shell.listener.loading("the watcher is back")
        assert shell.reconciles == []
        shell.load(20)

    await shell.run(script)
    assert sorted(shell.reconciles) == (["a", "b", "c"] if is_due else ["b"])


async def test_what_two_loads_in_a_row_change_is_reconciled() -> None:
    shell = Reload()

    async def script() -> None:
        await shell.rest()
        shell.listener.loading("a new epoch")
        shell.show(newer="a")
        shell.listener.loading("its consumer broke")
        shell.load(20, newer="a")

    await shell.run(script)
    assert shell.reconciles == ["a"]


async def test_after_a_restore_and_a_move_all_is_reconciled() -> None:
    shell = Reload()

    async def script() -> None:
        await shell.rest()
        shell.listener.loading("restored from a backup")
        shell.listener.rewound()
        shell.load(5)
        await asyncio.sleep(1)
        assert sorted(shell.reconciles) == ["a", "b", "c"]
        shell.reconciles.clear()
        await shell.controller.release({1})
        shell.listener = shell.controller.informer.hold(1)
        shell.load(6)

    await shell.run(script)
    assert sorted(shell.reconciles) == ["a", "b", "c"]


async def test_a_released_partition_drops_its_objects_and_keys() -> None:
    shell = Shell()
    first, second = shell.controller.informer.hold(1), shell.controller.informer.hold(2)
    for listener, name in ((first, "a"), (second, "b")):
        listener.take(a_state("RayCluster", a_cluster(name)), trace="")
        listener.take(a_state("Pod", a_pod(name)), trace="")
        listener.synced(10)
    shell.cache.put(msgspec.json.decode(a_pod("a", "just-created", 30), type=Pod))

    async def script() -> None:
        await asyncio.sleep(1)
        await shell.controller.release({1})
        first.take(a_state("RayCluster", a_cluster("a", 40)), trace="")  # on its way when we let go
        shell.controller.queue.add(Key(NS, "a"))

    await shell.run(script)
    assert (shell.names(RayCluster), shell.names(Pod)) == ({"b"}, {"b-pod"})
    assert sorted(shell.forgotten) == ["a", "a-pod", "just-created"]
    assert shell.reconciles == ["a", "b"]
    assert shell.controller.informer.followed.keys() == {2}


async def test_a_reconcile_may_end_before_its_partition_is_released() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    listener.take(a_state("RayCluster", a_cluster("a")), trace="")
    listener.synced(10)
    shell.seconds = 3.0

    async def script() -> None:
        await asyncio.sleep(1)
        assert shell.controller.stop({1}) == {1}
        began = asyncio.get_running_loop().time()
        await shell.controller.release({1}, grace_seconds=10.0)
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)

    await shell.run(script)
    assert (shell.reconciles, shell.cut) == (["a"], [])


async def test_a_long_reconcile_is_cancelled() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    listener.take(a_state("RayCluster", a_cluster("a")), trace="")
    listener.synced(10)
    shell.seconds = 30.0

    async def script() -> None:
        await asyncio.sleep(1)
        async with asyncio.timeout(1):
            await shell.controller.release({1}, grace_seconds=0.5)

    await shell.run(script)
    assert (shell.reconciles, shell.cut) == (["a"], ["a"])


async def test_a_partition_may_come_back() -> None:
    shell = Shell()
    for version in (1, 2):
        listener = shell.controller.informer.hold(1)
        listener.loading("start")
        listener.take(a_state("RayCluster", a_cluster("a", version)), trace="")
        listener.synced(10)
        if version == 1:
            await shell.controller.release({1})

    async def script() -> None:
        await asyncio.sleep(0)

    await shell.run(script)
    assert shell.reconciles == ["a"]


async def test_an_object_that_moves_between_our_partitions_is_never_missing() -> None:
    shell = Shell()
    first, second = shell.controller.informer.hold(1), shell.controller.informer.hold(2)
    first.take(a_state("Pod", a_pod("a")), trace="")
    first.synced(10)
    second.synced(10)
    first.take(a_tombstone("Pod", a_pod("a"), moved_to=TreeLocation(2, TreeKind.SERVICE)), trace="")
    assert shell.names(Pod) == {"a-pod"}
    first.loading("its consumer broke")
    first.synced(20)
    assert shell.names(Pod) == {"a-pod"}
    second.take(a_state("Pod", a_pod("a")), trace="")
    second.take(a_tombstone("Pod", a_pod("a", version=30)), trace="")
    assert shell.names(Pod) == set()


async def test_an_object_that_moves_away_is_dropped_and_may_return_unchanged() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    listener.take(a_state("Pod", a_pod("a")), trace="")
    listener.synced(10)
    listener.take(
        a_tombstone("Pod", a_pod("a"), moved_to=TreeLocation(9, TreeKind.SERVICE)), trace=""
    )
    assert shell.names(Pod) == set()
    listener.take(a_state("Pod", a_pod("a")), trace="")
    assert shell.names(Pod) == {"a-pod"}


async def test_a_deletion_delivered_before_the_move_counts() -> None:
    shell = Shell()
    first, second = shell.controller.informer.hold(1), shell.controller.informer.hold(2)
    first.synced(10)
    second.synced(10)
    second.take(a_state("Pod", a_pod("a")), trace="")
    second.take(a_tombstone("Pod", a_pod("a", version=5)), trace="")
    first.take(a_state("Pod", a_pod("a")), trace="")  # the consumer of its old partition is late
    first.take(a_tombstone("Pod", a_pod("a"), moved_to=TreeLocation(2, TreeKind.SERVICE)), trace="")
    assert shell.names(Pod) == set()


async def test_what_a_reload_missed_comes_back_when_the_bus_shows_it() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    listener.take(a_state("Pod", a_pod("a", version=5)), trace="")
    listener.loading("start")
    listener.synced(20)
    listener.take(a_state("Pod", a_pod("a", version=5)), trace="")
    assert shell.names(Pod) == {"a-pod"}


async def test_a_child_seen_before_its_parent_waits_for_the_parents_partition() -> None:
    shell = Shell()
    first, second = shell.controller.informer.hold(1), shell.controller.informer.hold(2)
    first.synced(10)
    second.loading("start")

    async def script() -> None:
        first.take(a_state("Pod", a_pod("a")), trace="")
        await asyncio.sleep(1)
        shell.reconciles.clear()
        second.take(a_state("RayCluster", a_cluster("a")), trace="")
        first.take(a_state("Pod", a_pod("a", version=2)), trace="")
        await asyncio.sleep(1)
        assert shell.reconciles == []
        second.synced(10)

    await shell.run(script)
    assert shell.reconciles == ["a"]


async def test_what_belongs_to_others_is_not_kept_for_long() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    listener.take(a_state("RayCluster", a_cluster("a")), trace="")
    listener.synced(10)
    for cluster in ("a", "somebody-elses"):
        shell.cache.put(msgspec.json.decode(a_pod(cluster, version=20), type=Pod))

    async def script() -> None:
        await asyncio.sleep(60)

    await shell.run(script)
    assert shell.names(Pod) == {"a-pod"}


async def test_a_refused_write_is_retried_later_and_not_logged_as_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    listener.take(a_state("RayCluster", a_cluster("a")), trace="")
    listener.synced(10)
    tries: list[float] = []

    async def fenced(key: Key, now: datetime) -> datetime | None:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 3:
            raise errors.OwnershipLost("not sure", after=1.0)
        return None

    async with asyncio.TaskGroup() as group:
        working = group.create_task(shell.controller.run(fenced, workers=1))
        await asyncio.sleep(10)
        working.cancel()
    assert tries == pytest.approx([0.0, 1.0, 2.0], abs=0.01)
    assert "warning" not in capsys.readouterr().out


NAMELESS = b'{"metadata":{"namespace":"ns","name":"hostile","uid":"h"}}'


@pytest.mark.parametrize("synced_first", [True, False])
async def test_an_object_in_quarantine_waits_and_the_others_are_reconciled(
    *, synced_first: bool
) -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)

    async def script() -> None:
        listener.loading("start")
        if synced_first:
            listener.synced(10)
        listener.take(a_quarantine("RayCluster", NAMELESS, "it nests too deep"), trace="")
        listener.take(a_state("RayCluster", a_cluster("victim")), trace="")
        if not synced_first:
            listener.synced(10)
        await asyncio.sleep(1)
        assert shell.reconciles == ["victim"]
        listener.take(a_state("RayCluster", a_cluster("hostile", 11)), trace="")

    await shell.run(script)
    assert shell.reconciles == ["victim", "hostile"]


async def test_a_stray_cancellation_of_the_report_keeps_no_key_in_work() -> None:
    shell = Shell()
    shell.report_fails_by = [asyncio.CancelledError()]
    listener = shell.controller.informer.hold(1)

    async def script() -> None:
        listener.take(a_state("RayCluster", a_cluster("a")), trace="")
        listener.take(a_quarantine("Pod", a_pod("a"), "it is too large"), trace="")
        listener.synced(10)
        await asyncio.sleep(5)
        listener.take(a_state("Pod", a_pod("a", version=7)), trace="")

    await shell.run(script)
    assert shell.reconciles == ["a"]


async def test_quarantine_is_reported_on_the_object_that_waits() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)

    async def script() -> None:
        listener.loading("start")
        listener.take(a_state("RayCluster", a_cluster("a")), trace="")
        listener.synced(10)
        listener.take(a_quarantine("Pod", a_pod("a"), "it is too large"), trace="")

    await shell.run(script)
    assert ("a", "Pod ns/a-pod is in quarantine: it is too large") in shell.reported


async def test_an_object_with_a_malformed_spec_waits_and_the_field_is_reported() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    broken = msgspec.json.decode(a_cluster("hostile"))
    broken["spec"] = {"workerGroupSpecs": [{"template": {"spec": {"containers": [7]}}}]}

    async def script() -> None:
        listener.synced(10)
        listener.take(a_state("RayCluster", msgspec.json.encode(broken)), trace="")
        listener.take(a_state("RayCluster", a_cluster("victim")), trace="")

    await shell.run(script)
    assert shell.reconciles == ["victim"]
    assert any(
        "at `$.workerGroupSpecs[0].template.spec.containers[0]`" in why for _, why in shell.reported
    )


@pytest.mark.parametrize("end", ["removed", "moved", "reloaded"])
async def test_quarantine_ends_with_the_object(end: str) -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)

    async def script() -> None:
        listener.loading("start")
        listener.take(a_state("RayCluster", a_cluster("a")), trace="")
        listener.take(a_quarantine("Pod", a_pod("a"), "it is too large"), trace="")
        listener.synced(10)
        await asyncio.sleep(1)
        assert shell.reconciles == []
        if end == "removed":
            listener.take(a_tombstone("Pod", a_pod("a", version=12)), trace="")
        elif end == "moved":
            listener.take(
                a_tombstone("Pod", a_pod("a"), moved_to=TreeLocation(NOT_READ, TreeKind.SERVICE)),
                trace="",
            )
        else:
            listener.loading("again")
            listener.take(a_state("RayCluster", a_cluster("a")), trace="")
            listener.synced(12)

    await shell.run(script)
    assert shell.reconciles[-1:] == ["a"]


async def test_a_message_that_breaks_the_decoder_stops_one_key_and_no_partition() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    deep = (
        b'{"metadata":{"namespace":"ns","name":"hostile"},"spec":'
        + b"[" * 50_000
        + b"]" * 50_000
        + b"}"
    )

    async def script() -> None:
        listener.loading("start")
        listener.synced(10)
        listener.take(replace(a_state("RayCluster", a_cluster("hostile")), body=deep), trace="")
        listener.take(a_state("RayCluster", a_cluster("victim")), trace="")

    await shell.run(script)
    assert shell.reconciles == ["victim"]


async def test_after_a_restore_lower_versions_of_the_same_objects_count() -> None:
    shell = Shell()
    listener = shell.controller.informer.hold(1)

    async def script() -> None:
        listener.loading("start")
        listener.take(a_state("RayCluster", a_cluster("a", 500)), trace="")
        listener.take(a_state("Pod", a_pod("a", version=501)), trace="")
        listener.take(a_tombstone("RayCluster", a_cluster("b", 600)), trace="")
        listener.synced(600)

        listener.rewound()
        listener.loading("restored")
        listener.take(a_state("RayCluster", a_cluster("a", 90)), trace="")
        listener.take(a_state("RayCluster", a_cluster("b", 91)), trace="")
        listener.synced(95)

    await shell.run(script)
    assert {
        each.metadata.name: each.metadata.resource_version
        for each in shell.cache.list_all(RayCluster)
    } == {"a": "90", "b": "91"}
    assert shell.names(Pod) == set()


async def test_fields_that_a_watcher_of_another_build_adds_count_in_the_same_version_of_the_object() -> (
    None
):
    shell = Shell()
    listener = shell.controller.informer.hold(1)
    poorer = msgspec.json.decode(a_pod("a", version=7))

    async def script() -> None:
        listener.loading("start")
        listener.take(a_state("RayCluster", a_cluster("a")), trace="")
        listener.take(a_state("Pod", msgspec.json.encode(poorer)), trace="")
        listener.synced(10)
        await asyncio.sleep(1)

        listener.loading("the watcher began another epoch")
        listener.take(a_state("RayCluster", a_cluster("a")), trace="")
        listener.take(
            a_state("Pod", msgspec.json.encode(poorer | {"spec": {"nodeName": "n"}})), trace=""
        )
        listener.synced(10)

    await shell.run(script)
    assert [each.spec.node_name for each in shell.cache.list_all(Pod)] == ["n"]


async def test_while_the_bus_is_silent_a_guard_reconciles_what_is_due() -> None:
    """It does not start at once, since a reload takes a moment, and not before one complete
    snapshot, since until then part of the state is unknown.
    """
    shell = Shell()
    first, second = shell.controller.informer.hold(1), shell.controller.informer.hold(2)
    for listener, name in ((first, "a"), (second, "b")):
        listener.loading("start")
        listener.take(a_state("RayCluster", a_cluster(name)), trace="")
    guarded: list[tuple[float, str]] = []

    async def guard(key: Key, now: datetime) -> datetime | None:
        guarded.append((asyncio.get_running_loop().time(), key.name))
        return now + timedelta(seconds=1)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(shell.controller.run(shell.reconcile, workers=4, guard=guard))
        first.synced(10)
        await asyncio.sleep(1)
        lost_at = asyncio.get_running_loop().time()
        for _ in range(3):
            first.loading("NATS is away")
            for name in ("a", "b"):
                shell.controller.queue.add(Key(NS, name))
            await asyncio.sleep(1.5)
        assert (shell.reconciles, {name for _, name in guarded}) == (["a"], {"a"})
        assert [round(at - lost_at) for at, _ in guarded][:2] == [2, 3]
        first.synced(20)
        count = len(guarded)
        await asyncio.sleep(3)
        shell.controller.stop({1})
        await asyncio.sleep(3)
        working.cancel()
    assert len(guarded) == count
    assert shell.reconciles == ["a", "a"]
