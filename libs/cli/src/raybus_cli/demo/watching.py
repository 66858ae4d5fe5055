"""Observes the cluster and the load while the demo runs."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE
from raybus_cli.demo import tally
from raybus_cli.demo.cluster_state import ClusterList, ClusterState, PodList, Service
from raybus_cli.demo.kubectl import Kubectl
from raybus_cli.demo.tally import Answer

NAMESPACE = "raybus-demo"
SERVICE = "greeter"
RAYBUS_NAMESPACE = "raybus"
LOAD_POD = "load"
POLL_SECONDS = 0.5
"""Seconds between two observations."""


async def observe(kube: KubeClient) -> ClusterState:
    """Read the state for the live view; it is empty before the kinds are served."""
    try:
        service = msgspec.json.decode(await kube.get(RAY_SERVICE, NAMESPACE, SERVICE), type=Service)
    except errors.NotFound:
        service = None
    try:
        clusters = msgspec.json.decode(await kube.list(RAY_CLUSTER, NAMESPACE), type=ClusterList).items
    except errors.NotFound:
        clusters = []
    pods = msgspec.json.decode(await kube.list(POD, NAMESPACE), type=PodList).items
    raybus = msgspec.json.decode(await kube.list(POD, RAYBUS_NAMESPACE), type=PodList).items
    return ClusterState(
        service=service,
        clusters=tuple(cluster.metadata.name for cluster in clusters),
        pods=tuple(pod for pod in pods if "ray.io/cluster" in pod.metadata.labels),
        raybus=tuple(raybus),
        load=next((pod for pod in pods if pod.metadata.name == LOAD_POD), None),
    )


class Watcher:
    """The last state and every answer so far; `wait` returns when the state satisfies a condition."""

    def __init__(self, kube: KubeClient, *, on_update: Callable[["Watcher"], None]) -> None:
        self._kube = kube
        self._on_update = on_update
        self.state = ClusterState()
        self.answers: list[Answer] = []

    async def wait(self, what: str, holds: Callable[[ClusterState], bool], *, timeout: float) -> None:
        """Observe until a condition holds; the error names what did not happen within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await self.update()
                    if holds(self.state):
                        return
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise errors.Unavailable(f"{what} did not happen within {timeout:.0f} s{self._why()}") from None

    async def update(self) -> None:
        """Observe once; an API server that does not answer leaves the last state."""
        with contextlib.suppress(errors.Retryable):
            self.state = await observe(self._kube)
        self._on_update(self)

    async def rest(self, seconds: float) -> None:
        """Go on observing for a while."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await self.update()
            await asyncio.sleep(POLL_SECONDS)

    async def read_load(self, kubectl: Kubectl) -> None:
        """Take in the load's output until it ends."""
        command = ("logs", "-n", NAMESPACE, "-f", f"pod/{LOAD_POD}")
        async with kubectl.follow(*command) as lines:
            async for line in lines:
                self.answers += tally.read([line])

    def _why(self) -> str:
        service = self.state.service
        if service is None:
            return ""
        conditions = [f"{each.type} {each.status}: {each.message or each.reason}" for each in service.status.conditions]
        return "; " + "; ".join(conditions) if conditions else ""
