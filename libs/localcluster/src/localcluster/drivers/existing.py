"""A cluster that exists already, used because the user named its kubeconfig; we neither make nor remove it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from localcluster import binaries, kubeconfig, processes, record
from localcluster.driver import Command, Driver, DriverName, Request
from localcluster.errors import ClusterError, MisuseError
from localcluster.progress import Progress
from localcluster.record import Record
from localcluster.settings import Layout


class Existing(Driver):
    """The driver `kubeconfig`."""

    @override
    async def up(self, request: Request, progress: Progress) -> Record:
        """Check that the API server answers, and remember the file."""
        if request.kubeconfig is None:
            raise MisuseError(
                "the driver 'kubeconfig' needs --kubeconfig FILE: an existing cluster is never chosen silently"
            )
        path = request.kubeconfig.resolve()
        server = kubeconfig.check_readable(path)
        kubectl = _kubectl(request)
        with progress.step(f"connecting to {server}", estimate=2):
            await _ask(kubectl, path, server)
        known = Record(
            name=request.layout.name,
            driver=DriverName.KUBECONFIG,
            server=server,
            kubeconfig=path,
            inner_kubeconfig=path,
            binaries={"kubectl": kubectl},
        )
        record.write(request.layout, known)
        return known

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Forget the cluster; it is not ours to remove."""
        layout.remove(purge=purge)
        progress.report("Removed the record of the kubeconfig; the cluster itself is not changed.")

    @override
    async def load(self, record: Record, layout: Layout, archives: Sequence[Path]) -> list[str]:
        """Refuse: we cannot reach the nodes of a foreign cluster."""
        raise MisuseError("images cannot be loaded into an existing cluster; push them to a registry that it can reach")

    @override
    def inside(self, record: Record, layout: Layout, argv: Sequence[str]) -> Command:
        """Run the program with the user's kubeconfig."""
        return Command(argv=list(argv), environment={"KUBECONFIG": str(record.kubeconfig)})


def _kubectl(request: Request) -> Path:
    """Return kubectl, which alone knows every way of authentication that a kubeconfig may ask for."""
    own = shutil.which("kubectl")
    found, _ = binaries.locate(["kubectl"], request.settings)
    if own is None and not found:
        raise ClusterError("kubectl is needed for an existing cluster: install it, and put it on PATH")
    return Path(own) if own is not None else found["kubectl"]


async def _ask(kubectl: Path, path: Path, server: str) -> None:
    finished = await processes.run([str(kubectl), "--kubeconfig", str(path), "--request-timeout=10s", "version"])
    if finished.code != 0:
        cause = processes.last_line(finished.errors)
        raise ClusterError(f"{server} from {path} does not answer ({cause}); check the cluster, or name another file")
