"""Clusters in Docker containers: kind, and K3s by testcontainers.

The project's own tests have no Docker engine and cover neither.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from localcluster import driver, kubeconfig, processes, settings
from localcluster.driver import Command, Driver, DriverName, Record, Request, need_docker
from localcluster.errors import ClusterError
from localcluster.node import container_runtime
from localcluster.progress import Progress
from localcluster.settings import Layout

_K3S_IMAGE = f"rancher/k3s:v{settings.KUBERNETES}-k3s1"
_KIND_IMAGE = f"kindest/node:v{settings.KUBERNETES}"


class Kind(Driver):
    """The driver `kind`, which runs the program `kind`."""

    @override
    async def up(self, request: Request, progress: Progress) -> Record:
        """Create the cluster, unless it exists."""
        layout = request.layout
        await need_docker(DriverName.KIND)
        layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        clusters = await _kind("listing clusters", "get", "clusters")
        if layout.name not in clusters.split():
            with progress.step("creating the kind cluster", estimate=90):
                flags = ["--name", layout.name, "--image", _KIND_IMAGE, "--wait", "120s"]
                await _kind(
                    "creating the cluster",
                    "create",
                    "cluster",
                    *flags,
                    "--kubeconfig",
                    str(layout.kubeconfig),
                )
        if request.gateway:
            progress.report(
                "kind runs without Envoy Gateway: install a Gateway API controller if you need routes."
            )
        return await _recorded(request, DriverName.KIND)

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Delete the cluster; a cluster that does not exist is no error."""
        with progress.step("deleting the kind cluster", estimate=5):
            await _kind("deleting the cluster", "delete", "cluster", "--name", layout.name)
            layout.remove(purge=purge)

    @override
    async def load(self, record: Record, layout: Layout, archives: Sequence[Path]) -> list[str]:
        """Load image archives into the node."""
        for archive in archives:
            await _kind(
                f"loading {archive.name}",
                "load",
                "image-archive",
                str(archive),
                "--name",
                record.name,
            )
        return _tags(archives)

    @override
    def inside(self, record: Record, layout: Layout, argv: Sequence[str]) -> Command:
        """Run the program in the network of the node's container."""
        return _inside(record, f"{record.name}-control-plane", argv)


async def _kind(what: str, *arguments: str) -> str:
    finished = await processes.run(["kind", *arguments])
    if finished.code != 0:
        raise ClusterError(f"{what} failed: {processes.last_line(finished.errors)}")
    return finished.output


class K3s(Driver):
    """The driver `k3s`, which runs K3s in a container."""

    @override
    async def up(self, request: Request, progress: Progress) -> Record:
        """Start the container, unless it runs."""
        layout = request.layout
        await need_docker(DriverName.K3S)
        known = driver.read(layout)
        if (
            known is not None
            and (await processes.run(["docker", "inspect", layout.name])).code == 0
        ):
            return known
        with progress.step("starting K3s", estimate=40):
            text = _start(layout.name)
        layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        kubeconfig.write_private(layout.kubeconfig, text.encode())
        return await _recorded(request, DriverName.K3S)

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Remove the container."""
        with progress.step("removing K3s", estimate=3):
            await processes.run(["docker", "rm", "--force", "--volumes", layout.name])
            layout.remove(purge=purge)

    @override
    async def load(self, record: Record, layout: Layout, archives: Sequence[Path]) -> list[str]:
        """Import image archives into the container's containerd."""
        for archive in archives:
            await processes.must(
                "copying the image", ["docker", "cp", str(archive), f"{record.name}:/image.tar"]
            )
            argv = [
                "docker",
                "exec",
                record.name,
                "ctr",
                "--namespace",
                "k8s.io",
                "images",
                "import",
                "/image.tar",
            ]
            await processes.must(f"importing {archive.name}", argv)
        return _tags(archives)

    @override
    def inside(self, record: Record, layout: Layout, argv: Sequence[str]) -> Command:
        """Run the program in the container's network."""
        return _inside(record, record.name, argv)


def _start(name: str) -> str:
    """Start the container so that it outlives this process; return its kubeconfig."""
    try:
        module: Any = importlib.import_module("testcontainers.k3s")
        core: Any = importlib.import_module("testcontainers.core.config")
    except ImportError as error:
        raise ClusterError(
            "the driver 'k3s' needs the package testcontainers: pip install testcontainers"
        ) from error
    core.testcontainers_config.ryuk_disabled = True
    container: Any = module.K3SContainer(image=_K3S_IMAGE).with_name(name)
    container.start()
    return str(container.config_yaml())


async def _recorded(request: Request, chosen: DriverName) -> Record:
    """Apply the CRDs to a new cluster, and write its record.

    kubectl applies them, because it supports every method of authentication.
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
        await processes.must("applying the CRDs", [*argv, str(request.crds)])
    known = Record(
        name=layout.name,
        driver=chosen,
        server=kubeconfig.check_readable(layout.kubeconfig),
        kubeconfig=layout.kubeconfig,
        inner_kubeconfig=layout.kubeconfig,
    )
    driver.write(layout, known)
    return known


def _inside(known: Record, container: str, argv: Sequence[str]) -> Command:
    """Return the command that runs `argv` in a container's network."""
    command = ["docker", "run", "--rm", "--interactive", f"--network=container:{container}", *argv]
    return Command(argv=command, environment={"KUBECONFIG": str(known.kubeconfig)})


def _tags(archives: Sequence[Path]) -> list[str]:
    """Return the tags of the images in archives."""
    return [tag for archive in archives for tag in container_runtime.read_image_file(archive).tags]
