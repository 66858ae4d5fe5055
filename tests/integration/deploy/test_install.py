"""Each overlay on a clean API server, as a user installs it."""

from pathlib import Path

import pytest

from localcluster import processes
from localcluster.control_plane import ControlPlane
from support.manifests import DEPLOY

pytestmark = [pytest.mark.integration]

KUBERAY = "ray-system"
"""Where the overlay `migration` expects KubeRay to run."""


@pytest.mark.parametrize("overlay", ["production", "namespaced", "migration"])
async def test_it_installs_with_two_commands(overlay: str, kubectl_binary: Path, tmp_path: Path) -> None:
    async with ControlPlane.started(tmp_path) as clean:
        kubectl = [str(kubectl_binary), "--kubeconfig", str(clean.kubeconfig)]
        if overlay == "migration":
            await processes.run([*kubectl, "create", "namespace", KUBERAY])
        crds = await processes.run([*kubectl, "apply", "-k", str(DEPLOY / "crds")])
        raybus = await processes.run([*kubectl, "apply", "-k", str(DEPLOY / "overlays" / overlay)])
    assert (crds.code, crds.errors, raybus.code, raybus.errors) == (0, "", 0, "")
