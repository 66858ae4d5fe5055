"""The services as processes of this machine reconcile the same cluster, reaching Ray through the API server's proxy."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster.demo.cluster_state import observe
from localcluster.demo.scenario import DemoOptions
from support.servers import raybus_up
from support.waiting import eventually_true

from .conftest import DEPLOY, Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEPLOYMENTS = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)


@pytest_asyncio.fixture(loop_scope="session")
async def without_pods_of_raybus(rig: Rig) -> AsyncGenerator[Rig]:
    """Stop the services in the cluster, and start them again."""
    await scale(rig, 0)
    try:
        yield rig
    finally:
        await scale(rig, 1)
        await rig.kubectl.run(
            "rollout", "status", "-n", "raybus", "deployment/watcher", "--timeout=120s"
        )


async def scale(rig: Rig, replicas: int) -> None:
    names = [f"deployment/{name}" for name in DEPLOYMENTS]
    await rig.kubectl.run("scale", "-n", "raybus", f"--replicas={replicas}", *names)


@pytest.mark.ondemand
async def test_an_upgrade_with_the_services_outside_the_cluster(
    without_pods_of_raybus: Rig, tmp_path: Path
) -> None:
    rig = without_pods_of_raybus
    arguments = ("--kubeconfig", str(rig.kubectl.kubeconfig), "--namespace", "raybus")
    with raybus_up.started(tmp_path, *arguments) as running:
        await running.ready(within=120)
        async with asyncio.timeout(400):
            scenario = rig.scenario(DemoOptions(manifests=DEPLOY, least_requests=0))
            await scenario.serve()
            old = (await observe(rig.kube)).active
            await rig.kubectl.run("apply", "-k", str(DEPLOY / "demo/v2"))

            async def has_moved() -> bool:
                state = await observe(rig.kube)
                return (
                    state.active not in {"", old}
                    and not state.pending
                    and state.clusters == (state.active,)
                )

            await eventually_true(has_moved, within=240, what="version 2 serving alone")
