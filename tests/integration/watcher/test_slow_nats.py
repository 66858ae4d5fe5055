"""NATS is slow while thousands of changes come in: the outbox holds one state per object, and the watches are read all the time."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from common.kube import resources
from common.kube.client import KubeClient, PatchRequest
from integration.watcher.replicas import KINDS, Replica, replica
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.servers import witness as witnesses
from support.servers.relayed import provisioned
from support.servers.witness import MARKERS, witnessed

pytestmark = [pytest.mark.integration]

OBJECTS: Final = 50
CHANGES: Final = 5000
AT_ONCE: Final = 16
SLOW_SECONDS: Final = 0.3
MAX_SILENCE_SECONDS: Final = 10.0
MAX_GROWTH_MIB: Final = 40.0


async def resident_mib(each: Replica) -> float:
    return await each.metric("process_resident_memory_bytes") / 2**20


async def change_all(kube: KubeClient, namespace: str) -> None:
    async def some(first: int) -> None:
        for number in range(first, CHANGES, AT_ONCE):
            patch = PatchRequest(
                body={"metadata": {"annotations": {"number": str(number), "ballast": "x" * 2000}}}
            )
            await kube.patch(resources.RAY_CLUSTER, namespace, f"c{number % OBJECTS}", patch)

    async with asyncio.TaskGroup() as group:
        for first in range(AT_ONCE):
            group.create_task(some(first))


@pytest.mark.long_running
async def test_only_the_newest_state_of_each_object_waits(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    for number in range(OBJECTS):
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster(f"c{number}"))
    async with (
        provisioned(tmp_path) as (secured, bus),
        replica(secured, control_plane.kubeconfig, namespace, tmp_path / "a.kubeconfig") as only,
    ):
        await only.watcher.until_ready(within=30.0)
        async with witnessed(bus) as witness:
            before, most_waiting, silence = await resident_mib(only), 0.0, 0.0
            stored = await only.metric("raybus_watcher_published_total", "RayCluster")
            only.to_nats.delay = SLOW_SECONDS
            async with asyncio.TaskGroup() as group:
                changing = group.create_task(change_all(kube, namespace))
                while not changing.done():
                    await asyncio.wait((changing,), timeout=0.5)
                    most_waiting = max(most_waiting, await only.metric("raybus_watcher_pending"))
                    silence = max(
                        silence, await only.metric("raybus_watch_silence_seconds", "rayclusters")
                    )
            growth = await resident_mib(only) - before
            only.to_nats.delay = 0.0
            await witnesses.agree(witness, kube, namespace, KINDS)
            published = await only.metric("raybus_watcher_published_total", "RayCluster") - stored
            reported = f"{published:.0f} messages, at most {most_waiting:.0f} waited, {growth:.1f} MiB more"
            print(f"\n{CHANGES} changes: {reported}")  # noqa: T201  (the figure of this test)
            assert published < CHANGES / 2
            assert 0 < most_waiting <= OBJECTS + MARKERS
            assert growth < MAX_GROWTH_MIB
            assert silence < MAX_SILENCE_SECONDS
            assert witness.regressions == []
