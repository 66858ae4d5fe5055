"""The driver `kind`, which runs clusters in Docker containers.

The project's own tests have no Docker engine and do not cover this driver.
"""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from localcluster import driver, kubeconfig, processes, settings
from localcluster.driver import (
    ClusterRecord,
    ClusterRequest,
    Command,
    Driver,
    DriverName,
    need_docker,
)
from localcluster.errors import ClusterError
from localcluster.node import container_runtime
from localcluster.progress import Progress
from localcluster.settings import Layout

_KIND_IMAGE = f"kindest/node:v{settings.KUBERNETES}"


class KindDriver(Driver):
    """Creates and removes clusters with the program `kind`."""

    @override
    async def up(self, request: ClusterRequest, progress: Progress) -> ClusterRecord:
        """Create the cluster unless it exists, and write its record."""
        layout = request.layout
        await need_docker(DriverName.KIND)
        layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        clusters = await _find_kind("listing clusters", "get", "clusters")
        if layout.name not in clusters.split():
            with progress.step("creating the kind cluster", estimate=90):
                flags = ["--name", layout.name, "--image", _KIND_IMAGE, "--wait", "120s"]
                await _find_kind(
                    "creating the cluster",
                    "create",
                    "cluster",
                    *flags,
                    "--kubeconfig",
                    str(layout.kubeconfig),
                )
        if request.gateway:
            progress.report(
                "kind runs without Envoy Gateway: install a Gateway API controller if you need "
                "routes."
            )
        return await _write_record(request)

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Delete the cluster. It is no error if the cluster does not exist."""
        with progress.step("deleting the kind cluster", estimate=5):
            await _find_kind("deleting the cluster", "delete", "cluster", "--name", layout.name)
            layout.remove(purge=purge)

    @override
    async def load(
        self, record: ClusterRecord, layout: Layout, archives: Sequence[Path]
    ) -> list[str]:
        """Load the images of archives into the node; return their tags."""
        for archive in archives:
            await _find_kind(
                f"loading {archive.name}",
                "load",
                "image-archive",
                str(archive),
                "--name",
                record.name,
            )
        return [
            tag for archive in archives for tag in container_runtime.read_image_file(archive).tags
        ]

    @override
    def inside(self, record: ClusterRecord, layout: Layout, argv: Sequence[str]) -> Command:
        """Return the command that runs `argv` in the network of the node's container."""
        network = f"--network=container:{record.name}-control-plane"
        return Command(
            argv=["docker", "run", "--rm", "--interactive", network, *argv],
            environment={"KUBECONFIG": str(record.kubeconfig)},
        )


async def _find_kind(what: str, *arguments: str) -> str:
    finished = await processes.run(["kind", *arguments])
    if finished.code != 0:
        raise ClusterError(f"{what} failed: {processes.find_last_line(finished.errors)}")
    return finished.output


async def _write_record(request: ClusterRequest) -> ClusterRecord:
    """Apply the CRDs to a cluster, and write and return its record.

    kubectl applies the CRDs, because it supports every method of authentication.
    """
    layout = request.layout
    if request.crds is not None:
        argv = [
            "kubectl",
            "--kubeconfig",
            str(layout.kubeconfig),
            "apply",
            "--server-side",
            "--filename",
        ]
        await processes.run_checked("applying the CRDs", [*argv, str(request.crds)])
    known = ClusterRecord(
        name=layout.name,
        driver=DriverName.KIND,
        server=kubeconfig.check_readable(layout.kubeconfig),
        kubeconfig=layout.kubeconfig,
        inner_kubeconfig=layout.kubeconfig,
    )
    driver.write(layout, known)
    return known
