"""The overlays, rendered by kubectl, and the local one applied to a real control plane as a user does."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster import binaries
from localcluster.control_plane import ControlPlane
from localcluster.progress import Progress
from localcluster.settings import Settings
from support.manifests import DEPLOY

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def kubectl_binary() -> Path:
    found = asyncio.run(binaries.obtain(["kubectl"], Settings.from_environment(), Progress.to_stderr()))
    return found.path("kubectl")


@pytest.fixture(scope="session")
def kubectl(kubectl_binary: Path, control_plane: ControlPlane) -> Kubectl:
    """Run kubectl as the cluster's administrator; its complaints are part of what it returns."""

    def run(*arguments: str) -> str:
        command = [str(kubectl_binary), "--kubeconfig", str(control_plane.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def applied(kubectl: Kubectl) -> str:
    """Install the CRDs and the local overlay once; return what kubectl said."""
    return "".join(kubectl("apply", "-k", str(DEPLOY / folder)) for folder in ("crds", "overlays/local"))
