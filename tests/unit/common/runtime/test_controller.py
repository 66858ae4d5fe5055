"""The shell: events that enqueue a key, conditions that make the workers wait, and the meaning of
errors.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec
import pytest
import structlog
from msgspec.structs import replace
from prometheus_client import REGISTRY

from common import errors
from common.api.core import Pod
from common.clock import SystemClock
from common.observability import tracing
from common.runtime import controller
from common.runtime.cache import Cache, Object, Objects
from common.runtime.controller import Controller
from common.runtime.key import Key, KeyPriority, Watched
from common.runtime.work_queue import KNOWN_IN_A_ROW
from support.builders.messages import a_state, a_tombstone
from support.tables import cases

pytestmark = pytest.mark.looptime


def a_pod(name: str, version: int = 1, *, namespace: str = "default") -> bytes:
    meta = {"namespace": namespace, "name": name, "uid": name, "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": meta})


def own_key(obj: Object) -> list[Key]:
    return [Key(obj.metadata.namespace, obj.metadata.name)]


class Shell:
    """A controller whose reconciles have predetermined outcomes."""

    def __init__(
        self,
        *outcomes: BaseException | float | None,
        rank: Callable[[Key], KeyPriority] | None = None,
        hangs_at: str = "nothing",
    ) -> None:
        self.forgotten: list[str] = []
        self.cache = Cache()
        watched = Watched(kinds={"Pod": Pod}, root=Pod, keys_of=own_key)
        self.controller = Controller(
            "test", watched, cache=self.cache, clock=SystemClock(), rank=rank, forget=[self._forget]
        )
        self._hangs_at = hangs_at
        self.partition = self.controller.informer.hold(0)
        self.reconciles: list[tuple[float, str]] = []
        self._outcomes = list(outcomes)

    async def reconcile(self, key: Key, now: datetime) -> datetime | None:
        self.reconciles.append((round(asyncio.get_running_loop().time(), 3), key.name))
        if key.name.startswith(self._hangs_at):
            await asyncio.Event().wait()
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, BaseException):
            raise outcome
        return None if outcome is None else now + timedelta(seconds=outcome)

    def _forget(self, objects: Objects) -> None:
        self.forgotten += [each.metadata.uid for each in objects]

    async def run_for(
        self, seconds: float, script: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                group.create_task(self.controller.run(self.reconcile, workers=2))
                if script is not None:
                    await script()
        except TimeoutError:
            pass


async def test_nothing_is_decided_before_the_state_is_synced() -> None:
    shell = Shell()
    shell.partition.loading("start")
    shell.partition.take(a_state("Pod", a_pod("a")), trace="")
    await shell.run_for(10)
    assert shell.reconciles == []
    assert shell.controller.informer.loading == 1


async def test_every_key_is_reconciled_once_after_a_load() -> None:
    shell = Shell()
    shell.partition.loading("start")
    shell.partition.take(a_state("Pod", a_pod("a")), trace="")
    shell.partition.take(a_state("Pod", a_pod("b")), trace="")
    shell.partition.synced(10)
    await shell.run_for(10)
    assert sorted(name for _, name in shell.reconciles) == ["a", "b"]


async def test_other_tasks_run_between_reconciles_that_await_nothing() -> None:
    shell, count = Shell(), 200
    shell.partition.loading("start")
    for number in range(count):
        shell.partition.take(a_state("Pod", a_pod(f"pod-{number}")), trace="")
    shell.partition.synced(10)
    longest = 0

    async def script() -> None:
        nonlocal longest
        while (before := len(shell.reconciles)) < count:
            await asyncio.sleep(0)
            longest = max(longest, len(shell.reconciles) - before)

    await shell.run_for(10, script)
    workers = 2 * len(shell.controller.queue.lanes)
    assert 0 < longest <= workers


async def test_an_older_message_enqueues_nothing() -> None:
    shell = Shell()
    shell.partition.take(a_state("Pod", a_pod("a", 7)), trace="")
    shell.partition.synced(10)

    async def script() -> None:
        await asyncio.sleep(1)
        shell.partition.take(a_state("Pod", a_pod("a", 6)), trace="")

    await shell.run_for(10, script)
    assert shell.reconciles == [(0.0, "a")]


async def test_an_object_that_a_reload_does_not_bring_is_gone_unless_it_is_newer_than_the_list() -> (
    None
):
    shell = Shell()
    shell.partition.take(a_state("Pod", a_pod("old", 5)), trace="")
    shell.partition.take(a_state("Pod", a_pod("mine", 20)), trace="")
    shell.partition.loading("stream lost")
    shell.partition.synced(10)
    assert [pod.metadata.name for pod in shell.cache.list_all(Pod)] == ["mine"]


async def test_a_removed_object_enqueues_its_key() -> None:
    shell = Shell()
    shell.partition.take(a_state("Pod", a_pod("a", 5)), trace="")
    shell.partition.synced(5)

    async def script() -> None:
        await asyncio.sleep(1)
        shell.partition.take(a_tombstone("Pod", a_pod("a", 6)), trace="")

    await shell.run_for(10, script)
    assert [name for _, name in shell.reconciles] == ["a", "a"]


async def test_a_message_that_does_not_decode_is_skipped() -> None:
    shell = Shell()
    shell.partition.take(replace(a_state("Pod", a_pod("a")), body=b'{"metadata": 7}'), trace="")
    shell.partition.take(a_state("Unknown", a_pod("b")), trace="")
    shell.partition.synced(1)
    await shell.run_for(1)
    assert shell.reconciles == []


@cases(
    ("outcomes", "reconciles"),
    {
        "not yet: requeue at the time asked for": ([3.0, None], [0.0, 3.0]),
        "a conflict is retried at once": ([errors.Conflict("old"), None], [0.0, 0.005]),
        "a named wait is kept": ([errors.Throttled("busy", after=4.0), None], [0.0, 4.0]),
        "a user's error does not loop hot": ([errors.InvalidSpec("bad"), None], [0.0, 0.25]),
        "our own bug is retried slowly, the process lives": ([ValueError("bug"), None], [0.0, 1.0]),
    },
)
async def test_what_an_outcome_means(
    outcomes: list[Exception | float | None], reconciles: list[float]
) -> None:
    shell = Shell(*outcomes)
    shell.partition.take(a_state("Pod", a_pod("a")), trace="")
    shell.partition.synced(1)
    await shell.run_for(60)
    assert [when for when, _ in shell.reconciles] == pytest.approx(reconciles, abs=0.003)


@pytest.mark.parametrize("problem", [errors.Forbidden, ValueError])
async def test_a_key_that_fails_for_days_is_retried_on(problem: type[Exception]) -> None:
    failures = 1100
    shell = Shell(*(problem(f"failure {number}") for number in range(failures)))
    shell.partition.take(a_state("Pod", a_pod("a")), trace="")
    shell.partition.synced(1)
    with structlog.testing.capture_logs():  # a traceback for each failure costs seconds
        await shell.run_for(30.0 * failures)
    assert len(shell.reconciles) == failures + 1


async def test_a_namespace_that_is_being_deleted_is_logged_once_and_retried_slowly() -> None:
    shell = Shell(*(errors.NamespaceTerminating("is being terminated") for _ in range(100)))
    shell.partition.take(a_state("Pod", a_pod("a")), trace="")
    shell.partition.synced(1)
    with structlog.testing.capture_logs() as logs:
        await shell.run_for(60)
    assert 10 <= len(shell.reconciles) <= 15
    shown = [each["event"] for each in logs if each["log_level"] != "debug"]
    assert shown == ["the namespace is being deleted"]


async def test_a_key_is_never_reconciled_twice_at_once() -> None:
    shell = Shell()
    running: list[str] = []
    overlaps: list[str] = []

    async def slow(key: Key, now: datetime) -> datetime | None:
        if key.name in running:
            overlaps.append(key.name)
        running.append(key.name)
        await asyncio.sleep(2)
        running.remove(key.name)
        return now + timedelta(seconds=1)

    shell.reconcile = slow
    shell.partition.take(a_state("Pod", a_pod("a")), trace="")
    shell.partition.synced(1)

    async def script() -> None:
        for _ in range(20):
            await asyncio.sleep(0.3)
            shell.controller.queue.add(Key("default", "a"))

    await shell.run_for(30, script)
    assert overlaps == []


async def test_a_new_object_waits_for_a_few_known_objects_only() -> None:
    shell = Shell()
    shell.partition.loading("start")
    known = [f"known-{number}" for number in range(KNOWN_IN_A_ROW + 2)]
    for name in known:
        shell.partition.take(a_state("Pod", a_pod(name)), trace="")
    shell.partition.synced(1)
    shell.partition.take(a_state("Pod", a_pod("new", 2)), trace="")
    await shell.run_for(1)
    reconciled = [name for _, name in shell.reconciles]
    assert reconciled.index("new") <= KNOWN_IN_A_ROW
    assert sorted(reconciled) == [*known, "new"]


async def test_a_key_at_rest_is_reconciled_while_every_other_reconcile_hangs() -> None:
    shell = Shell(
        rank=lambda key: KeyPriority(is_steady=key.name.startswith("rested")), hangs_at="new"
    )
    for number in range(3):
        shell.partition.take(a_state("Pod", a_pod(f"new{number}")), trace="")
    shell.partition.take(a_state("Pod", a_pod("rested")), trace="")
    shell.partition.synced(10)

    async def script() -> None:
        await asyncio.sleep(1)
        shell.partition.take(a_state("Pod", a_pod("rested", 11)), trace="")

    await shell.run_for(10, script)
    assert shell.reconciles == [(0.0, "new0"), (0.0, "new1"), (0.0, "rested"), (1.0, "rested")]


async def test_a_namespace_is_reconciled_while_every_reconcile_of_another_one_hangs() -> None:
    shell = Shell(hangs_at="stuck")
    for number in range(9):
        shell.partition.take(a_state("Pod", a_pod(f"stuck{number}")), trace="")
    shell.partition.synced(10)

    async def script() -> None:
        await asyncio.sleep(1)
        shell.partition.take(a_state("Pod", a_pod("victim", 11, namespace="other")), trace="")

    await shell.run_for(10, script)
    assert shell.reconciles == [(0.0, "stuck0"), (0.0, "stuck1"), (1.0, "victim")]


async def test_a_reconcile_runs_under_the_trace_of_the_newest_change() -> None:
    shell = Shell()
    found: list[str] = []

    async def reconcile(key: Key, now: datetime) -> datetime | None:
        found.append(f"{key.name} {tracing.CURRENT.get()}")
        return now + timedelta(seconds=5) if len(found) == 1 else None

    shell.reconcile = reconcile
    shell.partition.take(a_state("Pod", a_pod("a", 1)), trace="first")
    shell.partition.take(a_state("Pod", a_pod("a", 2)), trace="second")
    shell.partition.synced(1)

    async def script() -> None:
        await asyncio.sleep(8)
        shell.partition.take(a_tombstone("Pod", a_pod("a", 3)), trace="third")

    await shell.run_for(10, script)
    assert found == ["a second", "a second", "a third"]
    assert tracing.CURRENT.get() == ""


async def test_metrics_count_workers_and_retries() -> None:
    shell = Shell(errors.Unavailable("down"), errors.Unavailable("down"), None)
    queue = {"name": "test", "controller": "test"}
    before = _value("workqueue_retries_total", **queue)
    shell.partition.take(a_state("Pod", a_pod("a")), trace="")
    shell.partition.synced(1)
    await shell.run_for(1)
    assert _value("workqueue_retries_total", **queue) == before + 2
    assert _value("workqueue_depth", **queue) == 0
    assert _value("controller_runtime_max_concurrent_reconciles", controller="test") == 4
    assert _value("controller_runtime_active_workers", controller="test") == 0


def _value(metric: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(metric, labels) or 0.0


async def test_a_cancellation_that_nobody_asked_for_costs_neither_the_key_nor_the_worker() -> None:
    shell = Shell(*[asyncio.CancelledError()] * 8)
    shell.partition.synced(0)

    async def script() -> None:
        for number in range(8):
            shell.partition.take(a_state("Pod", a_pod(f"p{number}")), trace="")

    await shell.run_for(30, script)
    assert sorted(name for _, name in shell.reconciles) == sorted(
        [f"p{number}" for number in range(8)] * 2
    )


@cases(
    ("problems", "violations"),
    {
        "an answer that is missing": ([errors.Unavailable("away")], 0),
        "two errors with a meaning": ([errors.Unavailable("away"), errors.Conflict("old")], 0),
        "a defect among them": ([errors.Unavailable("away"), ValueError("a defect")], 1),
    },
)
async def test_a_group_of_errors_means_what_its_errors_mean(
    problems: list[Exception], violations: int
) -> None:
    labels = {"controller": "test"}
    before = REGISTRY.get_sample_value("raybus_invariant_violations_total", labels) or 0
    shell = Shell(ExceptionGroup("side by side", [ExceptionGroup("nested", problems)]))
    shell.partition.synced(0)

    async def script() -> None:
        shell.partition.take(a_state("Pod", a_pod("p")), trace="")

    await shell.run_for(30, script)
    assert len(shell.reconciles) == 2
    assert (
        REGISTRY.get_sample_value("raybus_invariant_violations_total", labels) or 0
    ) - before == violations


async def test_thousands_of_keys_that_wait_for_minutes_are_one_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "TIME_LIMIT", 10 * controller.OVERDUE_SECONDS)
    monkeypatch.setattr(controller, "TIDY_SECONDS", controller.OVERDUE_SECONDS + 1)
    shell = Shell(hangs_at="p")
    shell.partition.synced(10)
    for number in range(1000):
        shell.partition.take(a_state("Pod", a_pod(f"p{number}")), trace="")
    with structlog.testing.capture_logs() as lines:
        await shell.run_for(1.5 * controller.OVERDUE_SECONDS)
    (line,) = (each for each in lines if each["event"] == "reconcile makes no progress")
    assert (line["state"], line["keys"]) == ("in work", 1000)


async def test_what_is_remembered_of_deleted_objects_is_dropped_once() -> None:
    shell = Shell()
    for name in "abc":
        shell.partition.take(a_state("Pod", a_pod(name)), trace="")
    shell.partition.synced(10)

    async def script() -> None:
        shell.cache.remove(Pod, "default", "a", version=2)  # by an answer
        shell.partition.take(a_tombstone("Pod", a_pod("a", 2)), trace="")
        shell.partition.take(a_tombstone("Pod", a_pod("b", 2)), trace="")

    await shell.run_for(3 * controller.TIDY_SECONDS, script)
    assert shell.forgotten == ["a", "b"]
