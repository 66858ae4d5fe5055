"""A real one-node Kubernetes with a gateway and raybus on it, for all end-to-end tests."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from common.kube.client import KubeClient
from localcluster.demo.cluster_state import Kubectl
from localcluster.demo.scenario import DemoOptions, Scenario
from localcluster.demo.view import View
from localcluster.driver import ClusterRecord
from support import node
from support.leaks import in_cluster

DEPLOY = Path(__file__).parents[2] / "deploy"
OVERLAY = Path(__file__).parent / "overlay"


class Rig(msgspec.Struct, frozen=True, kw_only=True):
    """A running cluster, with the means to reach it."""

    kubectl: Kubectl
    kube: KubeClient
    has_gateway: bool

    def need_gateway(self) -> None:
        """Skip a test if the driver of the local cluster provides no gateway."""
        if not self.has_gateway:
            pytest.skip("this local cluster has no gateway; the driver built has")

    def scenario(self, plan: DemoOptions | None = None) -> Scenario:
        """Return the demo's scenario on this cluster."""
        given = plan or DemoOptions(manifests=DEPLOY, least_requests=0)
        return Scenario(
            msgspec.structs.replace(given, overlay=OVERLAY), self.kubectl, self.kube, View()
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print at once why a test failed, because all end-to-end tests take long."""
    if report.outcome not in {
        "passed",
        "skipped",
    }:  # pytest-rerunfailures has an outcome of its own
        sys.stdout.write(f"\n{report.longreprtext}\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the end-to-end tests, and run each on the event loop of its cluster's connections."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def known() -> Generator[ClusterRecord]:
    """Start a cluster for these tests, with all images."""
    with node.running("e2e", more_images=["redis"]) as known:
        yield known


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rig(known: ClusterRecord) -> AsyncGenerator[Rig]:
    """Install raybus once and wait until it is ready."""
    kubectl = Kubectl(binary=known.binaries["kubectl"], kubeconfig=known.kubeconfig)
    async with connected(kubectl, user_agent="e2e") as kube:
        rig = Rig(kubectl=kubectl, kube=kube, has_gateway=known.gateway)
        async with asyncio.timeout(300):
            await rig.scenario().install()
        yield rig
        assert await in_cluster.leaks(kube, kubectl) == []


@asynccontextmanager
async def connected(kubectl: Kubectl, *, user_agent: str) -> AsyncGenerator[KubeClient]:
    """Return a client of the cluster for the length of a block."""
    kube = await KubeClient.connect(kubeconfig=kubectl.kubeconfig, user_agent=user_agent)
    try:
        yield kube
    finally:
        await kube.close()
