"""Observes the cluster during the demo: the RayService, its RayClusters, and all pods."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from common import errors
from common.api.core import Pod
from common.api.meta import ObjectMeta
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE
from localcluster import processes
from localcluster.demo import tally
from localcluster.demo.tally import LoadAnswer
from raybus_cli import child_processes


class Kubectl(msgspec.Struct, frozen=True, kw_only=True):
    """Runs kubectl with the kubeconfig of one cluster."""

    binary: Path
    kubeconfig: Path

    async def run(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl with these arguments and return its output.

        Raises `Rejected` with kubectl's error output if it fails.
        """
        done = await processes.run(
            self._build_argv(*args), stdin=None if stdin is None else stdin.encode()
        )
        if done.code != 0:
            raise errors.Rejected(f"kubectl {' '.join(args[:4])}: {done.errors.strip()}")
        return done.output

    @asynccontextmanager
    async def follow(self, *args: str) -> AsyncGenerator[AsyncIterator[str]]:
        """Run a kubectl command that does not end by itself, such as `logs -f`.

        Yields its output lines. The command is killed at the end of the `with` block.
        """
        pipe = asyncio.subprocess.PIPE
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *self._build_argv(*args), stdin=null, stdout=pipe, stderr=null
        )
        stdout = process.stdout
        if stdout is None:
            raise errors.Invariant("kubectl was started without a pipe")
        try:
            yield (line.decode(errors="replace") async for line in stdout)
        finally:
            await child_processes.end_child(process)

    def _build_argv(self, *args: str) -> list[str]:
        return [str(self.binary), "--kubeconfig", str(self.kubeconfig), *args]


class ServeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Status of the active or pending cluster of a RayService.

    Capacity and share of traffic are in percent; both are None without weighted routes.
    """

    ray_cluster_name: str = ""
    target_capacity: int | None = None
    traffic_routed_percent: int | None = None


class ObservedCondition(msgspec.Struct, frozen=True):
    """A condition of a RayService."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class ObservedStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a RayService's status that the demo reads."""

    service_status: str = ""
    active_service_status: ServeStatus = ServeStatus()
    pending_service_status: ServeStatus = ServeStatus()
    conditions: list[ObservedCondition] = []


class ObservedService(msgspec.Struct, frozen=True):
    """The fields of a RayService that the demo reads."""

    metadata: ObjectMeta
    status: ObservedStatus = ObservedStatus()

    def find_condition(self, kind: str) -> ObservedCondition | None:
        return next(
            (condition for condition in self.status.conditions if condition.type == kind), None
        )

    @property
    def is_ready(self) -> bool:
        """Whether the condition Ready is true."""
        ready = self.find_condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def is_upgrading(self) -> bool:
        """Whether the RayService has a pending cluster."""
        return bool(self.status.pending_service_status.ray_cluster_name)


class ObservedCluster(msgspec.Struct, frozen=True):
    """The fields of a RayCluster that the demo reads."""

    metadata: ObjectMeta


class ClusterList(msgspec.Struct, frozen=True):
    """A list response with RayClusters."""

    items: list[ObservedCluster]


class PodList(msgspec.Struct, frozen=True):
    """A list response with pods."""

    items: list[Pod]


class DemoState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster at one moment.

    `pods` are Ray's pods, `raybus` are the pods of raybus, and `load` is the pod that sends
    requests.
    """

    service: ObservedService | None = None
    clusters: tuple[str, ...] = ()
    pods: tuple[Pod, ...] = ()
    raybus: tuple[Pod, ...] = ()
    load: Pod | None = None

    @property
    def active(self) -> str:
        """Name of the active RayCluster; empty if there is none."""
        return self.service.status.active_service_status.ray_cluster_name if self.service else ""

    @property
    def pending(self) -> str:
        """Name of the pending RayCluster; empty if there is none."""
        return self.service.status.pending_service_status.ray_cluster_name if self.service else ""

    def find_role(self, cluster: str) -> str:
        """Return the role of a RayCluster in the upgrade: `active`, `pending` or `old`."""
        if cluster == self.active:
            return "active"
        return "pending" if cluster == self.pending else "old"


def describe_pod_state(pod: Pod) -> str:
    """Return the state of a pod as `kubectl get pods` shows it, but `Ready` for a ready pod."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    for status in pod.status.container_statuses:
        if status.state.waiting is not None and status.state.waiting.reason:
            return status.state.waiting.reason
    return "Ready" if pod.is_running_and_ready else pod.status.phase or "Pending"


NAMESPACE = "raybus-demo"
SERVICE = "greeter"
RAYBUS_NAMESPACE = "raybus"
LOAD_POD = "load"
POLL_SECONDS = 0.5
"""Seconds between two observations."""


async def observe(kube: KubeClient) -> DemoState:
    """Read the state of the cluster. Objects are missing if their CRD is not installed yet."""
    try:
        service = msgspec.json.decode(
            await kube.get(RAY_SERVICE, NAMESPACE, SERVICE), type=ObservedService
        )
    except errors.NotFound:
        service = None
    try:
        clusters = msgspec.json.decode(
            await kube.list(RAY_CLUSTER, NAMESPACE), type=ClusterList
        ).items
    except errors.NotFound:
        clusters = []
    pods = msgspec.json.decode(await kube.list(POD, NAMESPACE), type=PodList).items
    raybus = msgspec.json.decode(await kube.list(POD, RAYBUS_NAMESPACE), type=PodList).items
    return DemoState(
        service=service,
        clusters=tuple(cluster.metadata.name for cluster in clusters),
        pods=tuple(pod for pod in pods if "ray.io/cluster" in pod.metadata.labels),
        raybus=tuple(raybus),
        load=next((pod for pod in pods if pod.metadata.name == LOAD_POD), None),
    )


class Watcher:
    """Keeps the last observed state, and all results of the load's requests so far.

    `on_update` is called after each observation.
    """

    def __init__(self, kube: KubeClient, *, on_update: Callable[["Watcher"], None]) -> None:
        self._kube = kube
        self._on_update = on_update
        self.state = DemoState()
        self.answers: list[LoadAnswer] = []

    async def wait(self, what: str, holds: Callable[[DemoState], bool], *, timeout: float) -> None:
        """Observe the cluster until `holds` is true for its state.

        Raises `Unavailable` after `timeout` seconds. The error message contains `what`, a
        description of the awaited state.
        """
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await self.update()
                    if holds(self.state):
                        return
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise errors.Unavailable(
                f"{what} did not happen within {timeout:.0f} s{self._describe_state()}"
            ) from None

    async def update(self) -> None:
        """Observe the cluster once. The last state is kept if the API server does not answer."""
        with contextlib.suppress(errors.Retryable):
            self.state = await observe(self._kube)
        self._on_update(self)

    async def observe_for(self, seconds: float) -> None:
        """Observe the cluster repeatedly for this time."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await self.update()
            await asyncio.sleep(POLL_SECONDS)

    async def read_load(self, kubectl: Kubectl) -> None:
        """Follow the log of the pod that sends the load; add each request's result to `answers`."""
        command = ("logs", "-n", NAMESPACE, "-f", f"pod/{LOAD_POD}")
        async with kubectl.follow(*command) as lines:
            async for line in lines:
                self.answers += tally.read([line])

    def _describe_state(self) -> str:
        service = self.state.service
        if service is None:
            return ""
        conditions = [
            f"{condition.type} {condition.status}: {condition.message or condition.reason}"
            for condition in service.status.conditions
        ]
        return "; " + "; ".join(conditions) if conditions else ""
