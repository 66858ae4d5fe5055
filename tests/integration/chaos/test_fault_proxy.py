"""A fault-injection proxy to a real API server: all passes except what a judge decides otherwise, and then just that happens."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from common import errors
from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import CONFIG_MAP
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from localcluster import kubeconfig
from localcluster.control_plane import ControlPlane
from support.servers.fault_proxy import Fate, FaultProxy
from support.waiting import eventually

pytestmark = pytest.mark.integration
TIMING = WatchTiming(silence=60.0, longest_retry=0.2)


class Names:
    """Notes which objects are there; implements `common.kube.watch.WatchSink`."""

    def __init__(self) -> None:
        self.reported: list[bytes] = []

    def present(self, raw: bytes, reason: str = "") -> None:
        self.reported.append(raw)

    def gone(self, raw: bytes) -> None:
        pass

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        pass

    def knows(self, name: str) -> bool:
        return any(name.encode() in raw for raw in self.reported)


@asynccontextmanager
async def through(
    control_plane: ControlPlane, folder: Path
) -> AsyncGenerator[tuple[FaultProxy, KubeClient]]:
    async with FaultProxy("tester-7", control_plane.access).opened() as fault_proxy:
        config = kubeconfig.write(folder / f"{uuid4().hex}.kubeconfig", "proxy", fault_proxy.access)
        kube = await KubeClient.connect(kubeconfig=config, user_agent="raybus-tester/1")
        try:
            yield fault_proxy, kube
        finally:
            await kube.close()


def a_map(name: str, size: int = 1) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"text": "x" * size},
    }


def a_name() -> str:
    return f"m-{uuid4().hex[:8]}"


async def test_everything_passes(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with through(control_plane, tmp_path) as (_, kube):
        names = [a_name() for _ in range(20)]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(
                    kube.request("POST", CONFIG_MAP.path("default"), body=a_map(name, 100_000))
                )
        listed = await kube.list(CONFIG_MAP, "default")
        assert all(name.encode() in listed for name in names)
        assert len(listed) > 20 * 100_000
        with pytest.raises(errors.NotFound):
            await kube.get(CONFIG_MAP, "default", "nobody")


async def test_a_refused_watch_gets_the_reason(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with through(control_plane, tmp_path) as (_, kube), asyncio.timeout(10):
        with pytest.raises(errors.NotFound):
            async with kube.stream("/apis/ray.io/v1/nothings", query={"watch": "1"}):
                pass


async def test_refusals_latency_and_lost_answers(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with through(control_plane, tmp_path) as (fault_proxy, kube):
        loop, name = asyncio.get_running_loop(), a_name()
        fault_proxy.judge = lambda _asked: Fate(status=429, retry_after=3)
        with pytest.raises(errors.Throttled) as caught:
            await kube.create(CONFIG_MAP, "default", a_map(name))
        assert caught.value.after == 3
        fault_proxy.judge = lambda asked: Fate(loses_answer=asked.is_write)
        with pytest.raises(errors.Unavailable):
            await kube.create(CONFIG_MAP, "default", a_map(name))
        fault_proxy.judge = lambda _asked: Fate(delay=0.3)
        began = loop.time()
        assert name.encode() in await kube.get(CONFIG_MAP, "default", name)
        assert loop.time() - began >= 0.3


async def test_a_watch_falls_silent_and_loses_nothing_in_the_end(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        through(control_plane, tmp_path) as (fault_proxy, kube),
        asyncio.TaskGroup() as group,
    ):
        names, (first, second) = Names(), (a_name(), a_name())
        target = WatchTarget(resource=CONFIG_MAP, namespace="default")
        watching = group.create_task(
            Watch(kube, target, names, jitter=lambda: 0.0, timing=TIMING).run()
        )
        await kube.create(CONFIG_MAP, "default", a_map(first))
        await eventually(lambda: names.knows(first), within=30)
        fault_proxy.silence()
        await kube.create(CONFIG_MAP, "default", a_map(second))
        await kube.get(CONFIG_MAP, "default", second)
        assert not names.knows(second)
        fault_proxy.resume()
        await eventually(lambda: names.knows(second), within=30)
        watching.cancel()


async def test_a_held_request_is_never_passed_on(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with through(control_plane, tmp_path) as (fault_proxy, kube):
        name = a_name()
        fault_proxy.judge = lambda asked: Fate(is_held=asked.is_write)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await kube.create(CONFIG_MAP, "default", a_map(name))
        fault_proxy.cut()
        with pytest.raises(errors.NotFound):
            await kube.get(CONFIG_MAP, "default", name)
