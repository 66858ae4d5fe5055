"""Looks at the cluster and at the load while the demo runs."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE
from raybus_cli.demo import tally
from raybus_cli.demo.kubectl import Kubectl
from raybus_cli.demo.tally import Answer
from raybus_cli.demo.world import ClusterList, PodList, Service, World

NAMESPACE = "raybus-demo"
SERVICE = "greeter"
RAYBUS_NAMESPACE = "raybus"
LOAD_POD = "load"
LOOK_EVERY = 0.5
"""Seconds between looks."""


async def look(kube: KubeClient) -> World:
    """Read what the live view shows; before the kinds are served there is nothing to see."""
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
    return World(
        service=service,
        clusters=tuple(cluster.metadata.name for cluster in clusters),
        pods=tuple(pod for pod in pods if "ray.io/cluster" in pod.metadata.labels),
        raybus=tuple(raybus),
        load=next((pod for pod in pods if pod.metadata.name == LOAD_POD), None),
    )


class Watcher:
    """The last look and every answer so far; `wait` returns when a look is as wanted."""

    def __init__(self, kube: KubeClient, *, on_look: Callable[["Watcher"], None]) -> None:
        self._kube = kube
        self._on_look = on_look
        self.world = World()
        self.answers: list[Answer] = []

    async def wait(self, what: str, holds: Callable[[World], bool], *, patience: float) -> None:
        """Look until a look is as wanted; name what did not happen within `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                while True:
                    await self.look()
                    if holds(self.world):
                        return
                    await asyncio.sleep(LOOK_EVERY)
        except TimeoutError:
            raise errors.Unavailable(f"{what} did not happen within {patience:.0f} s{self._why()}") from None

    async def look(self) -> None:
        """Look once; an API server that does not answer leaves the last look."""
        with contextlib.suppress(errors.Retryable):
            self.world = await look(self._kube)
        self._on_look(self)

    async def rest(self, seconds: float) -> None:
        """Go on looking for a while."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await self.look()
            await asyncio.sleep(LOOK_EVERY)

    async def read_load(self, kubectl: Kubectl) -> None:
        """Take in the load's output until it ends."""
        command = ("logs", "-n", NAMESPACE, "-f", f"pod/{LOAD_POD}")
        async with kubectl.follow(*command) as lines:
            async for line in lines:
                self.answers += tally.read([line])

    def _why(self) -> str:
        service = self.world.service
        if service is None:
            return ""
        told = [f"{each.type} {each.status}: {each.message or each.reason}" for each in service.status.conditions]
        return "; " + "; ".join(told) if told else ""
