"""A watch behind a proxy that refuses, hangs and swallows: it asks again, in time and not too often, and misses nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from common.kube import resources
from common.kube.client import KubeClient
from common.kube.watch import Watch, WatchTarget, WatchTiming
from integration.watcher.followed import Collection, following
from localcluster import kubeconfig as kubeconfigs
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.servers.fault_proxy import PASSES, Asked, Fate, FaultProxy
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

HASTY: Final = WatchTiming(open=0.5, silence=1.0, first_retry=0.02, longest_retry=0.2)


class FaultyAnswers:
    """Judges some requests, as often as configured, and remembers when they came."""

    def __init__(self, fate: Fate, *, watches: bool, times: int) -> None:
        self.asked_at: list[float] = []
        self._fate = fate
        self._watches = watches
        self._times = times

    def __call__(self, asked: Asked) -> Fate:
        if asked.is_watch != self._watches or self._times == len(self.asked_at):
            return PASSES
        self.asked_at.append(asyncio.get_running_loop().time())
        return self._fate

    @property
    def is_over(self) -> bool:
        return len(self.asked_at) == self._times


@asynccontextmanager
async def behind(
    control_plane: ControlPlane,
    folder: Path,
    judge: Callable[[Asked], Fate],
    namespace: str,
    timing: WatchTiming = HASTY,
) -> AsyncGenerator[tuple[Watch, Collection, FaultProxy]]:
    fault_proxy = FaultProxy("watch", kubeconfigs.read_access(control_plane.kubeconfig))
    async with fault_proxy.opened():
        fault_proxy.judge = judge
        path = kubeconfigs.write(folder / "kubeconfig", "proxy", fault_proxy.access)
        client = await KubeClient.connect(kubeconfig=path, user_agent="test")
        try:
            target = WatchTarget(resource=resources.RAY_CLUSTER, namespace=namespace)
            async with following(client, target, timing) as (watch, collection):
                yield watch, collection, fault_proxy
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("fate", "lists"),
    [
        pytest.param(Fate(is_held=True), 1, id="never answered"),
        pytest.param(Fate(status=429), 1, id="too many requests"),
        pytest.param(Fate(status=500), 1, id="internal error"),
        pytest.param(Fate(status=503), 1, id="overloaded"),
        pytest.param(Fate(status=504), 1, id="timed out"),
        pytest.param(Fate(status=410), 4, id="the version is gone"),
    ],
)
async def test_a_watch_that_is_refused_is_asked_for_again(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    fate: Fate,
    lists: int,
) -> None:
    faulty = FaultyAnswers(fate, watches=True, times=3)
    async with behind(control_plane, tmp_path, faulty, namespace) as (watch, collection, _):
        await eventually(lambda: faulty.is_over, within=30.0, what="three refusals")
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
        await eventually(lambda: "demo" in collection.names, within=30.0, what="the object")
        await eventually(lambda: watch.problem is None, what="no problem")
        assert collection.lists == lists


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_list_that_is_refused_is_asked_for_again(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path, status: int
) -> None:
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
    faulty = FaultyAnswers(Fate(status=status), watches=False, times=3)
    async with behind(control_plane, tmp_path, faulty, namespace) as (watch, collection, _):
        await eventually(
            lambda: f"{status} by the proxy" in (watch.problem or ""),
            within=30.0,
            what="the reason",
        )
        await eventually(watch.known.is_set, within=30.0, what="the list")
        assert (collection.names, collection.lists) == ({"demo"}, 1)


@pytest.mark.parametrize("watches", [False, True])
async def test_retry_after_is_honoured(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, watches: bool
) -> None:
    faulty = FaultyAnswers(Fate(status=429, retry_after=1), watches=watches, times=2)
    async with behind(control_plane, tmp_path, faulty, namespace) as (watch, collection, _):
        await eventually(lambda: faulty.is_over, within=30.0, what="two refusals")
        await eventually(
            lambda: watch.problem is None and collection.lists, within=30.0, what="the watch"
        )
        assert faulty.asked_at[1] - faulty.asked_at[0] >= 1.0


async def test_but_not_for_an_hour(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    faulty = FaultyAnswers(Fate(status=503, retry_after=3600), watches=False, times=2)
    timing = WatchTiming(longest_wait=0.2)
    async with behind(control_plane, tmp_path, faulty, namespace, timing) as (watch, _, _):
        await eventually(watch.known.is_set, within=30.0, what="the list")


async def test_a_black_hole_is_left(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async with behind(control_plane, tmp_path, lambda _: PASSES, namespace) as (
        watch,
        collection,
        fault_proxy,
    ):
        await eventually(watch.known.is_set, within=30.0, what="the list")
        fault_proxy.silence()
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
        await eventually(lambda: watch.problem is not None, within=30.0, what="the problem")
        assert "demo" not in collection.names

        fault_proxy.resume()
        await eventually(lambda: "demo" in collection.names, within=30.0, what="the object")
        assert collection.lists == 1
