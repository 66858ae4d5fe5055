"""The local node on which the suites run, with raybus, and with cert-manager beside it."""

import asyncio
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.kube.client import KubeClient
from localcluster import binaries, driver
from localcluster.demo.cluster_state import Kubectl
from localcluster.demo.scenario import DemoOptions, Scenario
from localcluster.demo.view import View
from localcluster.driver import ClusterRecord
from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from raybus_cli.child_processes import bind_to_parent

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


@contextmanager
def run_cert_manager(record: ClusterRecord, log: Path) -> Generator[None]:
    """Run cert-manager's controllers as a process beside the node, with their CRDs on it."""
    names = [binaries.CERT_MANAGER, binaries.CERT_MANAGER_CRDS]
    settings = LocalSettings.from_environment()
    programs = asyncio.run(binaries.obtain(names, settings, Progress.to_stderr()))
    kubectl = Kubectl(binary=record.binaries["kubectl"], kubeconfig=record.kubeconfig)
    definitions = programs.argv0(binaries.CERT_MANAGER_CRDS)
    asyncio.run(kubectl.run("apply", "--server-side", "-f", definitions))
    argv = [programs.argv0(binaries.CERT_MANAGER), f"--kubeconfig={record.kubeconfig}"]
    with log.open("wb") as written:
        process = subprocess.Popen(bind_to_parent(argv), stdout=written, stderr=written)
        try:
            yield
        finally:
            process.terminate()
            process.wait()
