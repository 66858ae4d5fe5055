"""A browser for a run, and dashboards on the run's control plane."""

from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import pytest

from common.kube.client import KubeClient
from common.kube.resources import NAMESPACE
from localcluster.control_plane import ControlPlane


@pytest.fixture
async def kube(control_plane: ControlPlane) -> AsyncGenerator[KubeClient]:
    """Return a connection to the API server."""
    client = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="test")
    yield client
    await client.close()


@pytest.fixture
async def namespace(kube: KubeClient) -> str:
    """Make a namespace of its own."""
    name = f"page-{uuid4().hex[:8]}"
    await kube.create(
        NAMESPACE, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    return name


@pytest.fixture
def nobodys_bus(tmp_path: Path) -> tuple[str, ...]:
    """Return options that lead to a NATS that is not there."""
    return ("--nats", "nats://127.0.0.1:9")
