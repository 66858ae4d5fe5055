"""Starts a node, from empty namespaces to a cluster that runs pods.

The namespaces come first; then the container runtime with its images, concurrently with the control
plane; then kubelet, kube-proxy and DNS; finally the gateway, if requested.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from localcluster import components, control_plane, driver, kubeconfig, processes
from localcluster.api import ApiClient, read_manifests
from localcluster.binaries import Binaries
from localcluster.components import ControlPlaneSpec, Ports
from localcluster.control_plane import ControlPlaneOptions
from localcluster.driver import ClusterRecord, ClusterRequest, DriverName
from localcluster.errors import ClusterError, MisuseError
from localcluster.kubeconfig import Access
from localcluster.node import container_runtime, forward, kubelet, manifests, namespaces
from localcluster.node.namespaces import ADDRESS, Namespaces
from localcluster.processes import Spawned
from localcluster.progress import Progress
from raybus_cli import child_processes

_PORTS = Ports(
    api=6443, etcd=2379, etcd_peer=2380, controller_manager=10257, scheduler=10259, kwok=10247
)
"""The ports of the node's programs.

They are the default ports, because the node has its own network namespace.
"""

_VOLUMES = 8


class Startup:
    """The steps of the start of one node, and their shared state."""

    def __init__(
        self, request: ClusterRequest, spec: ControlPlaneSpec, node: Namespaces, progress: Progress
    ) -> None:
        self._request = request
        self._layout = request.layout
        self._spec = spec
        self._node = node
        self._progress = progress
        self._started: list[Spawned] = []

    async def run(self, listening: processes.Listening, images: Sequence[Path]) -> ClusterRecord:
        """Start all programs of the node in order, and return the record of the cluster.

        `images` are archives that the node itself needs.
        """
        access = self._forward_from(listening)
        self._remember(access, gateway=False)
        async with ApiClient(access) as api:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_runtime(images))
                group.create_task(self._start_control_plane(api))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._import_given())
                with self._progress.step("starting the node", estimate=5):
                    await self._start_node(api)
            if self._request.gateway:
                with self._progress.step("starting Envoy Gateway", estimate=12):
                    await manifests.start(api, self._node, self._spec.binaries, self._layout)
        control_plane.check_running(self._started)
        return self._remember(access, gateway=self._request.gateway)

    def _start(self, name: str, argv: Sequence[str], *, keep: Sequence[int] = ()) -> Spawned:
        """Start a program inside the node.

        The program runs under a wrapper, whose pid is recorded; it ends when the wrapper is killed.
        The file descriptors `keep` are inherited.
        """
        command = self._node.enter(child_processes.bind_to_parent(argv))
        process = processes.spawn(
            name, command, self._spec.log(name), dies_with_us=False, keep=keep
        )
        self._started.append(process)
        return process

    def _forward_from(self, listening: processes.Listening) -> Access:
        """Forward the listening port on this machine to the API server; write the kubeconfig."""
        descriptor = listening.fileno()
        program = [
            sys.executable,
            "-I",
            "-S",
            forward.__file__,
            str(descriptor),
            ADDRESS,
            str(_PORTS.api),
        ]
        self._start("forward", program, keep=[descriptor])
        server = f"https://127.0.0.1:{listening.getsockname()[1]}"
        access = Access(
            server=server, ca=self._spec.pki.ca.read_bytes(), token=self._spec.pki.tokens["admin"]
        )
        kubeconfig.write(self._layout.kubeconfig, self._layout.name, access)
        return access

    def _remember(self, access: Access, *, gateway: bool) -> ClusterRecord:
        known = ClusterRecord(
            name=self._layout.name,
            driver=DriverName.BUILT,
            server=access.server,
            kubeconfig=self._layout.kubeconfig,
            inner_kubeconfig=self._spec.kubeconfig("admin"),
            gateway=gateway,
            processes=(self._node.first, *(process.identity for process in self._started)),
            binaries=self._spec.binaries.paths,
        )
        driver.write(self._layout, known)
        return known

    async def _start_runtime(self, images: Sequence[Path]) -> None:
        with self._progress.step("starting containerd and importing images", estimate=5) as step:
            argv = container_runtime.build_argv(self._layout.work)
            process = self._start("containerd", argv)
            await container_runtime.wait_ready(self._node)
            old = await container_runtime.list_old_containers(self._node)
            if old:
                step.note("removing old containers")
                await container_runtime.forget(self._node, old, self._layout.images)
                self._started.remove(process)
                await processes.end([process])
                self._start("containerd", argv)
                await container_runtime.wait_ready(self._node)
            step.note("importing images")
            await container_runtime.import_images(self._node, self._layout.images, images)

    async def _import_given(self) -> None:
        """Import the images of `ClusterRequest.images`.

        The node becomes ready without them, so this runs concurrently.
        """
        given = self._request.images
        if given:
            with self._progress.step(
                f"importing {len(given)} image file(s)", estimate=4 * len(given)
            ):
                await container_runtime.import_images(self._node, self._layout.images, given)

    async def _start_control_plane(self, api: ApiClient) -> None:
        with self._progress.step("starting the control plane", estimate=5):
            await control_plane.start_api(self._spec, api, self._start)
            if self._request.gateway or self._request.gateway_api:
                await api.apply_definitions(
                    read_manifests(self._spec.binaries.path("gateway-crds"))
                )
            options = ControlPlaneOptions(crds=self._request.crds, scheduler=True)
            await control_plane.start_controllers(self._spec, api, self._start, options)

    async def _start_node(self, api: ApiClient) -> None:
        self._start("kubelet", kubelet.build_kubelet_argv(self._spec))
        self._start("kube-proxy", kubelet.build_kube_proxy_argv(self._spec))
        self._start(
            "coredns",
            [self._spec.binaries.argv0("coredns"), "-conf", str(self._layout.work / "Corefile")],
        )
        folders = kubelet.create_volumes(self._layout.work, _VOLUMES)
        for document in [*manifests.build_dns(ADDRESS), *manifests.build_storage(folders)]:
            await api.apply(document)
        path = f"/api/v1/nodes/{kubelet.NODE_NAME}"
        await api.wait_for("the node becoming ready", path, control_plane.is_usable, timeout=90)
        await self._wait_dns()

    async def _wait_dns(self) -> None:
        probe = self._node.enter(["timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{ADDRESS}/53"])
        for _ in range(100):
            if (await processes.run(probe)).code == 0:
                return
            await asyncio.sleep(0.1)
        raise ClusterError(f"CoreDNS does not answer; see {self._spec.log('coredns')}")


def prepare(request: ClusterRequest, programs: Binaries) -> ControlPlaneSpec:
    """Write all certificates and configuration files of a new node; return where they are."""
    layout = request.layout
    (layout.work / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
    addresses = ["127.0.0.1", ADDRESS, components.API_SERVICE_ADDRESS]
    spec = ControlPlaneSpec(
        binaries=programs,
        work=layout.work,
        pki=kubeconfig.create(layout.work / "pki", addresses=addresses, node=kubelet.NODE_NAME),
        host=ADDRESS,
        ports=_PORTS,
        audit=True,
        node_authorizer=True,
    )
    control_plane.prepare(spec)
    kubelet.prepare(spec, name=layout.name)
    container_runtime.prepare(layout.name, layout.images, layout.work)
    layout.resolv_conf.write_text(f"nameserver {components.DNS_ADDRESS}\n")
    (layout.work / "Corefile").write_text(
        manifests.format_corefile(ADDRESS, spec.kubeconfig("coredns"))
    )
    return spec


async def start(
    request: ClusterRequest, programs: Binaries, images: Sequence[Path], progress: Progress
) -> ClusterRecord:
    """Start the node of a cluster and return the cluster's record.

    No node of the cluster may run.
    """
    with _listen(request.port) as listening:
        spec = prepare(request, programs)
        with progress.step("making namespaces", estimate=1):
            namespaces.make_cgroups(request.layout.name)
            node = await namespaces.create(request.layout.name, request.layout.work)
        return await Startup(request, spec, node, progress).run(listening, images)


def _listen(port: int) -> processes.Listening:
    try:
        return processes.listen(port)
    except OSError as error:
        raise MisuseError(
            f"port {port} is in use; choose another with --port, or leave it out"
        ) from error
