"""Makes the credentials of NATS, or replaces them: the command `python -m common.bus.provision credentials`.

A replacement takes two pauses, in which files reach who needs them. The command waits, tells what for, and may be
interrupted: whoever runs it next, with or without `--rotate`, is told what is left and carries it on.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from common import errors
from common.bus import credential_store, permissions, subscribers
from common.bus.credential_store import AUTHORITY, SERVER, USER, Folder, Secrets, Step, Store
from common.bus.server_conf import Cluster, Server
from common.kube.client import KubeClient
from common.runtime.clock import Clock, SystemClock

EVERYTHING: Final = "all"
TARGETS: Final = (*(user.name for user in permissions.USERS), "server", "authority", EVERYTHING)
SECRETS_OVERLAP: Final = 180.0
"""Seconds: a kubelet brings a changed Secret into a pod within about 90 s."""
FOLDER_OVERLAP: Final = 10.0
MOST_SERVERS: Final = 7
SERVERS: Final = "nats-servers"
"""The headless Service that gives each server a name."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where credentials are kept, for which server."""

    store: Store
    server: Server
    names: list[str]
    where: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, metavar="DIR", help="write files")
    target.add_argument("--secrets", metavar="NAMESPACE", help="write Secrets through the API server")
    parser.add_argument("--kubeconfig", type=Path, help="for --secrets; default: the pod's ServiceAccount")
    parser.add_argument("--name", action="append", metavar="HOST", help="a host name or address of the server; repeat")
    parser.add_argument("--mount", metavar="DIR", help="where the server will find the files")
    parser.add_argument("--store", metavar="DIR", help="where the server keeps its streams")
    parser.add_argument("--host", default="0.0.0.0", help="the address that the server listens on")  # noqa: S104  (pods are reached from outside)
    parser.add_argument(
        "--servers", type=_servers, default=1, metavar="N", help="for --secrets: how many form a cluster"
    )
    parser.add_argument(
        "--max-store", metavar="SIZE", help="how much JetStream may store on a server's disk, such as 8GB"
    )
    parser.add_argument(
        "--sync-interval", default="1s", metavar="TIME", help="how often writes are forced to the disk; or: always"
    )
    subscribers.add_argument(parser)
    parser.add_argument(
        "--rotate",
        action="append",
        default=[],
        choices=TARGETS,
        metavar="WHAT",
        help=f"replace it: {', '.join(TARGETS)}",
    )
    parser.add_argument(
        "--overlap", type=float, metavar="SECONDS", help="how long old and new are valid together in each phase"
    )


async def run(options: argparse.Namespace) -> int:
    """Complete the credentials, then replace what was asked for; say what was done."""
    clock = SystemClock()
    async with _target(options) as target:
        written = await credential_store.complete(target.store, target.server, names=target.names, now=clock.now())
        _say(f"NATS credentials in {target.where}: {', '.join(written) or 'nothing was missing'}")
        default = FOLDER_OVERLAP if options.out is not None else SECRETS_OVERLAP
        overlap = timedelta(seconds=default if options.overlap is None else options.overlap)
        if options.rotate:
            await _rotate(target, clock, begin=bundles(options.rotate), overlap=overlap)
    return 0


def bundles(targets: list[str]) -> frozenset[str]:
    """Return the bundles that hold what is to be replaced."""
    if EVERYTHING in targets:
        targets = [target for target in TARGETS if target != EVERYTHING]
    return frozenset({"server": SERVER, "authority": AUTHORITY}.get(target, USER + target) for target in targets)


async def _rotate(target: Target, clock: Clock, *, begin: frozenset[str], overlap: timedelta) -> None:
    while True:
        step = await credential_store.rotate(target.store, target.server, begin=begin, overlap=overlap, now=clock.now())
        begin = frozenset()
        _tell(step)
        if step.due is None:
            return
        await asyncio.sleep(max(0.0, (step.due - clock.now()).total_seconds()))


def _tell(step: Step) -> None:
    if step.written:
        _say(f"written: {', '.join(step.written)}")
    for bundle, phase in step.waiting.items():
        _say(f"  {bundle}: {phase}")
    _say("all keys are settled" if step.due is None else f"going on at {step.due:%H:%M:%S} UTC")


@contextlib.asynccontextmanager
async def _target(options: argparse.Namespace) -> AsyncGenerator[Target]:
    if options.out is not None:
        if options.servers != 1:
            raise errors.InvalidSpec("--servers is for --secrets alone: files describe one server")
        yield _folder(options)
        return
    kube = await KubeClient.connect(kubeconfig=options.kubeconfig, user_agent="raybus-provision")
    try:
        yield _secrets(options, kube)
    finally:
        await kube.close()


def _folder(options: argparse.Namespace) -> Target:
    folder: Path = options.out.absolute()
    server = Server(
        folder=options.mount or str(folder),
        store=options.store or str(folder / "jetstream"),
        host=options.host,
        max_store=options.max_store,
        sync_interval=options.sync_interval,
        subscribers=options.subscribers,
    )
    names = options.name or ["localhost", "127.0.0.1", "::1", "nats"]
    return Target(store=Folder(folder), server=server, names=names, where=str(folder))


def _secrets(options: argparse.Namespace, kube: KubeClient) -> Target:
    space: str = options.secrets
    hosts = [f"nats-{number}.{SERVERS}" for number in range(options.servers)] if options.servers > 1 else []
    server = Server(
        folder=options.mount or "/etc/nats",
        store=options.store or "/data/jetstream",
        host=options.host,
        name="$NATS_SERVER_NAME" if hosts else '"nats"',
        pid_file="/run/nats/nats.pid",
        max_store=options.max_store,
        sync_interval=options.sync_interval,
        subscribers=options.subscribers,
        cluster=Cluster(routes=tuple(f"{host}:6222" for host in hosts)) if hosts else None,
    )
    service = ["nats", f"nats.{space}", f"nats.{space}.svc", f"nats.{space}.svc.cluster.local"]
    names = options.name or [*service, *hosts, "localhost", "127.0.0.1"]
    return Target(store=Secrets(kube, space), server=server, names=names, where=f"namespace {space}")


def _servers(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SERVERS or int(text) % 2 == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1, or 3, 5 or 7 for a cluster")
    return int(text)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
