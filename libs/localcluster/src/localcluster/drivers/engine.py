"""The common part of all clusters in a Docker container."""

from collections.abc import Sequence
from pathlib import Path

from localcluster import kubeconfig, processes, record
from localcluster.driver import Command, DriverName, Request
from localcluster.node import container_runtime
from localcluster.record import Record


async def recorded(request: Request, driver: DriverName) -> Record:
    """Apply our CRDs to a cluster that others made, and note how it is reached; kubectl knows every way of authentication."""
    layout = request.layout
    if request.crds is not None:
        argv = ["kubectl", "--kubeconfig", str(layout.kubeconfig), "apply", "--server-side", "--filename"]
        await processes.must("applying the CRDs", [*argv, str(request.crds)])
    known = Record(
        name=layout.name,
        driver=driver,
        server=kubeconfig.check_readable(layout.kubeconfig),
        kubeconfig=layout.kubeconfig,
        inner_kubeconfig=layout.kubeconfig,
    )
    record.write(layout, known)
    return known


def inside(known: Record, container: str, argv: Sequence[str]) -> Command:
    """Return the command that runs `argv` in a container's network."""
    command = ["docker", "run", "--rm", "--interactive", f"--network=container:{container}", *argv]
    return Command(argv=command, environment={"KUBECONFIG": str(known.kubeconfig)})


def tags(archives: Sequence[Path]) -> list[str]:
    """Return the names of the images in some archives."""
    return [tag for archive in archives for tag in container_runtime.read_image_file(archive).tags]
