"""The operators that a benchmark compares: raybus as `raybus up` runs it, and peers."""

import argparse
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from bench import background, programs
from bench.programs import Pids
from bench.report import emit
from bench.rig import ALONE, Rig
from common.kube import resources
from raybus_cli.up.programs import BusAccess
from support.servers import raybus_up
from support.servers.fleet import NAMESPACE, Fleet, Ground, streams_kept
from support.servers.relayed import secured_nats

PROBE: Final = "probe"


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """A running operator that has made its first cluster ready.

    `pids` returns the ids of its processes.
    """

    name: str
    pids: Pids


class Contender(Protocol):
    """An operator that a benchmark can start on a control plane."""

    @property
    def name(self) -> str:
        """Name of the operator in tables."""
        ...

    @property
    def crds(self) -> Path | None:
        """Folder of the operator's CRDs; None for those of raybus."""
        ...

    def on(self, rig: Rig) -> AbstractAsyncContextManager[Operator]:
        """Run the operator during the `with` block.

        When the block begins, a first cluster is ready.
        """
        ...


class Raybus(msgspec.Struct, frozen=True):
    """The contender raybus: NATS and the five services with their default settings."""

    name: str = "raybus"
    crds: Path | None = None

    @asynccontextmanager
    async def on(self, rig: Rig) -> AsyncGenerator[Operator]:
        """Run raybus.

        The processes of the `Operator` are NATS and the services, not the local launcher.
        """
        with raybus_up.started(rig.work / "up", "--kubeconfig", str(rig.kubeconfig)) as running:
            pids = (await running.ready(within=120)).all
            await _probe(rig)
            yield Operator(name=self.name, pids=lambda: pids)


class Peer(msgspec.Struct, frozen=True):
    """Another operator: a shell command that finds the cluster through KUBECONFIG."""

    command: str
    crds: Path | None = None
    name: str = "peer"

    @asynccontextmanager
    async def on(self, rig: Rig) -> AsyncGenerator[Operator]:
        """Run the command.

        The processes of the `Operator` are the command and its descendants. Exits with the last
        line of the command's log if no cluster becomes ready.
        """
        log = rig.work / "peer.log"
        with self.running(rig.kubeconfig, log) as process:
            try:
                await _probe(rig)
            except TimeoutError:
                lines = log.read_text(errors="replace").splitlines()[-1:] or ["its log is empty"]
                raise SystemExit(
                    f"--peer {self.command!r}: no RayCluster gets ready; its last log line: "
                    f"{lines[0]}"
                ) from None
            yield Operator(name=self.name, pids=lambda: programs.tree(process.pid))

    @contextmanager
    def running(self, kubeconfig: Path, log: Path) -> Generator[subprocess.Popen[bytes]]:
        """Run the command against the cluster of `kubeconfig` during the `with` block.

        Its output goes to the file `log`.
        """
        process = _start(self.command, os.environ | {"KUBECONFIG": str(kubeconfig)}, log)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@asynccontextmanager
async def fleet_on(
    rig: Rig, logs: Path, *, use_fault_proxies: Callable[[str], bool] = lambda _service: False
) -> AsyncGenerator[tuple[Fleet, int]]:
    """Run NATS with its streams and an empty fleet; yield the fleet and the pid of NATS.

    A fleet starts and stops the processes of services. They reach the API server through a proxy if
    `use_fault_proxies` returns true for the service. `logs` is the folder of their logs.
    """
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await rig.kube.create(resources.NAMESPACE, None, body)
    async with secured_nats(rig.work / "nats") as secured:
        bus = BusAccess(url=secured.server.url, credentials=rig.work / "nats")
        ground = Ground(
            access=rig.control_plane.access,
            bus=bus,
            work=rig.work,
            log_dir=logs,
            use_fault_proxies=use_fault_proxies,
        )
        async with streams_kept(bus, logs, emit), Fleet(ground, emit).manned() as fleet:
            yield fleet, secured.server.pid


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    """Add the options `--peer` and `--peer-crds` to a parser."""
    parser.add_argument(
        "--peer",
        metavar="CMD",
        default="",
        help="another operator's command line, run on this machine; it reads KUBECONFIG",
    )
    parser.add_argument(
        "--peer-crds", metavar="DIR", type=Path, help="the definitions that the peer needs"
    )


def peer_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Peer | None:
    """Return the peer that the options name, or None.

    Exits if its folder of CRDs does not exist.
    """
    if options.peer_crds is not None and not options.peer_crds.is_dir():
        parser.error(f"--peer-crds {options.peer_crds}: no such folder")
    return Peer(options.peer, options.peer_crds) if options.peer else None


def _start(command: str, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        argv = ["/bin/sh", "-c", f"exec {command}"]
        return subprocess.Popen(
            argv, stdout=output, stderr=output, env=environment, start_new_session=True
        )


async def _probe(rig: Rig) -> None:
    """Wait until a first cluster is ready, so that the operator's start is not measured."""
    async with background.watching(rig, background.CLUSTERS, background.is_ready) as ready:
        await background.create_cluster(rig, ALONE, PROBE, workers=1)
        await ready.count(1)
