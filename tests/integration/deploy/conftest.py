"""The overlays, rendered by kubectl, and the local one applied to a real control plane as a user does."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster.control_plane import ControlPlane
from support import manifests
from support.manifests import DEPLOY, Document
from support.servers.programs import prepared

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def kubectl_binary() -> Path:
    return prepared("kubectl")


@pytest.fixture(scope="session")
def kubectl(kubectl_binary: Path, control_plane: ControlPlane) -> Kubectl:
    """Run kubectl as the cluster's administrator; its warnings are part of the output."""

    def run(*arguments: str) -> str:
        command = [str(kubectl_binary), "--kubeconfig", str(control_plane.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def applied(kubectl: Kubectl) -> str:
    """Install the CRDs and the local overlay once; return the output of kubectl."""
    return "".join(
        kubectl("apply", "-k", str(DEPLOY / folder)) for folder in ("crds", "overlays/local")
    )


@pytest.fixture(scope="session")
def overlays(kubectl_binary: Path) -> Callable[[str], list[Document]]:
    """Return what kubectl makes of a folder of `deploy`."""

    def run(folder: str) -> list[Document]:
        command = [str(kubectl_binary), "kustomize", str(DEPLOY / folder)]
        return manifests.parse(
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        )

    return run
