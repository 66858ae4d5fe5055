"""A real control plane for each folder of tests, which ends before that of the next folder starts;
a client and a namespace of it for each test.
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
from localcluster import binaries
from localcluster.control_plane import ControlPlane
from support.servers.programs import prepared

_CRDS = Path(__file__).parents[3] / "deploy" / "crds"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Use the folder as the fixture's parameter, so that pytest ends the control plane of the
    previous folder.
    """
    if "control_plane" in metafunc.fixturenames:
        folder = str(metafunc.definition.path.parent)
        metafunc.parametrize(
            "control_plane", [folder], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run all tests that share a control plane or a module's fixtures (`--dist
    loadgroup`).
    """
    for item in items:
        has_plane = isinstance(item, pytest.Function) and "control_plane" in item.fixturenames
        item.add_marker(pytest.mark.xdist_group(str(item.path.parent if has_plane else item.path)))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """Run one control plane with our CRDs, the scheduler and one simulated node for all tests of a folder."""
    for name in (*binaries.CONTROL_PLANE, "kube-scheduler", *binaries.SIMULATED_NODES):
        prepared(name)
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
    """Create a namespace in which pods can be created at once."""
    name = f"t-{token_hex(4)}"
    await kube.create(NAMESPACE, None, {"metadata": {"name": name}})
    with contextlib.suppress(errors.AlreadyExists):  # the controller was quicker
        await kube.create(SERVICE_ACCOUNT, name, {"metadata": {"name": "default"}})
    return name
