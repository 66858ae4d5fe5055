"""The steps of `raybus up`: reach the API server, start NATS, then the services, wait for a signal, end everything.

Standard output gets one line, `{"ready": true, "pids": {…}}`, when all services answer /readyz with 200 for the first time.
A signal ends the services first, since they release their Leases, and then NATS; in all it takes less than 10 s.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from common import errors
from localcluster import ports
from raybus_cli import stopping
from raybus_cli.up import children, programs, surroundings
from raybus_cli.up.children import Child
from raybus_cli.up.options import MODULES, Options
from raybus_cli.up.programs import NATS, PROVISIONER, BusAccess
from raybus_cli.up.readiness import Readiness

SERVICES_STOP_SECONDS: Final = 7.0
BUS_STOP_SECONDS: Final = 1.5


class Up:
    """One run."""

    def __init__(self, options: Options, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._bus: list[Child] = []
        self._services: list[Child] = []
        self._replicas: dict[str, list[Child]] = {}

    async def run(self) -> None:
        """Run until a signal; raise `InvalidSpec` or another of our errors when it cannot go on."""
        with ExitStack() as stack:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(stopping.wait())
                    group.create_task(self._live(group, stack))
            except* stopping.Stopped:
                report("stopping")
            finally:
                await asyncio.shield(self._stop())

    async def _live(self, group: asyncio.TaskGroup, stack: ExitStack) -> None:
        await surroundings.reach_api_server(self._options.kubeconfig, report)
        count = sum(self._options.replicas.get(name, 1) for name in MODULES)
        nats_port, *numbers = ports.free(1 + count)
        bus = await self._start_bus(group, stack, nats_port)
        replicas = programs.replicas(self._options, numbers, run=f"up-{os.getpid()}")
        for each in replicas:
            program = programs.service(each, bus, environment=self._environment, options=self._options)
            self._replicas.setdefault(each.service, []).append(
                self._keep(group, Child(program, report), self._services)
            )
        addresses = ", ".join(f"{each.name} http://127.0.0.1:{each.port}" for each in replicas)
        report(f"starting: {addresses}")
        await Readiness({each.name: each.port for each in replicas}, report).watch(self._print_ready)

    async def _start_bus(self, group: asyncio.TaskGroup, stack: ExitStack, port: int) -> BusAccess:
        options = self._options
        if options.nats is not None:
            bus = BusAccess(url=options.nats, credentials=options.nats_credentials)
        else:
            folder = options.data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raybus-up-")))
            await surroundings.prepare_nats(folder, port)
            server = programs.nats_server(
                surroundings.nats_binary(), folder, environment=self._environment, log_dir=options.log_dir
            )
            self._keep(group, Child(server, report), self._bus)
            if not await surroundings.listening(port):
                raise errors.Unavailable(
                    f"nats-server does not listen on 127.0.0.1:{port}; see its log, or use --nats URL"
                )
            bus = BusAccess(url=f"tls://127.0.0.1:{port}", credentials=folder)
        program = programs.provisioner(bus, environment=self._environment, options=options)
        self._keep(group, Child(program, report), self._services)
        return bus

    def _keep(self, group: asyncio.TaskGroup, child: Child, kept: list[Child]) -> Child:
        kept.append(child)
        group.create_task(child.keep())
        return child

    def _print_ready(self) -> None:
        around = [child for child in (*self._bus, *self._services) if child.program.name in {NATS, PROVISIONER}]
        pids: dict[str, int | list[int]] = {child.program.name: child.pid for child in around}
        for service, replicas in self._replicas.items():
            pids[service] = replicas[0].pid if len(replicas) == 1 else [child.pid for child in replicas]
        sys.stdout.write(msgspec.json.encode({"ready": True, "pids": pids}).decode() + "\n")
        sys.stdout.flush()

    async def _stop(self) -> None:
        await children.stop(self._services, timeout=SERVICES_STOP_SECONDS)
        await children.stop(self._bus, timeout=BUS_STOP_SECONDS)


def report(line: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"raybus up: {line}\n")
    sys.stderr.flush()
