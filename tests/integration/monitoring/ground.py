"""The basis of the runs of this folder: the real stack, and a real Prometheus.

The stack is that of the chaos runs (API server, etcd, NATS with users and TLS, services as
processes behind proxies, simulated pods, fake Ray heads). Prometheus reads its targets from a file
that follows the fleet, with the labels of deploy/monitoring/scrape.yaml.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from chaos import stack
from chaos.schedule import RECONCILERS, WATCHER
from chaos.stack import Stack
from support.servers import prometheus
from support.servers.fleet import NAMESPACE, Observed, Replica
from support.servers.prometheus import Intervals, Prometheus
from support.waiting import eventually_true

SERVICES: Final = (WATCHER, *RECONCILERS)
TIMEOUT: Final = 180.0
FOLLOWED_SECONDS: Final = 0.2


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The stack and Prometheus, running."""

    stack: Stack
    server: Prometheus
    work: Path
    logs: Path
    emit: Callable[[str], None]
    more: list[Replica | Observed] = []
    """Targets of Prometheus besides the fleet."""


@asynccontextmanager
async def started(
    work: Path,
    logs: Path,
    emit: Callable[[str], None],
    *,
    rules: Path,
    intervals: Intervals | None = None,
) -> AsyncGenerator[Ground]:
    """Run one replica of each service, and once all are ready Prometheus, for the length of a block."""
    targets = work / "targets.json"
    jobs = [
        {"job_name": "raybus", "honor_labels": True, "file_sd_configs": [{"files": [str(targets)]}]}
    ]
    more: list[Replica | Observed] = []
    async with stack.started(work, logs, emit, is_audited=False) as found:
        for service in SERVICES:
            found.fleet.scale(service, 1)
        await found.fleet.ready()
        more.append(found.observed)
        _write_targets(targets, [*found.fleet.all(), *more])
        async with (
            prometheus.started(
                work / "prometheus", jobs=jobs, rules=rules, intervals=intervals
            ) as server,
            asyncio.TaskGroup() as group,
        ):
            following = group.create_task(_follow(targets, lambda: [*found.fleet.all(), *more]))
            try:
                yield Ground(stack=found, server=server, work=work, logs=logs, emit=emit, more=more)
            finally:
                following.cancel()


async def until(
    server: Prometheus, expression: str, *, count: int = 1, within: float = TIMEOUT
) -> None:
    """Wait until an expression has this number of values."""

    async def holds() -> bool:
        return len(await server.query(expression)) >= count

    await eventually_true(holds, within=within, what=expression)


async def _follow(targets: Path, replicas: Callable[[], Iterable[Replica | Observed]]) -> None:
    """Write the targets anew whenever they are others."""
    while True:
        _write_targets(targets, replicas())
        await asyncio.sleep(FOLLOWED_SECONDS)


def _write_targets(targets: Path, replicas: Iterable[Replica | Observed]) -> None:
    reported = [
        {
            "targets": [f"127.0.0.1:{each.port}"],
            "labels": {"service": each.service, "pod": each.name, "namespace": NAMESPACE},
        }
        for each in replicas
    ]
    text = msgspec.json.encode(reported)
    if targets.exists() and targets.read_bytes() == text:
        return
    passing = targets.with_suffix(".passing")
    passing.write_bytes(text)
    passing.replace(targets)
