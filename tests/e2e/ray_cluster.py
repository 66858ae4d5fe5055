"""A small RayCluster of real Ray: its manifest, its pods, and programs that run on its head."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from common.api.core import Pod
from common.api.opaque import Json
from common.kube.resources import POD
from localcluster.demo.cluster_state import PodList
from support.waiting import eventually_true

from .conftest import Rig

NAMESPACE = "default"
IMAGE = "docker.io/rayproject/ray:2.60.0"
ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray gives its workers the lowest priority but four, and other pods of the same two cores would starve them.
    "RAY_worker_niceness": "0",
    # Nothing is served here, so Ray's own drain (30 s) would only cost time.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}


def a_template(name: str) -> Json:
    """Return the pod template of a head or worker that asks for a tenth of a processor."""
    container = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": key, "value": value} for key, value in ENV.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}},
    }
    return {"spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}


def a_group(name: str, **fields: object) -> Json:
    """Return a worker group of one worker with one processor for Ray; `fields` change or add to it."""
    params = {"num-cpus": "1", "object-store-memory": "100000000"}
    group = {
        "groupName": name,
        "replicas": 1,
        "minReplicas": 0,
        "maxReplicas": 2,
        "rayStartParams": params,
        "template": a_template("ray-worker"),
    }
    return {**group, **fields}


def a_cluster(name: str, *groups: Json, **fields: object) -> Json:
    """Return a RayCluster with a head that takes no work; `fields` go into its spec."""
    params = {"num-cpus": "0", "object-store-memory": "100000000"}
    head = {"rayStartParams": params, "template": a_template("ray-head")}
    spec = {
        "rayVersion": "2.60.0",
        "headGroupSpec": head,
        "workerGroupSpecs": list(groups),
        **fields,
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


class RunningCluster:
    """A RayCluster on the rig."""

    def __init__(self, rig: Rig, name: str) -> None:
        self._rig = rig
        self.name = name

    async def pods(self, *, group: str | None = None) -> list[Pod]:
        """Return the pods that Ray runs in (of one group: `headgroup` or a worker group), by name."""
        selector = f"ray.io/cluster={self.name},ray.io/is-ray-node=yes" + (
            f",ray.io/group={group}" if group else ""
        )
        body = await self._rig.kube.list(POD, NAMESPACE, label_selector=selector)
        return sorted(
            msgspec.json.decode(body, type=PodList).items, key=lambda pod: pod.metadata.name
        )

    async def head(self) -> Pod:
        """Return the one head pod."""
        (head,) = await self.pods(group="headgroup")
        return head

    async def wait_for(self, *, within: float = 180, **groups: int) -> None:
        """Wait until the head, and so many workers of each group named, run and are ready, and no others are there."""

        async def all_run() -> bool:
            pods = await self.pods()
            wanted = {"headgroup": 1, **groups}
            found = [pod.metadata.labels["ray.io/group"] for pod in pods]
            well = all(
                pod.is_running_and_ready and pod.metadata.deletion_timestamp is None for pod in pods
            )
            return well and sorted(found) == sorted(
                group for group, number in wanted.items() for _ in range(number)
            )

        await eventually_true(
            all_run, within=within, what=f"cluster {self.name} having {groups} ready"
        )

    async def apply(self, manifest: Json) -> None:
        """Apply a manifest as a user does."""
        await self._rig.kubectl.run(
            "apply", "-f", "-", stdin=msgspec.json.encode(manifest).decode()
        )

    async def run(self, program: str) -> str:
        """Run a Python program on the head, connected to Ray in the namespace `tests`; return what it printed."""
        connect = "import ray; ray.init(address='auto', namespace='tests', log_to_driver=False, logging_level='error')\n"
        head = (await self.head()).metadata.name
        command = (
            "exec",
            "-n",
            NAMESPACE,
            head,
            "-c",
            "ray-head",
            "--",
            "python",
            "-c",
            connect + program,
        )
        return (await self._rig.kubectl.run(*command)).strip()

    async def kill(self, pod: Pod) -> None:
        """Delete a pod at once, as the loss of its node does."""
        where = ("-n", NAMESPACE, pod.metadata.name)
        await self._rig.kubectl.run("delete", "pod", *where, "--grace-period=0", "--force")

    async def is_empty(self) -> bool:
        """Return whether no pod remains."""
        return not await self.pods()


@asynccontextmanager
async def running(
    rig: Rig, manifest: Json, *, within: float = 400
) -> AsyncGenerator[RunningCluster]:
    """Run a cluster during a `with` block of at most `within` seconds; its pods are gone
    afterwards.
    """
    cluster = RunningCluster(rig, manifest["metadata"]["name"])
    await cluster.apply(manifest)
    try:
        async with asyncio.timeout(within):
            yield cluster
    finally:
        await rig.kubectl.run(
            "delete", "raycluster", cluster.name, "-n", NAMESPACE, "--ignore-not-found"
        )
        await eventually_true(cluster.is_empty, within=90, what=f"the pods of {cluster.name} going")


def spread(pods: list[Pod]) -> dict[str, tuple[str, int]]:
    """Return uid and number of restarts of each pod's Ray container, to detect any change."""
    return {
        pod.metadata.name: (
            pod.metadata.uid,
            sum(each.restart_count for each in pod.status.container_statuses),
        )
        for pod in pods
    }
