"""The local node on which the suites run, with raybus installed."""

from pathlib import Path
from typing import Final

from common.kube.client import KubeClient
from localcluster import driver
from localcluster.demo.cluster_state import Kubectl
from localcluster.demo.scenario import DemoOptions, Scenario
from localcluster.demo.view import View
from localcluster.driver import ClusterRecord
from localcluster.errors import ClusterError
from localcluster.settings import LocalSettings

OVERLAY: Final = Path(__file__).with_name("overlay")


def find(name: str) -> ClusterRecord:
    """Return a running local cluster. Raises `ClusterError` if none has this name."""
    record = driver.read(LocalSettings.from_environment().layout(name))
    if record is None:
        raise ClusterError(f"there is no cluster {name}: start it with 'raybus cluster up'")
    return record


async def install(record: ClusterRecord) -> None:
    """Install raybus with the overlay of the suites, and wait until it is ready."""
    kubectl = Kubectl(binary=record.binaries["kubectl"], kubeconfig=record.kubeconfig)
    kube = await KubeClient.connect(kubeconfig=record.kubeconfig, user_agent="kuberay-e2e")
    deploy = LocalSettings.from_environment().checkout / "deploy"
    options = DemoOptions(manifests=deploy, overlay=OVERLAY, least_requests=0)
    try:
        await Scenario(options, kubectl, kube, View()).install()
    finally:
        await kube.close()
