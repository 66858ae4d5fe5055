"""How quickly do N RayClusters get ready, against the same pods and Services posted by a bare script in the same run?

    make bench [N=100]

A real API server, scheduler and NATS, simulated pods (kwok), the services as `raybus up` runs them. The floor is what the rig
needs without any operator; the ratio to it is the figure to quote, since machines differ.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from common.api.opaque import Json
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, SERVICE
from localcluster.control_plane import ControlPlane
from support.servers import raybus_up

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
NAMESPACE = "default"
WORKERS = 3
AT_ONCE = 12


class Metadata(msgspec.Struct, frozen=True):
    """The name of an object."""

    name: str


class ClusterStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How far a cluster is."""

    state: str = ""
    ready_worker_replicas: int = 0


class Cluster(msgspec.Struct, frozen=True):
    """A RayCluster as the benchmark sees it."""

    metadata: Metadata
    status: ClusterStatus = ClusterStatus()


class PodStatus(msgspec.Struct, frozen=True):
    """How far a pod is."""

    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod as the benchmark sees it."""

    metadata: Metadata
    status: PodStatus = PodStatus()


class Clusters(msgspec.Struct, frozen=True):
    """The answer to a list of RayClusters."""

    items: list[Cluster]


class Pods(msgspec.Struct, frozen=True):
    """The answer to a list of pods."""

    items: list[Pod]


class Audited(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the API server's audit log."""

    verb: str
    user_agent: str = ""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run showed; times in seconds, memory in MiB."""

    clusters: int
    pods: int
    floor_seconds: float
    raybus_seconds: float
    ratio: float
    requests_per_cluster: float
    cpu_seconds: dict[str, float]
    resident_mib: dict[str, float]


async def main(count: int) -> Figures:
    """Measure the floor, then raybus, on one control plane."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        started = ControlPlane.started(work / "cp", crds=CRDS, scheduler=True, kwok_nodes=1, audit=True)
        async with started as control_plane:
            kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="bench")
            try:
                floor = await measure_floor(kube, count)
                return await measure_raybus(kube, control_plane, work, count, floor)
            finally:
                await kube.close()


async def measure_floor(kube: KubeClient, count: int) -> float:
    """Post the same pods and Services as an operator would make, and wait until all pods run."""

    async def one(index: int) -> None:
        await kube.create(SERVICE, NAMESPACE, a_service(f"floor-{index}"))
        for pod in range(WORKERS + 1):
            await kube.create(POD, NAMESPACE, a_pod(f"floor-{index}-{pod}"))

    async def all_run() -> bool:
        pods = msgspec.json.decode(await kube.list(POD, NAMESPACE), type=Pods).items
        return sum(pod.status.phase == "Running" for pod in pods) == count * (WORKERS + 1)

    began = time.monotonic()
    await each(count, one)
    await until(all_run)
    seconds = time.monotonic() - began
    await kube.delete_collection(POD, NAMESPACE, label_selector="bench=floor")
    return seconds


async def measure_raybus(
    kube: KubeClient, control_plane: ControlPlane, work: Path, count: int, floor: float
) -> Figures:
    """Create the clusters with raybus running, and wait until all are ready."""
    with raybus_up.started(work / "up", "--kubeconfig", str(control_plane.kubeconfig)) as running:
        pids = (await running.ready(within=120)).pids
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        audited = control_plane.audit_log.stat().st_size
        began = time.monotonic()

        async def one(index: int) -> None:
            await kube.create(RAY_CLUSTER, NAMESPACE, a_cluster(f"c{index:05d}"))

        async def all_ready() -> bool:
            items = msgspec.json.decode(await kube.list(RAY_CLUSTER, NAMESPACE), type=Clusters).items
            return sum(is_ready(each) for each in items) == count

        await each(count, one)
        await until(all_ready)
        seconds = time.monotonic() - began
        requests = asked_by(control_plane.audit_log, audited, "raybus-cluster-reconciler")
        return Figures(
            clusters=count,
            pods=count * (WORKERS + 1),
            floor_seconds=round(floor, 2),
            raybus_seconds=round(seconds, 2),
            ratio=round(seconds / floor, 2),
            requests_per_cluster=round(requests / count, 1),
            cpu_seconds={name: round(cpu_seconds(pid) - before[name], 2) for name, pid in pids.items()},
            resident_mib={name: resident_mib(pid) for name, pid in pids.items()},
        )


async def each(count: int, work: Callable[[int], Coroutine[None, None, None]]) -> None:
    """Run a piece of work for 0 … count - 1, some at once."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def bounded(index: int) -> None:
        async with limit:
            await work(index)

    async with asyncio.TaskGroup() as group:
        for index in range(count):
            group.create_task(bounded(index))


async def until(check: Callable[[], Coroutine[None, None, bool]]) -> None:
    """Ask until it is so."""
    async with asyncio.timeout(600):
        while not await check():  # noqa: ASYNC110  (nobody could set an event: the other side is a server)
            await asyncio.sleep(0.25)


def is_ready(cluster: Cluster) -> bool:
    """Tell whether a cluster and all its workers are."""
    return cluster.status.state == "ready" and cluster.status.ready_worker_replicas >= WORKERS


def a_pod(name: str) -> Json:
    """Return a pod like those of a cluster."""
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    spec = {"containers": [{"name": "ray", "image": "ray", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"bench": "floor"}}, "spec": spec}


def a_service(name: str) -> Json:
    """Return a headless Service."""
    spec = {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def a_cluster(name: str) -> Json:
    """Return a RayCluster of a head and three workers."""
    template = {"spec": a_pod(name)["spec"]}
    group = {"groupName": "w", "replicas": WORKERS, "minReplicas": WORKERS, "maxReplicas": WORKERS}
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": template},
        "workerGroupSpecs": [{**group, "rayStartParams": {}, "template": template}],
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Return the memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def asked_by(log: Path, offset: int, agent: str) -> int:
    """Count an agent's requests in the audit log from an offset on."""
    with log.open("rb") as lines:
        lines.seek(offset)
        agents = Counter(msgspec.json.decode(line, type=Audited).user_agent.partition("/")[0] for line in lines)
    return agents[agent]


def table(figures: Figures) -> Table:
    """Return the figures as people read them."""
    shown = Table("figure", "value", title=f"{figures.clusters} RayClusters, {figures.pods} pods", title_justify="left")
    shown.add_row("floor: the same objects posted by a script", f"{figures.floor_seconds} s")
    shown.add_row("raybus: from the first apply until all are ready", f"{figures.raybus_seconds} s")
    shown.add_row("ratio", f"{figures.ratio}")
    shown.add_row("API requests of cluster-reconciler per cluster", f"{figures.requests_per_cluster}")
    for name in figures.cpu_seconds:
        shown.add_row(name, f"{figures.cpu_seconds[name]} s CPU, {figures.resident_mib[name]} MiB resident")
    return shown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=100, help="RayClusters to create")
    parser.add_argument("-o", choices=["text", "json"], default="text", help="how to print the figures")
    options = parser.parse_args()
    result = asyncio.run(main(options.n))
    if options.o == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result)).decode() + "\n")
    else:
        Console().print(table(result))
