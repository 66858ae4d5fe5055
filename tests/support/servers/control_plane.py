"""A session-wide real control plane for integration tests; import the fixture in a `conftest.py`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster.control_plane import ControlPlane

_CRDS = Path(__file__).parents[3] / "deploy" / "crds"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """Run one control plane with our CRDs, the scheduler and one simulated node for all tests of a run."""
    workdir = tmp_path_factory.mktemp("control-plane")
    crds = _CRDS if _CRDS.is_dir() else None
    async with ControlPlane.started(workdir, crds=crds, scheduler=True, kwok_nodes=1) as running:
        yield running
