"""A kind cluster, for machines with a Docker engine. Not exercised by our own test runs, which have no engine."""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from localcluster import processes, versions
from localcluster.driver import Command, Driver, DriverName, Request, need_docker
from localcluster.drivers import engine
from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.record import Record
from localcluster.settings import Layout

_NODE_IMAGE = f"kindest/node:v{versions.KUBERNETES}"


class Kind(Driver):
    """The driver `kind`: the `kind` program does the work."""

    @override
    async def up(self, request: Request, progress: Progress) -> Record:
        """Create the cluster, unless it exists."""
        layout = request.layout
        await need_docker(DriverName.KIND)
        layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        clusters = await _kind("listing clusters", "get", "clusters")
        if layout.name not in clusters.split():
            with progress.step("creating the kind cluster", estimate=90):
                flags = ["--name", layout.name, "--image", _NODE_IMAGE, "--wait", "120s"]
                await _kind("creating the cluster", "create", "cluster", *flags, "--kubeconfig", str(layout.kubeconfig))
        if request.gateway:
            progress.report("kind runs without Envoy Gateway: install a Gateway API controller if you need routes.")
        return await engine.recorded(request, DriverName.KIND)

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Delete the cluster; one that does not exist is fine."""
        with progress.step("deleting the kind cluster", estimate=5):
            await _kind("deleting the cluster", "delete", "cluster", "--name", layout.name)
            layout.remove(purge=purge)

    @override
    async def load(self, record: Record, layout: Layout, archives: Sequence[Path]) -> list[str]:
        """Load image archives into the node."""
        for archive in archives:
            await _kind(f"loading {archive.name}", "load", "image-archive", str(archive), "--name", record.name)
        return engine.tags(archives)

    @override
    def inside(self, record: Record, layout: Layout, argv: Sequence[str]) -> Command:
        """Enter the network of the node's container."""
        return engine.inside(record, f"{record.name}-control-plane", argv)


async def _kind(what: str, *arguments: str) -> str:
    finished = await processes.run(["kind", *arguments])
    if finished.code != 0:
        raise ClusterError(f"{what} failed: {processes.last_line(finished.errors)}")
    return finished.output
