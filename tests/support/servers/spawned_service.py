"""A service of some build as a process that tests start, freeze and kill."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import httpx

from common.settings import Settings
from raybus_cli import child_processes
from support.servers.builds import THIS, Build
from support.servers.process import Process


class SpawnedService(Process):
    """`python -m MODULE` as a process; it can be started again after its end."""

    def __init__(
        self,
        module: str,
        access: Settings,
        kubeconfig: Path,
        namespace: str,
        *,
        build: Build = THIS,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._command = [*build.start, module]
        self._log = log
        self._port = 0
        self._environment = {
            **os.environ,
            "RAYBUS_NATS_URL": access.nats_url,
            "RAYBUS_NATS_SEED_FILE": str(access.nats_seed_file or ""),
            "RAYBUS_NATS_CA_FILE": str(access.nats_ca_file or ""),
            "RAYBUS_KUBECONFIG": str(kubeconfig),
            "RAYBUS_NAMESPACE": namespace,
            **(environment or {}),
            **build.environment,
        }

    def start(self) -> None:
        """Start the process, which answers on a free port; its output is appended to the log, if
        there is one.
        """
        (self._port,) = child_processes.find_free_ports(1)
        environment = {**self._environment, "RAYBUS_HTTP_PORT": str(self._port)}
        if self._log is None:
            self.spawn(self._command, env=environment)
            return
        with self._log.open("ab") as out:
            self.spawn(self._command, out=out, env=environment)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.running.send_signal(number)

    @property
    def reported(self) -> str:
        """Return the log of the process."""
        assert self._log is not None
        return self._log.read_text()

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an answer; status 0 if there is none."""
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            try:
                answer = await client.get(f"http://127.0.0.1:{self._port}{path}")
            except httpx.TransportError:
                return 0, ""
        return answer.status_code, answer.text

    async def is_ready(self) -> bool:
        return await self.not_ready_because() == ""

    async def not_ready_because(self) -> str:
        """Return the reason why the process is not ready; empty if it is ready."""
        status, text = await self.get("/readyz")
        return "" if status == 200 else text or "it does not answer"

    async def until_ready(self, *, within: float = 60.0) -> None:
        """Wait until the process is ready."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while why := await self.not_ready_because():
            assert loop.time() < deadline, f"{self._command[-1]} is not ready: {why}"
            await asyncio.sleep(0.05)

    async def metric(self, name: str) -> float:
        """Return the sum of a metric's series."""
        _, text = await self.get("/metrics")
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith((f"{name} ", f"{name}{{"))
        )
