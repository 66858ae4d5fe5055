"""Replicas of one service as processes, and the partitions in their Leases."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from common import labels
from common.kube.client import KubeClient
from common.kube.resources import LEASE
from common.runtime import ownership
from support.servers.builds import THIS, Build
from support.servers.relayed import Secured
from support.servers.spawned_service import SpawnedService

STOP_SECONDS: Final = 15.0
EMPTY: Final[frozenset[int]] = frozenset()


class Replica(SpawnedService):
    """One replica as a process."""

    name = ""


class Replicas:
    """All replicas of a service in one namespace."""

    def __init__(
        self, module: str, kube: KubeClient, secured: Secured, kubeconfig: Path, namespace: str
    ) -> None:
        self._module = module
        self._service = module.replace("_", "-")
        self._kube = kube
        self._secured = secured
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self.running: list[Replica] = []
        self.started: list[Replica] = []
        """All replicas that were started, including those that a test has ended."""

    def start(self, folder: Path, name: str = "", *, build: Build = THIS) -> Replica:
        """Start another replica."""
        name = name or f"{self._service}-{len(self.started) + 1}"
        replica = Replica(
            self._module,
            self._secured.settings(self._service),
            self._kubeconfig,
            self._namespace,
            build=build,
            log=folder / f"{name}.log",
            environment={"RAYBUS_IDENTITY": name, "RAYBUS_USE_KUBERNETES_PROXY": "true"},
        )
        replica.name = name
        replica.start()
        self.running.append(replica)
        self.started.append(replica)
        return replica

    def end(self, replica: Replica, number: signal.Signals) -> None:
        """Send a replica a signal that ends it."""
        replica.send_signal(number)
        self.running.remove(replica)

    async def held(self) -> dict[str, frozenset[int]]:
        """Return the partitions in each Lease, by identity."""
        selector = f"{labels.REPLICA_OF}={self._service}"
        answer = await self._kube.list(LEASE, self._namespace, label_selector=selector)
        return {
            each["spec"]["holderIdentity"]: ownership.parse_partitions(
                each["metadata"]["annotations"][labels.PARTITIONS]
            )
            or EMPTY
            for each in msgspec.json.decode(answer)["items"]
        }

    async def are_at_rest(self) -> bool:
        """Return whether the running replicas, and no others, hold each partition exactly once,
        evenly, and are ready.
        """
        held = await self.held()
        if held.keys() != {each.name for each in self.running}:
            return False
        parts = list(held.values())
        is_even = max(map(len, parts)) - min(map(len, parts)) <= 1
        is_whole = sorted(each for part in parts for each in part) == sorted(ownership.ALL)
        return is_even and is_whole and all([await each.is_ready() for each in self.running])


@contextmanager
def ended(replicas: Replicas) -> Generator[Replicas]:
    """End all processes after the block."""
    try:
        yield replicas
    finally:
        for replica in replicas.started:
            replica.end(signal.SIGKILL, within=STOP_SECONDS)
