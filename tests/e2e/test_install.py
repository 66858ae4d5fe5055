"""raybus is replaced, taken away and installed again while it is asked for nothing but answers: about three minutes.

The rig's raybus was installed with kustomize on a fresh cluster. It is replaced by one with other images' names and other settings,
so that every pod of it goes, NATS and its volume included.
"""

import asyncio
import os
from pathlib import Path

import pytest
import yaml

from localcluster.demo.cluster_state import NAMESPACE
from localcluster.demo.demo_cluster import RAYBUS_IMAGES
from localcluster.driver import ClusterRecord
from localcluster.node import container_runtime, namespaces
from support import leftovers
from support.manifests import SERVICES
from support.waiting import eventually_true

from . import raybus
from .conftest import OVERLAY, Rig
from .greeter import BlueGreen, Greeter, expect_no_failure, settle
from .ray_cluster import spread

pytestmark = pytest.mark.asyncio(loop_scope="session")

TAG = "next"
ROLLED_OUT = (*(f"deployment/{name}" for name in SERVICES), "statefulset/nats")


@pytest.mark.ondemand
async def test_raybus_is_replaced_and_taken_away_under_load_and_nobody_notices(
    rig: Rig, known: ClusterRecord, tmp_path: Path
) -> None:
    greeter = Greeter(rig, BlueGreen(drains=True))
    try:
        async with asyncio.timeout(300):
            await greeter.start()
        before = spread(list((await greeter.state()).pods))
        async with asyncio.timeout(400), greeter.under_load() as answers:
            await settle(answers)
            await replace(rig, await a_next_version(known, tmp_path))
            assert await is_as_it_was(greeter, before)
            await greeter.append_group("more")
            await greeter.wait(
                "work of the new one", lambda state: len(state.pods) == len(before) + 1
            )
            await uninstall(rig, tmp_path)
            await settle(answers)
        expect_no_failure(greeter, answers, at_least=600)
        assert await is_as_it_was(greeter, before)
    finally:
        await rig.kubectl.run(
            "delete", "namespace", leftovers.NAMESPACE, "--ignore-not-found", "--timeout=180s"
        )
        await rig.scenario().install()
        await greeter.stop()


async def a_next_version(known: ClusterRecord, folder: Path) -> Path:
    """Return an overlay with other names of images, where this cluster's driver can give them, and other settings."""
    node = namespaces.find(known.name)
    if node is not None:
        for name in RAYBUS_IMAGES:
            await container_runtime.tag_image(
                node, f"registry.invalid/raybus/{name}:dev", f"registry.invalid/raybus/{name}:{TAG}"
            )
    return write_overlay(folder, TAG if node is not None else "dev")


def write_overlay(folder: Path, tag: str) -> Path:
    overlay = {
        "namespace": leftovers.NAMESPACE,
        "resources": [os.path.relpath(OVERLAY, folder.resolve())],
        "configMapGenerator": [
            {"name": "raybus-config", "behavior": "merge", "literals": ["RAYBUS_LOG_LEVEL=DEBUG"]},
            {"name": "nats-config", "behavior": "merge", "literals": ["NATS_MAX_STORE=800MB"]},
        ],
        "images": [
            {"name": f"registry.invalid/raybus/{name}", "newTag": tag} for name in RAYBUS_IMAGES
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return folder


async def replace(rig: Rig, overlay: Path) -> None:
    """Upgrade raybus as a user does, and expect that nothing of the old one is left running."""

    async def no_job_is_left() -> bool:
        return not await rig.kubectl.run("get", "jobs", "-n", leftovers.NAMESPACE, "-o", "name")

    old = {pod.metadata.uid for pod in await raybus.pods(rig)}
    await eventually_true(no_job_is_left, within=120, what="the Jobs of the installation going")
    await rig.kubectl.run("apply", "-k", str(overlay))
    for each in ROLLED_OUT:
        await rig.kubectl.run(
            "rollout", "status", "-n", leftovers.NAMESPACE, each, "--timeout=180s"
        )

    async def is_gone() -> bool:
        return not old & {pod.metadata.uid for pod in await raybus.pods(rig)}

    await eventually_true(is_gone, within=90, what="the pods of the old raybus going")


async def uninstall(rig: Rig, overlay: Path) -> None:
    """Take raybus away, and expect that it takes nothing along and leaves nothing behind."""
    run = rig.kubectl.run
    before = await leftovers.uids(run, NAMESPACE)
    await run("delete", "-k", str(overlay), "--ignore-not-found", "--timeout=120s")
    assert await leftovers.of_raybus(run) == []
    assert (await leftovers.uids(run, NAMESPACE)).items() >= before.items()


async def is_as_it_was(greeter: Greeter, before: dict[str, tuple[str, int]]) -> bool:
    """Return whether Ray's pods are there, the same, and were never started again."""
    return spread(list((await greeter.state()).pods)).items() >= before.items()
