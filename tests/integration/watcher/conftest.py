"""A namespace of one's own on a real control plane, and everything between it and a reader."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from secrets import token_hex

import pytest_asyncio

from common import errors
from common.kube import resources
from common.kube.client import KubeClient
from localcluster.control_plane import ControlPlane
from support.servers.control_plane import control_plane
from support.servers.relayed import Relayed, relayed

__all__ = ["control_plane"]


@pytest_asyncio.fixture
async def kube(control_plane: ControlPlane) -> AsyncGenerator[KubeClient]:
    client = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="test")
    yield client
    await client.close()


@pytest_asyncio.fixture
async def namespace(kube: KubeClient) -> str:
    name = f"watcher-{token_hex(4)}"
    await kube.create(resources.NAMESPACE, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    with contextlib.suppress(errors.AlreadyExists):  # the controller was quicker
        await kube.create(resources.SERVICE_ACCOUNT, name, account)
    return name


@pytest_asyncio.fixture
async def world(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncGenerator[Relayed]:
    async with relayed(tmp_path, control_plane.kubeconfig, namespace) as running:
        await running.until_synced()
        yield running
