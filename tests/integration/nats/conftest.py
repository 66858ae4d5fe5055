"""A real control plane, for what a watcher publishes while NATS servers come and go."""

from collections.abc import AsyncGenerator
from secrets import token_hex

import pytest_asyncio

from common.kube.client import KubeClient
from common.kube.resources import NAMESPACE
from localcluster.control_plane import ControlPlane
from support.servers.control_plane import control_plane

__all__ = ["control_plane"]


@pytest_asyncio.fixture
async def kube(control_plane: ControlPlane) -> AsyncGenerator[KubeClient]:
    client = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="test")
    yield client
    await client.close()


@pytest_asyncio.fixture
async def namespace(kube: KubeClient) -> str:
    name = f"nats-{token_hex(4)}"
    await kube.create(NAMESPACE, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
