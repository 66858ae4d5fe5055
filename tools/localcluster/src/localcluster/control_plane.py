"""A real control plane on loopback for tests, ready in 2 to 3 seconds.

It has etcd, kube-apiserver and kube-controller-manager. etcd and the API server start first, then
the CRDs are applied, then the controllers start. The order matters: the garbage collector knows the
kinds that exist when the controller-manager starts, and learns later kinds only after up to 40 s.

    async with ControlPlane.started(tmp_path, crds=Path("deploy/crds")) as cp:
        ...  # cp.kubeconfig is cluster-admin

No processes are left behind: the kernel kills the programs if the test process dies for any reason.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from localcluster import binaries, components, kubeconfig, processes
from localcluster.api import ApiClient, Document, has_condition, read_manifests
from localcluster.binaries import Binaries
from localcluster.components import ControlPlaneSpec, Ports
from localcluster.errors import ClusterError
from localcluster.kubeconfig import Access
from localcluster.processes import Spawned, find_last_error
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from raybus_cli import child_processes

Starter = Callable[[str, Sequence[str]], Spawned]
"""A function that starts a program in the namespaces of the cluster.

Arguments: name for the log, command line.
"""

READY_SECONDS = 60
"""Seconds that a start may take on a busy machine; 2 s is usual."""

_COMPONENTS = (
    "admin",
    "controller-manager",
    "scheduler",
    "kwok",
    "proxy",
    "coredns",
    "envoy-gateway",
    "node",
)


class ControlPlaneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which programs run beside etcd, the API server and the controller-manager, and how.

    `crds` is a folder of CRDs to install; `simulated_nodes` is the number of kwok's nodes.
    """

    crds: Path | None = None
    scheduler: bool = False
    simulated_nodes: int = 0
    completes_jobs: bool = True
    """Whether the pods of a Kubernetes Job on a simulated node succeed at once."""


def prepare(spec: ControlPlaneSpec) -> None:
    """Write the kubeconfigs and the audit policy that the programs of the control plane read."""
    (spec.work / "logs").mkdir(parents=True, exist_ok=True)
    ca = spec.pki.ca.read_bytes()
    server = spec.server
    for component in _COMPONENTS:
        access = Access(server=server, ca=ca, token=spec.pki.tokens[component])
        kubeconfig.write(spec.kubeconfig(component), "local", access)
    if spec.audit:
        (spec.work / "audit.yaml").write_text(components.AUDIT_POLICY)


async def start_api(spec: ControlPlaneSpec, api: ApiClient, start: Starter) -> list[Spawned]:
    """Start etcd and the API server, wait until the latter is ready, and return the processes."""
    processes = [
        start("etcd", components.build_etcd_argv(spec)),
        start("kube-apiserver", components.build_api_server_argv(spec)),
    ]
    await wait_ready(api, processes)
    return processes


async def start_controllers(
    spec: ControlPlaneSpec, api: ApiClient, start: Starter, options: ControlPlaneOptions
) -> list[Spawned]:
    """Apply the CRDs, start the controllers, and wait until pods can be created.

    Return the started processes.
    """
    if options.crds is not None:
        await api.apply_definitions(read_manifests(options.crds, kind="CustomResourceDefinition"))
    simulated = options.simulated_nodes > 0
    processes = [
        start(
            "kube-controller-manager",
            components.build_controller_manager_argv(spec, simulated_nodes=simulated),
        ),
    ]
    if options.scheduler:
        processes.append(start("kube-scheduler", components.build_scheduler_argv(spec)))
    if simulated:
        stages = sorted(spec.binaries.path("kwok-stages").glob("*.yaml"))
        if not options.completes_jobs:
            stages = [stage for stage in stages if stage.name != "pod-complete.yaml"]
        processes.append(start("kwok", components.build_kwok_argv(spec, stages)))
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    watched = partial(check_running, processes)
    what = "creating the default ServiceAccount"
    await api.wait_for(what, path, _accept_all, timeout=READY_SECONDS, meanwhile=watched)
    if simulated:
        await _add_nodes(api, options.simulated_nodes, watched)
    return processes


async def wait_ready(
    api: ApiClient, processes: Sequence[Spawned], *, timeout: float = READY_SECONDS
) -> None:
    """Wait until the API server is ready.

    Raises `ClusterError` after `timeout` seconds, or if one of `processes` ended; the error then
    has the last error line of the program.
    """
    deadline = time.monotonic() + timeout
    while not await api.is_ready():
        check_running(processes)
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the API server was not ready within {timeout:.0f} s; see {processes[-1].log}"
            )
        await asyncio.sleep(0.05)


def check_running(processes: Sequence[Spawned]) -> None:
    """Raise `ClusterError` with the program's last error line if a program has ended."""
    for process in processes:
        code = process.popen.poll()
        if code is not None:
            cause = find_last_error(process.log.read_text(errors="replace"))
            raise ClusterError(
                f"{process.identity.name} ended with code {code}: {cause} (log: {process.log})"
            )


async def _add_nodes(api: ApiClient, count: int, watched: Callable[[], None]) -> None:
    nodes = [build_simulated_node(index) for index in range(count)]
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(api.apply(node))
    for node in nodes:  # outside a task group, so that the caller gets the error itself
        name = node["metadata"]["name"]
        what, path = f"node {name} becoming ready", f"/api/v1/nodes/{name}"
        await api.wait_for(what, path, is_usable, timeout=READY_SECONDS, meanwhile=watched)


def build_simulated_node(index: int) -> Document:
    """Return a Node object for kwok with room for 100,000 pods."""
    size = {"cpu": "100000", "memory": "100Ti", "pods": "100000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"kwok-{index}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": f"kwok-{index}", "type": "kwok"},
        },
        "status": {"allocatable": size, "capacity": size},
    }


def is_usable(node: Document) -> bool:
    """Return whether pods can be scheduled on a node: it is ready and has no taints."""
    return has_condition("Ready")(node) and not node["spec"].get("taints")


def _accept_all(_document: Document) -> bool:
    return True


_ATTEMPTS = 3
"""Number of attempts to start.

Another program may take the chosen free port first; the next attempt chooses other ports.
"""

_LOOPBACK = "127.0.0.1"

_GO: Final = {"GOGC": "300"}
"""Setting of Go's garbage collection for the programs.

With the default of 100, the collection takes a quarter of the API server's processor time. The
programs live for minutes, and memory suffices."""


class ControlPlane:
    """A control plane and its running programs. With `dies_with_us`, they end with this process."""

    def __init__(
        self, spec: ControlPlaneSpec, options: ControlPlaneOptions, *, dies_with_us: bool = True
    ) -> None:
        self._spec = spec
        self._options = options
        self._dies_with_us = dies_with_us
        self._processes: dict[str, Spawned] = {}
        self._access = Access(
            server=spec.server,
            ca=spec.pki.ca.read_bytes(),
            token=spec.pki.tokens["admin"],
        )

    @classmethod
    @asynccontextmanager
    async def started(
        cls,
        workdir: Path,
        *,
        crds: Path | None = None,
        binaries: Binaries | None = None,
        scheduler: bool = False,
        kwok_nodes: int = 0,
        completes_jobs: bool = True,
        audit: bool = False,
    ) -> "AsyncGenerator[ControlPlane]":
        """Run a control plane during the `with` block, with its files in `workdir`.

        `crds` is a folder of CRDs. Missing `binaries` are built. Raises `ClusterError` if the start
        fails.
        """
        options = ControlPlaneOptions(
            crds=crds,
            scheduler=scheduler,
            simulated_nodes=kwok_nodes,
            completes_jobs=completes_jobs,
        )
        programs = binaries or await obtain(
            options, LocalSettings.from_environment(), Progress.to_stderr()
        )
        control_plane = await launch(workdir, programs, options, audit=audit)
        try:
            yield control_plane
        finally:
            await control_plane.stop()

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the cluster administrator."""
        return self._spec.kubeconfig("admin")

    @property
    def server(self) -> str:
        return self._access.server

    @property
    def access(self) -> Access:
        """URL, CA and token of the administrator, for clients that take no kubeconfig."""
        return self._access

    @property
    def audit_log(self) -> Path:
        """The audit log, one JSON line per request; written only with `audit=True`."""
        return self._spec.work / "audit.log"

    @property
    def running(self) -> Sequence[Spawned]:
        """The running programs of the control plane."""
        return list(self._processes.values())

    def api(self) -> ApiClient:
        """Return an API client with the administrator's rights, for use in `async with`."""
        return ApiClient(self._access)

    async def start(self) -> None:
        """Start all programs and wait until objects and pods can be created."""
        prepare(self._spec)
        async with self.api() as api:
            await start_api(self._spec, api, self._start)
            await start_controllers(self._spec, api, self._start, self._options)
        check_running(self.running)

    async def restart_api_server(self) -> None:
        """Restart the API server on the same port. All watches break, and no objects are lost."""
        await self.stop_api_server()
        await self.start_api_server()

    async def stop_api_server(self) -> None:
        """Kill the API server. `start_api_server` starts it again."""
        await processes.end([self._processes.pop("kube-apiserver")])

    async def start_api_server(self) -> None:
        """Start the API server after `stop_api_server`, and wait until it is ready."""
        process = self._start("kube-apiserver", components.build_api_server_argv(self._spec))
        async with self.api() as api:
            await wait_ready(api, [process])

    async def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig that authenticates as an existing ServiceAccount.

        Its token is valid for 24 hours.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        async with self.api() as api:
            answer = await api.create(path, _TOKEN_REQUEST)
        access = Access(
            server=self._access.server, ca=self._access.ca, token=answer["status"]["token"]
        )
        target = self._spec.work / f"{namespace}.{name}.kubeconfig"
        return kubeconfig.write(target, "local", access, namespace=namespace)

    async def stop(self) -> None:
        """Kill all programs, even if the calling task is cancelled."""
        ending = list(reversed(self._processes.values()))
        self._processes.clear()
        await asyncio.shield(processes.end(ending))

    def _start(self, name: str, argv: Sequence[str]) -> Spawned:
        log = self._spec.log(name)
        process = processes.spawn(name, argv, log, dies_with_us=self._dies_with_us, defaults=_GO)
        self._processes[name] = process
        return process


_TOKEN_REQUEST: Document = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    "spec": {"expirationSeconds": 3600 * 24},
}


async def obtain(
    options: ControlPlaneOptions, settings: LocalSettings, progress: Progress
) -> Binaries:
    """Return the programs that a control plane with these options needs. Missing ones are built."""
    names: list[str] = list(binaries.CONTROL_PLANE)
    if options.scheduler:
        names.append("kube-scheduler")
    if options.simulated_nodes:
        names += binaries.SIMULATED_NODES
    return await binaries.obtain(names, settings, progress)


async def launch(
    workdir: Path,
    programs: Binaries,
    options: ControlPlaneOptions,
    *,
    audit: bool = False,
    dies_with_us: bool = True,
    host: str = _LOOPBACK,
) -> ControlPlane:
    """Start a control plane with its files in `workdir`.

    The caller must stop it. With `host="::1"`, the control plane and its Services have IPv6
    addresses only. Raises `ClusterError` if the start fails.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        control_plane = ControlPlane(
            _build_spec(workdir, programs, audit=audit, host=host),
            options,
            dies_with_us=dies_with_us,
        )
        try:
            await control_plane.start()
        except ClusterError as error:
            await control_plane.stop()
            if attempt == _ATTEMPTS or "address already in use" not in str(error):
                raise
        except BaseException:
            await control_plane.stop()
            raise
        else:
            return control_plane
    raise ClusterError("the control plane did not start")


def _build_spec(workdir: Path, programs: Binaries, *, audit: bool, host: str) -> ControlPlaneSpec:
    numbers = child_processes.find_free_ports(6)
    certificates = kubeconfig.create(
        workdir / "pki", addresses=[host, components.API_SERVICE_ADDRESS], node="kwok-0"
    )
    return ControlPlaneSpec(
        binaries=programs,
        work=workdir,
        pki=certificates,
        host=host,
        ports=Ports(
            api=numbers[0],
            etcd=numbers[1],
            etcd_peer=numbers[2],
            controller_manager=numbers[3],
            scheduler=numbers[4],
            kwok=numbers[5],
        ),
        audit=audit,
    )
