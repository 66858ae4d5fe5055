"""A namespace of one's own on a real control plane, and everything between it and a reader."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from localcluster.control_plane import ControlPlane
from support.servers.relayed import Relayed, relayed


@pytest_asyncio.fixture
async def harness(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncGenerator[Relayed]:
    async with relayed(tmp_path, control_plane.kubeconfig, namespace) as running:
        await running.until_synced()
        yield running
