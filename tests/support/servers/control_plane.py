"""A session-wide real control plane for integration tests, and a client and a namespace of it for each test.

A folder whose `conftest.py` imports `control_plane` has one of its own.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from secrets import token_hex

import pytest
import pytest_asyncio

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import NAMESPACE, SERVICE_ACCOUNT
from localcluster.control_plane import ControlPlane

_CRDS = Path(__file__).parents[3] / "deploy" / "crds"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """Run one control plane with our CRDs, the scheduler and one simulated node for all tests of a run."""
    workdir = tmp_path_factory.mktemp("control-plane")
    crds = _CRDS if _CRDS.is_dir() else None
    async with ControlPlane.started(workdir, crds=crds, scheduler=True, kwok_nodes=1) as running:
        yield running


@pytest_asyncio.fixture
async def kube(control_plane: ControlPlane) -> AsyncGenerator[KubeClient]:
    """Connect as the administrator."""
    client = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    try:
        yield client
    finally:
        await client.close()


@pytest_asyncio.fixture
async def namespace(kube: KubeClient) -> str:
    """Make a namespace in which pods can be created at once."""
    name = f"t-{token_hex(4)}"
    await kube.create(NAMESPACE, None, {"metadata": {"name": name}})
    with contextlib.suppress(errors.AlreadyExists):  # the controller was quicker
        await kube.create(SERVICE_ACCOUNT, name, {"metadata": {"name": "default"}})
    return name
