"""The driver `built`: a real one-node Kubernetes on this machine, without a container engine."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from typing_extensions import override

from localcluster import binaries, driver, kubeconfig, settings
from localcluster.api import ApiClient
from localcluster.binaries import Binaries
from localcluster.driver import ClusterRecord, ClusterRequest, Command, Driver
from localcluster.errors import ClusterError
from localcluster.images import builder, debian
from localcluster.node import container_runtime, manifests, namespaces, startup
from localcluster.node.namespaces import Namespaces
from localcluster.progress import Progress
from localcluster.settings import Layout

_GATEWAY_IMAGES = ("envoy", "envoy-gateway")


class Built(Driver):
    """The driver `built`.

    It needs root on Linux, and installs or builds everything else that it needs.
    """

    @override
    async def up(self, request: ClusterRequest, progress: Progress) -> ClusterRecord:
        """Obtain programs and images, and start the node.

        A running node is kept; it gets a gateway if requested.
        """
        running = await _find_running(request)
        if running is not None:
            return await _add_gateway(running, request, progress)
        binaries.check(request.layout.state)
        await asyncio.to_thread(debian.install, binaries.PACKAGES, progress)
        programs = await binaries.obtain(_list_programs(request), request.settings, progress)
        images = await _find_node_images(request, programs, progress)
        await self.down(request.layout, Progress.silent(), purge=False)
        return await startup.start(request, programs, images, progress)

    @override
    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Kill the node's processes; remove the cgroups and files that the kernel leaves."""
        with progress.step("removing the node", estimate=2):
            await namespaces.destroy(layout.name)
            namespaces.remove_cgroups(layout.name)
            layout.remove(purge=purge)

    @override
    async def load(
        self, record: ClusterRecord, layout: Layout, archives: Sequence[Path]
    ) -> list[str]:
        """Import the images of archives into containerd's store."""
        return await container_runtime.import_images(
            _find_node(record.name), layout.images, archives
        )

    @override
    def inside(self, record: ClusterRecord, layout: Layout, argv: Sequence[str]) -> Command:
        """Return the command that runs `argv` with the node's network and DNS.

        The program sees the files and processes of this machine.
        """
        if not settings.is_root():
            raise ClusterError("entering the cluster's network needs root: run this as root")
        command = _find_node(record.name).enter_network(argv, layout.resolv_conf)
        return Command(argv=command, environment={"KUBECONFIG": str(record.inner_kubeconfig)})


def _list_programs(request: ClusterRequest) -> list[str]:
    definitions = [binaries.GATEWAY_CRDS] if request.gateway_api else []
    return [*binaries.NODE, *(binaries.GATEWAY if request.gateway else definitions)]


async def _add_gateway(
    known: ClusterRecord, request: ClusterRequest, progress: Progress
) -> ClusterRecord:
    """Add Envoy Gateway to a running node if requested and missing; return the new record."""
    if known.gateway or not request.gateway:
        return known
    obtained = await binaries.obtain(binaries.GATEWAY, request.settings, progress)
    images = await _build_images(_GATEWAY_IMAGES, request, obtained, progress)
    node = _find_node(known.name)
    with progress.step("importing the gateway's images", estimate=5):
        await container_runtime.import_images(node, request.layout.images, images)
    programs = Binaries(paths={**known.binaries, **obtained.paths})
    async with ApiClient(kubeconfig.read_access(known.kubeconfig)) as api:
        with progress.step("starting Envoy Gateway", estimate=12):
            await manifests.start(api, node, programs, request.layout)
    extended = msgspec.structs.replace(known, gateway=True, binaries=programs.paths)
    driver.write(request.layout, extended)
    return extended


async def _find_node_images(
    request: ClusterRequest, programs: Binaries, progress: Progress
) -> list[Path]:
    """Return the archives of the images that the node itself needs."""
    targets = ["pause", *(_GATEWAY_IMAGES if request.gateway else ())]
    return await _build_images(targets, request, programs, progress)


async def _build_images(
    targets: Sequence[str], request: ClusterRequest, programs: Binaries, progress: Progress
) -> list[Path]:
    checkout = request.settings.checkout
    archives = await asyncio.to_thread(
        builder.ensure, targets, progress=progress, files=programs.paths, checkout=checkout
    )
    return [archives[target].path for target in targets]


def _find_node(name: str) -> Namespaces:
    node = namespaces.find(name)
    if node is None:
        raise ClusterError(f"cluster {name} does not run; start it with 'raybus cluster up'")
    return node


async def _find_running(request: ClusterRequest) -> ClusterRecord | None:
    known = driver.read(request.layout)
    if known is None or namespaces.find(request.layout.name) is None:
        return None
    async with ApiClient(kubeconfig.read_access(known.kubeconfig)) as api:
        return known if await api.is_ready() else None
