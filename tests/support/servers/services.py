"""The four services as processes, each with the rights of its ServiceAccount."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from localcluster.control_plane import ControlPlane
from raybus_cli import child_processes
from raybus_cli.up import programs
from raybus_cli.up.programs import MODULES, BusAccess, Child, Options, Replica
from support.manifests import NAMESPACE
from support.servers.fleet import streams_kept


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One of them, running."""

    name: str
    child: Child
    port: int
    """Where it answers `/readyz` and `/metrics`."""


@asynccontextmanager
async def running(
    control_plane: ControlPlane,
    bus: BusAccess,
    logs: Path,
    emit: Callable[[str], None],
    *,
    watched: str = "",
) -> AsyncGenerator[list[Service]]:
    """Run them for the length of a block, in the namespaces that are watched (none stands for all); a log file for each in `logs`, which exists."""
    found: list[Service] = []
    for service, port in zip(MODULES, child_processes.free_ports(len(MODULES)), strict=True):
        options = Options(
            kubeconfig=await control_plane.kubeconfig_for_service_account(NAMESPACE, service),
            server=control_plane.server,
            namespace=NAMESPACE,
            watch_namespaces=watched,
            log_dir=logs,
        )
        replica = Replica(service=service, name=service, identity=service, port=port)
        program = programs.service(replica, bus, environment=os.environ, options=options)
        found.append(Service(name=service, child=Child(program, emit), port=port))
    async with streams_kept(bus, logs, emit), asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.child.keep()) for each in found]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await programs.stop([each.child for each in found], timeout=10.0)
