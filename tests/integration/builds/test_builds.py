"""Update and rollback of watcher and cluster-reconciler between two builds, in both orders, while users create and scale RayClusters.

Without `RAYBUS_EARLIER_CHECKOUT`, a folder with an older commit, the other build is this one with another form of Pods: it proves which service
waits for which and that no pod is created twice, not that an older program still works.
"""

import asyncio
import signal
import time

import pytest
import structlog

from common.kube.client import KubeClient
from integration.builds.conftest import TIMEOUT, Site, Users
from support.servers import builds
from support.servers.builds import THIS, Build
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long]

log = structlog.get_logger()

MINOR, MAJOR = builds.of_pod_form("1.2"), builds.of_pod_form("2.0")
PAIRS = [
    (THIS, MINOR),
    (THIS, MAJOR),
    *([(earlier, THIS)] if (earlier := builds.earlier()) else []),
]
WATCHER_FIRST, RECONCILER_FIRST = "watcher first", "reconciler first"


async def roll(site: Site, build: Build, order: str, kube: KubeClient) -> None:
    if order == WATCHER_FIRST:
        await site.replace_watcher(build, kube)
        new = await site.begin_to_replace_reconciler(build)
    else:
        new = await site.begin_to_replace_reconciler(build)
        await site.replace_watcher(build, kube)
    await site.end_replacing_reconciler(new)


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda build: build.name)
@pytest.mark.parametrize("order", [WATCHER_FIRST, RECONCILER_FIRST])
async def test_builds_replace_each_other_and_no_pod_is_made_twice(
    site: Site, users: Users, kube: KubeClient, before: Build, after: Build, order: str
) -> None:
    await roll(site, before, WATCHER_FIRST, kube)
    async with asyncio.TaskGroup() as group:
        group.create_task(users.live())
        for build in (after, before):
            began = time.monotonic()
            await roll(site, build, order, kube)
            gap = max((gap for at, gap in users.gaps if at > began), default=0.0)
            log.info(
                "rolled",
                to=build.name,
                order=order,
                seconds=round(time.monotonic() - began, 1),
                gap=round(gap, 2),
            )
        users.stop()

    assert users.made == users.wanted
    assert sum(users.made.values()) > len(users.wanted) + 10, "users must have been busy"
    waits = len(site.refusals)
    expected = {MINOR.name: 1, MAJOR.name: 2}.get(after.name, 0) if order == RECONCILER_FIRST else 0
    assert waits == expected, site.refusals


@pytest.mark.parametrize(
    ("publishes", "reads"),
    [(MAJOR, THIS), (THIS, MAJOR), (THIS, MINOR)],
    ids=lambda build: build.name,
)
async def test_a_reconciler_that_starts_behind_a_watcher_of_another_build_waits_and_makes_no_pod(
    site: Site, users: Users, kube: KubeClient, publishes: Build, reads: Build
) -> None:
    await roll(site, THIS, WATCHER_FIRST, kube)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(users.watch())
        await users.create("demo", workers=3)
        (first,) = site.replicas.running
        site.replicas.end(first, signal.SIGKILL)
        await asyncio.to_thread(first.running.wait)
        if publishes is not THIS:
            await site.replace_watcher(publishes, kube)
        reader = await site.begin_to_replace_reconciler(reads)
        await users.scale("demo", workers=4)
        await asyncio.sleep(8)

        assert users.made == {"demo": 4}
        assert len(site.refusals) == 1

        await site.replace_watcher(reads, kube)
        await site.end_replacing_reconciler(reader)
        await eventually(
            lambda: users.made == {"demo": 5}, within=TIMEOUT, what="the worker that was asked for"
        )
        await asyncio.sleep(2)
        assert users.made == {"demo": 5}
        watching.cancel()
