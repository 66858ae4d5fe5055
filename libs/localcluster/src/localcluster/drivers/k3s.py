"""A K3s container started by testcontainers. Not exercised by our own test runs, which have no Docker engine."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from localcluster import pki, processes, record, versions
from localcluster.driver import Command, Driver, DriverName, Request, need_docker
from localcluster.drivers import engine
from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.record import Record
from localcluster.settings import Layout

_IMAGE = f"rancher/k3s:v{versions.KUBERNETES}-k3s1"


class K3s(Driver):
    """The driver `k3s`."""

    @override
    async def up(self, request: Request, progress: Progress) -> Record:
        """Start the container, unless it runs."""
        layout = request.layout
        await need_docker(DriverName.K3S)
        known = record.read(layout)
        if known is not None and (await processes.run(["docker", "inspect", layout.name])).code == 0:
            return known
        with progress.step("starting K3s", estimate=40):
            text = _start(layout.name)
        layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        pki.write_private(layout.kubeconfig, text.encode())
        return await engine.recorded(request, DriverName.K3S)

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
            await processes.must("copying the image", ["docker", "cp", str(archive), f"{record.name}:/image.tar"])
            argv = ["docker", "exec", record.name, "ctr", "--namespace", "k8s.io", "images", "import", "/image.tar"]
            await processes.must(f"importing {archive.name}", argv)
        return engine.tags(archives)

    @override
    def inside(self, record: Record, layout: Layout, argv: Sequence[str]) -> Command:
        """Enter the container's network."""
        return engine.inside(record, record.name, argv)


def _start(name: str) -> str:
    """Start the container so that it outlives this process; return its kubeconfig."""
    try:
        module: Any = importlib.import_module("testcontainers.k3s")
        core: Any = importlib.import_module("testcontainers.core.config")
    except ImportError as error:
        raise ClusterError("the driver 'k3s' needs the package testcontainers: pip install testcontainers") from error
    core.testcontainers_config.ryuk_disabled = True
    container: Any = module.K3SContainer(image=_IMAGE).with_name(name)
    container.start()
    return str(container.config_yaml())
