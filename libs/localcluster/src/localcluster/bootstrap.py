"""Brings up a control plane in the right order, wherever its programs run.

Order: etcd and the API server together, then the CRDs, then the controllers: garbage collection learns kinds that exist when
the controller-manager starts at once, later ones only after up to 40 s.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from localcluster import components, kubeconfig
from localcluster.api import Api, Document, condition, read_manifests
from localcluster.components import Place
from localcluster.errors import ClusterError
from localcluster.kubeconfig import Access
from localcluster.processes import Spawned, last_error

Starter = Callable[[str, Sequence[str]], Spawned]
"""Starts a named program in the place where this cluster's programs run."""

READY_SECONDS = 60
"""How long a control plane may take on a busy machine; 2 s is usual."""

_COMPONENTS = ("admin", "controller-manager", "scheduler", "kwok", "proxy", "coredns", "envoy-gateway", "node")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What runs beside etcd, the API server and the controller-manager."""

    crds: Path | None = None
    scheduler: bool = False
    simulated_nodes: int = 0


def prepare(place: Place) -> None:
    """Write the kubeconfigs and policies that the programs read."""
    (place.work / "logs").mkdir(parents=True, exist_ok=True)
    ca = place.pki.ca.read_bytes()
    server = f"https://{place.host}:{place.ports.api}"
    for component in _COMPONENTS:
        access = Access(server=server, ca=ca, token=place.pki.tokens[component])
        kubeconfig.write(place.kubeconfig(component), "local", access)
    if place.audit:
        (place.work / "audit.yaml").write_text(components.AUDIT_POLICY)


async def start_api(place: Place, api: Api, start: Starter) -> list[Spawned]:
    """Start etcd and the API server, and wait until it is ready."""
    processes = [start("etcd", components.etcd(place)), start("kube-apiserver", components.api_server(place))]
    await wait_ready(api, processes)
    return processes


async def start_controllers(place: Place, api: Api, start: Starter, options: Options) -> list[Spawned]:
    """Apply the CRDs, start the controllers, and wait until pods can be made."""
    if options.crds is not None:
        await api.apply_definitions(read_manifests(options.crds, kind="CustomResourceDefinition"))
    simulated = options.simulated_nodes > 0
    processes = [
        start("kube-controller-manager", components.controller_manager(place, simulated_nodes=simulated)),
    ]
    if options.scheduler:
        processes.append(start("kube-scheduler", components.scheduler(place)))
    if simulated:
        stages = sorted(place.binaries.path("kwok-stages").glob("*.yaml"))
        processes.append(start("kwok", components.kwok(place, stages)))
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    watched = partial(check_running, processes)
    what = "creating the default ServiceAccount"
    await api.wait_for(what, path, _always, timeout=READY_SECONDS, meanwhile=watched)
    if simulated:
        await _add_nodes(api, options.simulated_nodes, watched)
    return processes


async def wait_ready(api: Api, processes: Sequence[Spawned], *, timeout: float = READY_SECONDS) -> None:
    """Wait for the API server; the error for a program that ended meanwhile has its name and its last error line."""
    deadline = time.monotonic() + timeout
    while not await api.is_ready():
        check_running(processes)
        if time.monotonic() > deadline:
            raise ClusterError(f"the API server was not ready within {timeout:.0f} s; see {processes[-1].log}")
        await asyncio.sleep(0.05)


def check_running(processes: Sequence[Spawned]) -> None:
    """Fail if one of these programs has ended."""
    for process in processes:
        code = process.popen.poll()
        if code is not None:
            cause = last_error(process.log.read_text(errors="replace"))
            raise ClusterError(f"{process.identity.name} ended with code {code}: {cause} (log: {process.log})")


async def _add_nodes(api: Api, count: int, watched: Callable[[], None]) -> None:
    nodes = [simulated_node(index) for index in range(count)]
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(api.apply(node))
    for node in nodes:  # outside of a group, so that the caller gets the error itself
        name = node["metadata"]["name"]
        what, path = f"node {name} becoming ready", f"/api/v1/nodes/{name}"
        await api.wait_for(what, path, is_usable, timeout=READY_SECONDS, meanwhile=watched)


def simulated_node(index: int) -> Document:
    """Return a large node that kwok plays."""
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
    """Return whether pods can be scheduled on a node: it is ready and has lost its initial taints."""
    return condition("Ready")(node) and not node["spec"].get("taints")


def _always(_document: Document) -> bool:
    return True
