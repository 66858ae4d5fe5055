"""NATS answers too late: what is published again is stored once, and the watcher takes its own messages for nobody else's."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from common.bus.session import REQUEST_SECONDS
from common.kube import resources
from common.kube.client import KubeClient, PatchRequest
from integration.watcher.replicas import KINDS, replica
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.servers import witness as witnesses
from support.servers.relayed import provisioned
from support.servers.witness import witnessed

pytestmark = [pytest.mark.integration]

OBJECTS: Final = 30
PAUSE_SECONDS: Final = REQUEST_SECONDS + 0.3
"""Seconds without an answer: longer than a request waits. The leader yields the Lease after
`SERVER_TIMEOUT` without an answer, of which `ASK_SECONDS` may be over when the pause begins."""


async def annotate(kube: KubeClient, namespace: str, number: int) -> None:
    patch = PatchRequest(body={"metadata": {"annotations": {"number": str(number)}}})
    await kube.patch(resources.RAY_CLUSTER, namespace, f"c{number}", patch)


async def test_late_answers_end_no_session(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for number in range(OBJECTS):
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster(f"c{number}"))
    async with (
        provisioned(tmp_path) as (secured, bus),
        replica(secured, control_plane.kubeconfig, namespace, tmp_path / "a.kubeconfig") as only,
    ):
        await only.watcher.until_ready(within=30.0)
        async with witnessed(bus) as witness:
            epochs = await only.metric("raybus_watcher_epochs_total")
            only.to_nats.pause(PAUSE_SECONDS)
            async with asyncio.TaskGroup() as group:
                for number in range(OBJECTS):
                    group.create_task(annotate(kube, namespace, number))
            await witnesses.agree(witness, kube, namespace, KINDS)
            await asyncio.sleep(3.0)
            assert await only.metric("raybus_watcher_epochs_total") == epochs
    assert "publishing again" in capfd.readouterr().err, "no answer was late"
