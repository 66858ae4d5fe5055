"""The control plane alone, on loopback, without root: objects and controllers, but no node and so no running pod."""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from localcluster import binaries, control_plane, kubeconfig, processes, record
from localcluster.api import Api
from localcluster.bootstrap import Options
from localcluster.driver import CONTROL_PLANE_ONLY, Command, Driver, Request
from localcluster.errors import ClusterError, MisuseError
from localcluster.progress import Progress
from localcluster.record import Record
from localcluster.settings import Layout

_PROGRAMS = frozenset(binaries.CONTROL_PLANE)


class Loopback(Driver):
    """The way taken by `up --control-plane-only`."""

    @override
    async def up(self, request: Request, progress: Progress) -> Record:
        """Start the programs so that they outlive this command."""
        layout = request.layout
        known = record.read(layout)
        if known is not None and await _answers(known):
            return known
        await self.down(layout, Progress.silent(), purge=False)
        layout.work.mkdir(parents=True, mode=0o700)
        options = Options(crds=request.crds)
        programs = await control_plane.obtain(options, request.settings, progress)
        with progress.step("starting the control plane", estimate=3):
            running = await control_plane.launch(layout.work, programs, options, dies_with_us=False)
        kubeconfig.write(layout.kubeconfig, layout.name, running.access)
        known = Record(
            name=layout.name,
            driver=CONTROL_PLANE_ONLY,
            server=running.server,
            kubeconfig=layout.kubeconfig,
            inner_kubeconfig=layout.kubeconfig,
            processes=tuple(process.identity for process in running.running),
            binaries=programs.paths,
        )
        record.write(layout, known)
        return known

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Kill the programs that work in this cluster's folder, recorded or not, and remove the folder."""
        with progress.step("removing the control plane", estimate=1):
            found = processes.working_in(layout.work, _PROGRAMS)
            for process in found:
                processes.kill(process)
            left = await processes.gone(found, timeout=10)
            if left:
                raise ClusterError(f"{left[0].name} (process {left[0].pid}) does not end; try again")
            layout.remove(purge=purge)

    @override
    async def load(self, record: Record, layout: Layout, archives: Sequence[Path]) -> list[str]:
        """Refuse: there is no node."""
        raise MisuseError(
            "a control plane alone runs no pods, so it takes no images; use 'up' without --control-plane-only"
        )

    @override
    def inside(self, record: Record, layout: Layout, argv: Sequence[str]) -> Command:
        """Run the program as it is: all of this cluster is on loopback."""
        return Command(argv=list(argv), environment={"KUBECONFIG": str(record.kubeconfig)})


async def _answers(known: Record) -> bool:
    if not all(processes.is_alive(process) for process in known.processes):
        return False
    async with Api(kubeconfig.read_access(known.kubeconfig)) as api:
        return await api.is_ready()
