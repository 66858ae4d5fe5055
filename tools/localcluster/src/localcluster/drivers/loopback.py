"""The drivers that run no node: a control plane on loopback, and an existing cluster.

The control plane needs no root, and cannot run pods. An existing cluster is used only if the user
names its kubeconfig, and is neither created nor removed.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from localcluster import binaries, control_plane, driver, kubeconfig, processes
from localcluster.api import ApiClient
from localcluster.control_plane import ControlPlaneOptions
from localcluster.driver import (
    CONTROL_PLANE_ONLY,
    ClusterRecord,
    ClusterRequest,
    Command,
    Driver,
    DriverName,
)
from localcluster.errors import ClusterError, MisuseError
from localcluster.progress import Progress
from localcluster.settings import Layout


class Existing(Driver):
    """The driver `kubeconfig`, for a cluster that exists already."""

    @override
    async def up(self, request: ClusterRequest, progress: Progress) -> ClusterRecord:
        """Check that the API server answers, and write a record with the kubeconfig's path."""
        if request.kubeconfig is None:
            raise MisuseError(
                "the driver 'kubeconfig' needs --kubeconfig FILE: an existing cluster is never "
                "chosen silently"
            )
        path = request.kubeconfig.resolve()
        server = kubeconfig.check_readable(path)
        kubectl = _find_kubectl(request)
        with progress.step(f"connecting to {server}", estimate=2):
            await _ask(kubectl, path, server)
        known = ClusterRecord(
            name=request.layout.name,
            driver=DriverName.KUBECONFIG,
            server=server,
            kubeconfig=path,
            inner_kubeconfig=path,
            binaries={"kubectl": kubectl},
        )
        driver.write(request.layout, known)
        return known

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Remove the record of the cluster. The cluster itself is kept."""
        layout.remove(purge=purge)
        progress.report("Removed the record of the kubeconfig; the cluster itself is not changed.")

    @override
    async def load(
        self, record: ClusterRecord, layout: Layout, archives: Sequence[Path]
    ) -> list[str]:
        """Raise `MisuseError`, because the nodes of an existing cluster cannot be reached."""
        raise MisuseError(
            "images cannot be loaded into an existing cluster; push them to a registry that it "
            "can reach"
        )

    @override
    def inside(self, record: ClusterRecord, layout: Layout, argv: Sequence[str]) -> Command:
        """Return the command `argv` with the kubeconfig's path in its environment."""
        return Command(argv=list(argv), environment={"KUBECONFIG": str(record.kubeconfig)})


def _find_kubectl(request: ClusterRequest) -> Path:
    """Return the path of kubectl: on the PATH, or else the built one.

    kubectl supports every method of authentication in a kubeconfig. Raises `ClusterError` without
    kubectl.
    """
    own = shutil.which("kubectl")
    paths, _ = binaries.locate(["kubectl"], request.settings)
    if own is None and not paths:
        raise ClusterError(
            "kubectl is needed for an existing cluster: install it, and put it on PATH"
        )
    return Path(own) if own is not None else paths["kubectl"]


async def _ask(kubectl: Path, path: Path, server: str) -> None:
    finished = await processes.run(
        [str(kubectl), "--kubeconfig", str(path), "--request-timeout=10s", "version"]
    )
    if finished.code != 0:
        cause = processes.find_last_line(finished.errors)
        raise ClusterError(
            f"{server} from {path} does not answer ({cause}); check the cluster, or name another "
            "file"
        )


_PROGRAMS = frozenset(binaries.CONTROL_PLANE)


class Loopback(Driver):
    """The driver of `up --control-plane-only`, which runs no node."""

    @override
    async def up(self, request: ClusterRequest, progress: Progress) -> ClusterRecord:
        """Start the programs of the control plane so that they outlive this command."""
        layout = request.layout
        known = driver.read(layout)
        if known is not None and await _is_answering(known):
            return known
        await self.down(layout, Progress.silent(), purge=False)
        layout.work.mkdir(parents=True, mode=0o700)
        options = ControlPlaneOptions(crds=request.crds)
        programs = await control_plane.obtain(options, request.settings, progress)
        with progress.step("starting the control plane", estimate=3):
            running = await control_plane.launch(layout.work, programs, options, dies_with_us=False)
        kubeconfig.write(layout.kubeconfig, layout.name, running.access)
        known = ClusterRecord(
            name=layout.name,
            driver=CONTROL_PLANE_ONLY,
            server=running.server,
            kubeconfig=layout.kubeconfig,
            inner_kubeconfig=layout.kubeconfig,
            processes=tuple(process.identity for process in running.running),
            binaries=programs.paths,
        )
        driver.write(layout, known)
        return known

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Kill the programs of this cluster, and remove its files.

        The programs are found by the cluster's folder in their command line, so no record is
        needed.
        """
        with progress.step("removing the control plane", estimate=1):
            pids = processes.find_working_in(layout.work, _PROGRAMS)
            for process in pids:
                processes.kill(process)
            left = await processes.wait_until_gone(pids, timeout=10)
            if left:
                raise ClusterError(
                    f"{left[0].name} (process {left[0].pid}) does not end; try again"
                )
            layout.remove(purge=purge)

    @override
    async def load(
        self, record: ClusterRecord, layout: Layout, archives: Sequence[Path]
    ) -> list[str]:
        """Raise `MisuseError`, because there is no node."""
        raise MisuseError(
            "a control plane alone runs no pods, so it takes no images; use 'up' without "
            "--control-plane-only"
        )

    @override
    def inside(self, record: ClusterRecord, layout: Layout, argv: Sequence[str]) -> Command:
        """Return the command `argv` with the kubeconfig's path in its environment.

        The command runs in the caller's network, because the cluster listens on loopback.
        """
        return Command(argv=list(argv), environment={"KUBECONFIG": str(record.kubeconfig)})


async def _is_answering(known: ClusterRecord) -> bool:
    if not all(processes.is_alive(process) for process in known.processes):
        return False
    async with ApiClient(kubeconfig.read_access(known.kubeconfig)) as api:
        return await api.is_ready()
