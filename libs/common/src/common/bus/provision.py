"""Sets NATS up: the streams, and the credentials and configuration of the server.

    python -m common.bus.provision streams [--watch] [--outside-seed FILE]
    python -m common.bus.provision credentials --out DIR [--name HOST …] [--mount DIR] [--store DIR] [--host ADDRESS]
    python -m common.bus.provision credentials --secrets NAMESPACE [--name HOST …]

`streams` reads `RAYBUS_NATS_*` like a service. With `--watch` it stays beside the server and creates again what a lost
volume took along, so that no service needs the right to create a stream. `credentials` keeps what exists.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog
import uvloop

from common import errors
from common.bus import credential_store, streams
from common.bus.credential_store import Folder, Secrets
from common.bus.nats import Bus, StreamInfo
from common.bus.nats import connect as connected
from common.bus.server_conf import Server
from common.kube.client import KubeClient
from common.observability import logging
from common.runtime import process
from common.runtime.clock import SystemClock
from common.runtime.settings import Settings

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 60.0
"""How long the one-shot form waits for a server that is still starting."""
USER: Final = "provisioner"
OUTSIDE_USER: Final = "provisioner-outside"


async def ensure(bus: Bus, wanted: Sequence[streams.Config]) -> list[str]:
    """Create the streams that are missing; return how those that exist differ from what they must be."""
    wrong: list[str] = []
    for config in wanted:
        name = str(config["name"])
        try:
            info = await bus.stream(name)
        except errors.NotFound:
            await bus.api(f"STREAM.CREATE.{name}", config, StreamInfo)
            log.info("stream created", stream=name)
            continue
        wrong += [f"stream {name}: {difference}" for difference in streams.differences(config, info.config)]
    return wrong


async def keep(bus: Bus, wanted: Sequence[streams.Config]) -> None:
    """Look after the streams until cancelled; each problem is logged once."""
    known: list[str] = []
    while True:
        await bus.session()
        try:
            problems = await ensure(bus, wanted)
        except errors.RaybusError as problem:
            problems = [str(problem)]
        for problem in problems:
            if problem not in known:
                log.error("a stream is not as it must be", problem=problem)
        known = problems
        await asyncio.sleep(CHECK_SECONDS)


class _Account(msgspec.Struct, frozen=True):
    """Whose streams are looked after, and as which user."""

    settings: Settings
    wanted: list[streams.Config]


def _accounts(settings: Settings, outside_seed: Path | None) -> list[_Account]:
    own = _Account(settings, [streams.state(), streams.events()])
    if outside_seed is None:
        return [own]
    if not outside_seed.is_file():
        raise errors.InvalidSpec(f"--outside-seed {outside_seed}: no such file; `credentials` makes it")
    outside = msgspec.structs.replace(settings, service=OUTSIDE_USER, nats_seed_file=outside_seed)
    return [own, _Account(outside, [streams.events_mirror()])]


async def _watch(accounts: Sequence[_Account]) -> None:
    async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
        for account in accounts:
            bus = await stack.enter_async_context(connected(account.settings))
            group.create_task(keep(bus, account.wanted))
        await asyncio.Event().wait()


async def _once(accounts: Sequence[_Account]) -> int:
    """Create what is missing; return 1 and name each field if a stream is not as it must be."""
    problems: list[str] = []
    for account in accounts:
        async with connected(account.settings) as bus:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await bus.session()
            except TimeoutError:
                raise errors.Unavailable(bus.problem or "NATS does not answer") from None
            problems += await ensure(bus, account.wanted)
    for problem in problems:
        sys.stderr.write(f"{problem}; delete the stream, it is filled again\n")
    return 1 if problems else 0


async def _credentials(options: argparse.Namespace) -> int:
    """Complete the credentials and say what was made."""
    now = SystemClock().now()
    if options.out is not None:
        folder = options.out.absolute()
        server = Server(
            folder=options.mount or str(folder), store=options.store or str(folder / "jetstream"), host=options.host
        )
        names = options.name or ["localhost", "127.0.0.1", "::1", "nats"]
        written = await credential_store.complete(Folder(folder), server, names=names, now=now)
        where = str(folder)
    else:
        space = options.secrets
        server = Server(
            folder=options.mount or "/etc/nats", store=options.store or "/data/jetstream", host=options.host
        )
        hosts = [
            "nats",
            f"nats.{space}",
            f"nats.{space}.svc",
            f"nats.{space}.svc.cluster.local",
            "localhost",
            "127.0.0.1",
        ]
        kube = await KubeClient.connect(kubeconfig=options.kubeconfig, user_agent="raybus-provision")
        try:
            written = await credential_store.complete(
                Secrets(kube, space), server, names=options.name or hosts, now=now
            )
        finally:
            await kube.close()
        where = f"namespace {space}"
    sys.stdout.write(f"NATS credentials in {where}: {', '.join(written) or 'nothing was missing'}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m common.bus.provision", description="Set NATS up for raybus.")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("streams", help="create the streams that are missing and check the others")
    make.add_argument("--watch", action="store_true", help="stay, and create them again when the volume is lost")
    make.add_argument(
        "--outside-seed", type=Path, help="seed of provisioner-outside, to mirror the events for outsiders"
    )
    give = commands.add_parser("credentials", help="make keys, certificates and the server's configuration")
    target = give.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, metavar="DIR", help="write files")
    target.add_argument("--secrets", metavar="NAMESPACE", help="write Secrets through the API server")
    give.add_argument("--kubeconfig", type=Path, help="for --secrets; default: the pod's ServiceAccount")
    give.add_argument("--name", action="append", metavar="HOST", help="a host name or address of the server; repeat")
    give.add_argument("--mount", metavar="DIR", help="where the server will find the files")
    give.add_argument("--store", metavar="DIR", help="where the server keeps its streams")
    give.add_argument("--host", default="0.0.0.0", help="the address that the server listens on")  # noqa: S104  (pods are reached from outside)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "credentials":
            return uvloop.run(_credentials(options))
        if options.watch:
            return process.run(USER, lambda settings: _watch(_accounts(settings, options.outside_seed)))
        settings = Settings.from_environment(USER, os.environ)
        logging.configure(USER, level=settings.log_level)
        return uvloop.run(_once(_accounts(settings, options.outside_seed)))
    except (errors.RaybusError, OSError) as problem:
        sys.stderr.write(f"provision: {problem}\n")
        return process.MISCONFIGURED if isinstance(problem, errors.InvalidSpec) else process.FAILED


if __name__ == "__main__":
    sys.exit(main())
