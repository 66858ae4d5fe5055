"""Pods of a draining cluster are queried a few at a time, and slow ones occupy only a few of the
calls of a process.
"""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from common import errors
from common.api.core import Pod, PodStatus
from common.api.meta import ObjectMeta
from common.ray import ongoing, serve_api
from common.ray.cluster_dashboards import MAX_CONCURRENT_SLOW_CALLS
from common.ray.dashboard import Target
from common.ray.ongoing import Ongoing
from common.ray.serve_api import SHORT_PAGE, ServeApi
from common.runtime.cache import Cache
from support.fakes import virtual_time
from support.fakes.kube import FakeKube
from support.fakes.serve import FakeServe, exposition
from support.fakes.virtual_time import VirtualClock

MANY = 10_000
HANGS = 2.0


def pods(count: int, cluster: str = "a", namespace: str = "ns") -> list[Pod]:
    status = PodStatus(phase="Running", pod_ip="10.0.0.1")
    return [
        Pod(
            metadata=ObjectMeta(
                name=f"{cluster}-{each}", namespace=namespace, uid=f"{cluster}-{each}"
            ),
            status=status,
        )
        for each in range(count)
    ]


class Slow(FakeServe):
    """Pods that answer after two seconds, or never."""

    def __init__(self, clock: VirtualClock, answer: Ongoing | None = None) -> None:
        super().__init__(clock)
        self._answer = answer
        self.waiting = 0
        self.most = 0
        self.asked = 0

    async def request(self, target: Target, path: str, **options: Any) -> bytes:
        del target, path, options
        self.asked += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await asyncio.sleep(HANGS)
        self.waiting -= 1
        if self._answer is None:
            raise errors.Unavailable("boom")
        return exposition(self._answer)


def test_ten_thousand_pods_that_hang_hold_few_calls_for_a_short_time() -> None:
    async def poll() -> None:
        clock = VirtualClock()
        slow = Slow(clock)
        api = ServeApi(slow, FakeKube(), Cache(), clock)
        began = clock.monotonic()
        counts = await ongoing.ask(api.ongoing_requests, pods(MANY))
        assert set(counts) == {None}
        assert (slow.most, slow.asked) == (serve_api.NAMESPACE_PAGES, ongoing.SILENT_AFTER)
        batches = ongoing.SILENT_AFTER // serve_api.NAMESPACE_PAGES
        assert clock.monotonic() - began <= batches * HANGS

    virtual_time.run(poll())


def test_pods_that_were_slow_share_a_few_calls_over_all_clusters() -> None:
    async def poll() -> None:
        clock = VirtualClock()
        slow = Slow(clock, Ongoing())
        api = ServeApi(slow, FakeKube(), Cache(), clock)
        clusters = [
            pods(ongoing.MAX_CONCURRENT_READS, cluster=str(number), namespace=str(number))
            for number in range(12)
        ]
        async with asyncio.TaskGroup() as group:
            for each in clusters:
                group.create_task(ongoing.ask(api.ongoing_requests, each))
        assert slow.most == serve_api.MAX_PAGES
        slow.most = 0
        async with asyncio.TaskGroup() as group:
            for each in clusters:
                group.create_task(ongoing.ask(api.ongoing_requests, each))
        assert slow.most == MAX_CONCURRENT_SLOW_CALLS

    virtual_time.run(poll())


class HangingFor(Slow):
    """Hosts in the namespace `hostile` never answer; others answer at once."""

    async def request(self, target: Target, path: str, **options: Any) -> bytes:
        if target.namespace == "hostile":
            return await super().request(target, path, **options)
        return exposition(Ongoing())


@pytest.mark.parametrize("asked", ["pages", "calls"])
def test_hosts_of_one_namespace_that_hang_keep_no_other_waiting(asked: str) -> None:
    """These hosts have not been queried before, so they are not known to be slow."""

    async def ask(api: ServeApi, pod: Pod) -> None:
        if asked == "pages":
            await api.ongoing_requests(pod)
            return
        proxy = Target(
            namespace=pod.metadata.namespace, name=pod.metadata.name, ip="10.0.0.1", port=8000
        )
        with contextlib.suppress(errors.Unavailable):
            await api.call(proxy, "/")

    async def poll() -> None:
        clock = VirtualClock()
        slow = HangingFor(clock)
        api = ServeApi(slow, FakeKube(), Cache(), clock)
        async with asyncio.TaskGroup() as group:
            for pod in pods(200, namespace="hostile"):
                group.create_task(ask(api, pod))
            await asyncio.sleep(0)
            began = clock.monotonic()
            for pod in pods(20, namespace="victim"):
                await ask(api, pod)
            assert clock.monotonic() == began
            limit = {"pages": serve_api.NAMESPACE_PAGES, "calls": serve_api.NAMESPACE_CALLS}
            assert slow.most == limit[asked]

    virtual_time.run(poll())


@pytest.mark.parametrize(("silent", "asked"), [([], 40), ([3], 16), ([17], 32), (range(40), 40)])
def test_nobody_is_asked_once_the_total_is_unknown(silent: list[int], asked: int) -> None:
    async def one(pod: Pod) -> Ongoing | None:
        return None if int(pod.metadata.name.rpartition("-")[2]) in silent else Ongoing(proxies=1)

    counts = asyncio.run(ongoing.ask(one, pods(40)))
    assert len(counts) == asked
    assert (None in counts) == bool(silent)


class OnePage(FakeServe):
    """Answers each request with the same page."""

    def __init__(self, clock: VirtualClock, page: bytes) -> None:
        super().__init__(clock)
        self._page = page

    async def request(self, target: Target, path: str, **options: Any) -> bytes:
        del target, path, options
        return self._page


@pytest.mark.parametrize(("size", "is_off_loop"), [(SHORT_PAGE, False), (SHORT_PAGE + 1, True)])
async def test_a_long_page_of_metrics_is_read_off_the_loop(size: int, *, is_off_loop: bool) -> None:
    clock, node = VirtualClock(), Target(namespace="ns", name="pod", ip="192.0.2.1", port=8080)
    api = ServeApi(OnePage(clock, b"x" * size), FakeKube(), Cache(), clock)
    reader = await api.metrics(node, "uid", lambda _page: threading.get_ident())
    assert (reader != threading.get_ident()) == is_off_loop
