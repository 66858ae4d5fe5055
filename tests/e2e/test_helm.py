"""The packaged chart on a real node: installed, tested by `helm test`, upgraded and removed.

The rig's raybus, which was installed with kustomize, makes room meanwhile: about four minutes.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from localcluster import binaries, processes
from raybus_dev import release
from support import leftovers
from support.manifests import NAMESPACE, ROOT, SERVICES
from support.servers.programs import prepared

from .conftest import OVERLAY, Rig

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.ondemand]

SMALL = {"requests": {"cpu": "15m", "memory": "80Mi"}}
VALUES = {
    "image": {"registry": "registry.invalid/raybus", "tag": "dev"},
    "replicas": {
        "watcher": 1,
        "clusterReconciler": 1,
        "serviceReconciler": 1,
        "trafficManager": 1,
        "jobReconciler": 1,
    },
    "resources": SMALL,
    "nats": {"servers": 1, "maxStore": "500MB", "storage": {"size": ""}, "resources": SMALL},
}
"""One of each part, with the images that the node has, and without a volume."""


@pytest_asyncio.fixture(loop_scope="session")
async def cleared(rig: Rig) -> AsyncGenerator[Rig]:
    """Remove the rig's raybus, and install it again."""
    await rig.kubectl.run("delete", "-k", str(OVERLAY), "--ignore-not-found", "--timeout=180s")
    try:
        yield rig
    finally:
        await rig.kubectl.run(
            "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s"
        )
        async with asyncio.timeout(300):
            await rig.scenario().install()


async def helm(rig: Rig, verb: str, *arguments: str) -> processes.Finished:
    """Run Helm for the release."""
    place = ("--kubeconfig", str(rig.kubectl.kubeconfig), "--namespace", NAMESPACE)
    return await processes.run([str(prepared(binaries.HELM)), verb, "raybus", *place, *arguments])


async def test_the_chart_is_installed_tested_upgraded_and_removed(
    cleared: Rig, tmp_path: Path
) -> None:
    package = release.package_chart(prepared(binaries.HELM), ROOT, tmp_path)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(VALUES))
    waiting = ("--wait", "--timeout=5m")
    values = f"--values={tmp_path / 'values.yaml'}"
    done = await helm(cleared, "install", str(package), "--create-namespace", values, *waiting)
    assert done.code == 0, done.errors

    tested = await helm(cleared, "test", "--logs", "--timeout=3m")
    assert tested.code == 0, tested.output + tested.errors
    for name in (*SERVICES, "nats"):
        assert f"{name}: ready" in tested.output

    scale = ("scale", "-n", NAMESPACE, "deployment/job-reconciler")
    await cleared.kubectl.run(*scale, "--replicas=0")
    refused = await helm(cleared, "test", "--logs", "--timeout=3m")
    assert refused.code != 0
    assert "job-reconciler: no ready replica answers" in refused.output
    assert "watcher: ready" in refused.output
    await cleared.kubectl.run(*scale, "--replicas=1")

    changed = ("--reset-then-reuse-values", "--set=logLevel=DEBUG", *waiting)
    upgraded = await helm(cleared, "upgrade", str(package), *changed)
    assert upgraded.code == 0, upgraded.errors
    assert (await helm(cleared, "test", "--timeout=3m")).code == 0

    removed = await helm(cleared, "uninstall", "--wait", "--timeout=3m")
    assert removed.code == 0, removed.errors
    await cleared.kubectl.run("delete", "namespace", NAMESPACE, "--timeout=180s")
    assert await leftovers.of_raybus(cleared.kubectl.run) == []
