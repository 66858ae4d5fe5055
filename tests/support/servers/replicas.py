"""Replicas of one service as processes, and the partitions in their Leases."""

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import msgspec

from common import labels
from common.kube.client import KubeClient
from common.kube.resources import LEASE
from common.runtime import ownership
from raybus_cli import child_processes
from raybus_cli.child_processes import bind_to_parent
from support.servers.builds import THIS, Build
from support.servers.relayed import Secured

EMPTY: Final[frozenset[int]] = frozenset()


class Replica:
    """One process."""

    def __init__(self, name: str, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.process = process
        self._port = port
        self._log = log

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    @property
    def reported(self) -> str:
        """Return its log."""
        return self._log.read_text()

    async def is_ready(self) -> bool:
        """Ask it."""
        return (await self._get("/readyz")).status_code == 200

    async def not_ready_because(self) -> str:
        """Return what keeps it from being ready; empty when nothing does."""
        answer = await self._get("/readyz")
        return "" if answer.status_code == 200 else answer.text or "it does not answer"

    async def metric(self, name: str) -> float:
        """Return one of its metrics, all series added up."""
        lines = (await self._get("/metrics")).text.splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"{name} ", f"{name}{{"))
        )

    async def _get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            try:
                return await http.get(f"http://127.0.0.1:{self._port}{path}")
            except httpx.HTTPError:
                return httpx.Response(503)


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
        """All replicas, also those that a test has ended."""

    def start(self, folder: Path, name: str = "", *, build: Build = THIS) -> Replica:
        """Start one more."""
        name = name or f"{self._service}-{len(self.started) + 1}"
        (port,) = child_processes.free_ports(1)
        access = self._secured.settings(self._service)
        environment = {
            **os.environ,
            "RAYBUS_NATS_URL": access.nats_url,
            "RAYBUS_NATS_SEED_FILE": str(access.nats_seed_file),
            "RAYBUS_NATS_CA_FILE": str(access.nats_ca_file),
            "RAYBUS_KUBECONFIG": str(self._kubeconfig),
            "RAYBUS_NAMESPACE": self._namespace,
            "RAYBUS_IDENTITY": name,
            "RAYBUS_HTTP_PORT": str(port),
            "RAYBUS_USE_KUBERNETES_PROXY": "true",
            **build.environment,
        }
        log = folder / f"{name}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                bind_to_parent([*build.start, self._module]), env=environment, stderr=file
            )
        replica = Replica(name, port, process, log)
        self.running.append(replica)
        self.started.append(replica)
        return replica

    def end(self, replica: Replica, number: signal.Signals) -> None:
        """Send a signal that ends it."""
        replica.send_signal(number)
        self.running.remove(replica)

    async def held(self) -> dict[str, frozenset[int]]:
        """Return what each Lease names, by identity."""
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
        """Return whether all that run, and nobody else, hold every partition once and evenly, and are ready."""
        held = await self.held()
        if held.keys() != {each.name for each in self.running}:
            return False
        parts = list(held.values())
        is_even = max(map(len, parts)) - min(map(len, parts)) <= 1
        is_whole = sorted(each for part in parts for each in part) == sorted(ownership.ALL)
        return is_even and is_whole and all([await each.is_ready() for each in self.running])


@contextmanager
def ended(replicas: Replicas) -> Generator[Replicas]:
    """Leave no process behind."""
    try:
        yield replicas
    finally:
        for replica in replicas.started:
            replica.process.kill()
        for replica in replicas.started:
            replica.process.wait()
