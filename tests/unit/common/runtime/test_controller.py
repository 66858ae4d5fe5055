"""The shell: what wakes a key, what holds the workers back, what an error means."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec
import pytest
from prometheus_client import REGISTRY

from common import errors
from common.api.core import Pod
from common.bus.cache import Cache, Object
from common.runtime import trace
from common.runtime.clock import SystemClock
from common.runtime.controller import Controller
from common.runtime.key import Key, Watched
from common.runtime.precedence import AS_THEY_COME, Precedence

pytestmark = pytest.mark.looptime


def a_pod(name: str, version: int = 1) -> bytes:
    meta = {"namespace": "default", "name": name, "uid": name, "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": meta})


def own_key(obj: Object) -> list[Key]:
    return [Key(obj.metadata.namespace, obj.metadata.name)]


class Shell:
    """A controller whose reconcile is a script of outcomes."""

    def __init__(
        self, *outcomes: Exception | float | None, precedence: Precedence = AS_THEY_COME, hangs_at: str = "nothing"
    ) -> None:
        self.cache = Cache()
        watched = Watched(kinds={"Pod": Pod}, root=Pod, keys_of=own_key)
        self.controller = Controller("test", watched, cache=self.cache, clock=SystemClock(), precedence=precedence)
        self._hangs_at = hangs_at
        self.told = self.controller.hold(0)
        self.looks: list[tuple[float, str]] = []
        self._outcomes = list(outcomes)

    async def reconcile(self, key: Key, *, now: datetime) -> datetime | None:
        self.looks.append((round(asyncio.get_running_loop().time(), 3), key.name))
        if key.name.startswith(self._hangs_at):
            await asyncio.Event().wait()
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return None if outcome is None else now + timedelta(seconds=outcome)

    async def run_for(self, seconds: float, script: Callable[[], Awaitable[None]] | None = None) -> None:
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                group.create_task(self.controller.run(self.reconcile, workers=2))
                if script is not None:
                    await script()
        except TimeoutError:
            pass


async def test_nothing_is_decided_before_the_state_is_synced() -> None:
    shell = Shell()
    shell.told.loading("start")
    shell.told.changed("Pod", a_pod("a"), trace="")
    await shell.run_for(10)
    assert shell.looks == []
    assert shell.controller.loading == 1


async def test_every_key_is_looked_at_once_after_a_load() -> None:
    shell = Shell()
    shell.told.loading("start")
    shell.told.changed("Pod", a_pod("a"), trace="")
    shell.told.changed("Pod", a_pod("b"), trace="")
    shell.told.synced(10)
    await shell.run_for(10)
    assert sorted(name for _, name in shell.looks) == ["a", "b"]


async def test_an_older_message_wakes_nobody() -> None:
    shell = Shell()
    shell.told.changed("Pod", a_pod("a", 7), trace="")
    shell.told.synced(10)

    async def script() -> None:
        await asyncio.sleep(1)
        shell.told.changed("Pod", a_pod("a", 6), trace="")

    await shell.run_for(10, script)
    assert shell.looks == [(0.0, "a")]


async def test_an_object_that_a_reload_does_not_bring_is_gone_unless_it_is_newer_than_the_list() -> None:
    shell = Shell()
    shell.told.changed("Pod", a_pod("old", 5), trace="")
    shell.told.changed("Pod", a_pod("mine", 20), trace="")
    shell.told.loading("stream lost")
    shell.told.synced(10)
    assert [pod.metadata.name for pod in shell.cache.all(Pod)] == ["mine"]


async def test_a_removed_object_wakes_its_key() -> None:
    shell = Shell()
    shell.told.changed("Pod", a_pod("a", 5), trace="")
    shell.told.synced(5)

    async def script() -> None:
        await asyncio.sleep(1)
        shell.told.removed("Pod", "default", "a", version=6, trace="")

    await shell.run_for(10, script)
    assert [name for _, name in shell.looks] == ["a", "a"]


async def test_a_message_that_does_not_decode_is_skipped() -> None:
    shell = Shell()
    shell.told.changed("Pod", b'{"metadata": 7}', trace="")
    shell.told.changed("Unknown", b"{}", trace="")
    shell.told.synced(1)
    await shell.run_for(1)
    assert shell.looks == []


@pytest.mark.parametrize(
    ("outcomes", "looks"),
    [
        pytest.param([3.0, None], [0.0, 3.0], id="not yet: look again at the time asked for"),
        pytest.param([errors.Conflict("old"), None], [0.0, 0.005], id="a conflict is retried at once"),
        pytest.param([errors.Throttled("busy", after=4.0), None], [0.0, 4.0], id="a named wait is kept"),
        pytest.param([errors.InvalidSpec("bad"), None], [0.0, 0.25], id="a user's error does not loop hot"),
        pytest.param([ValueError("bug"), None], [0.0, 1.0], id="our own bug is retried slowly, the process lives"),
    ],
)
async def test_what_an_outcome_means(outcomes: list[Exception | float | None], looks: list[float]) -> None:
    shell = Shell(*outcomes)
    shell.told.changed("Pod", a_pod("a"), trace="")
    shell.told.synced(1)
    await shell.run_for(60)
    assert [when for when, _ in shell.looks] == pytest.approx(looks, abs=0.003)


async def test_a_key_is_never_reconciled_twice_at_once() -> None:
    shell = Shell()
    running: list[str] = []
    overlaps: list[str] = []

    async def slow(key: Key, *, now: datetime) -> datetime | None:
        if key.name in running:
            overlaps.append(key.name)
        running.append(key.name)
        await asyncio.sleep(2)
        running.remove(key.name)
        return now + timedelta(seconds=1)

    shell.reconcile = slow
    shell.told.changed("Pod", a_pod("a"), trace="")
    shell.told.synced(1)

    async def script() -> None:
        for _ in range(20):
            await asyncio.sleep(0.3)
            shell.controller.wake(Key("default", "a"))

    await shell.run_for(30, script)
    assert overlaps == []


async def test_a_new_object_is_looked_at_before_those_that_are_known() -> None:
    shell = Shell()
    shell.told.loading("start")
    for name in ("a", "b", "c"):
        shell.told.changed("Pod", a_pod(name), trace="")
    shell.told.synced(1)
    shell.told.changed("Pod", a_pod("new", 2), trace="")
    await shell.run_for(1)
    assert [name for _, name in shell.looks] == ["new", "a", "b", "c"]


async def test_what_was_at_rest_is_looked_at_while_every_other_look_hangs() -> None:
    shell = Shell(precedence=Precedence(rests=lambda key: key.name.startswith("rested")), hangs_at="new")
    for number in range(3):
        shell.told.changed("Pod", a_pod(f"new{number}"), trace="")
    shell.told.changed("Pod", a_pod("rested"), trace="")
    shell.told.synced(10)

    async def script() -> None:
        await asyncio.sleep(1)
        shell.told.changed("Pod", a_pod("rested", 11), trace="")

    await shell.run_for(10, script)
    assert shell.looks == [(0.0, "new0"), (0.0, "new1"), (0.0, "rested"), (1.0, "rested")]


async def test_a_look_runs_under_the_trace_of_the_newest_change() -> None:
    shell = Shell()
    found: list[str] = []

    async def reconcile(key: Key, *, now: datetime) -> datetime | None:
        found.append(f"{key.name} {trace.current()}")
        return now + timedelta(seconds=5) if len(found) == 1 else None

    shell.reconcile = reconcile
    shell.told.changed("Pod", a_pod("a", 1), trace="first")
    shell.told.changed("Pod", a_pod("a", 2), trace="second")
    shell.told.synced(1)

    async def script() -> None:
        await asyncio.sleep(8)
        shell.told.removed("Pod", "default", "a", version=3, trace="third")

    await shell.run_for(10, script)
    assert found == ["a second", "a second", "a third"]
    assert trace.current() == ""


async def test_metrics_tell_of_workers_and_retries() -> None:
    shell = Shell(errors.Unavailable("down"), errors.Unavailable("down"), None)
    queue = {"name": "test", "controller": "test"}
    before = _value("workqueue_retries_total", **queue)
    shell.told.changed("Pod", a_pod("a"), trace="")
    shell.told.synced(1)
    await shell.run_for(1)
    assert _value("workqueue_retries_total", **queue) == before + 2
    assert _value("workqueue_depth", **queue) == 0
    assert _value("controller_runtime_max_concurrent_reconciles", controller="test") == 2
    assert _value("controller_runtime_active_workers", controller="test") == 0


def _value(metric: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(metric, labels) or 0.0
