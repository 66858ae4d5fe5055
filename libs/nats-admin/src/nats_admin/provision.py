"""Sets NATS up: the streams, the server's configuration, keys and certificates.

    python -m nats_admin.provision streams [--watch] [--replicas N] [--outside-seed FILE]
    python -m nats_admin.provision keeper [--once] [--servers N] [--replicas N] ...
    python -m nats_admin.provision credentials --out DIR
    python -m nats_admin.provision key FILE

`streams` reads `RAYBUS_NATS_*` like a service. Once, as the user `provisioner`, it makes the streams and changes those that
differ; with `--watch`, as the user `keeper`, it stays and makes again what a lost volume took along, and may change or delete no
stream. `keeper` stands beside a server in a cluster: it does the same as `--watch`, writes the server's configuration from the
ConfigMaps of its namespace (`nats_admin.keeper`), has the server reload it, starts a server anew that a full disk has stopped,
and exports what the server reports of itself. `credentials` and `key`: `nats_admin.issue`.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog
import uvloop

from common import errors
from common.bus import nkeys, streams, subjects
from common.bus.access import Keys, MadeKey
from common.bus.nats import Bus, StreamInfo
from common.bus.nats import connect as connected
from common.bus.session import Incoming, Session
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.observability import logging
from common.runtime import process
from common.settings import Settings, identity_of
from nats_admin import issue, subscribers
from nats_admin.disk import DiskWatch
from nats_admin.keeper import Keeper, Place
from nats_admin.monitor import Monitor
from nats_admin.reload import Beside
from nats_admin.server_conf import Cluster, Server
from nats_admin.subscribers import Subscriber

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0
CONSUMERS_EVERY: Final = 10
"""Checks of the streams between two of the consumers, which are lost with their stream alone."""
START_SECONDS: Final = 60.0
"""Seconds for which the one-shot form waits for a server that is still starting."""
LONGEST_PAUSE: Final = 3600.0
"""Seconds for which an administrator can keep streams from being made."""
USER: Final = "provisioner"
KEEPER: Final = "keeper"
"""The user of `--watch`, which may make streams and not change them."""
OUTSIDE: Final = "-outside"
"""Suffix of the users in the account of external subscribers."""
SERVERS: Final = "nats-servers"
"""The headless Service that gives each server a name."""
MOST_SERVERS: Final = 7
ALLOWED_REPLICAS: Final = (1, 3, 5)


async def ensure(bus: Bus, wanted: Sequence[streams.Config], *, may_change: bool = False) -> list[str]:
    """Make the streams that are missing, and change those that differ if that is allowed; return how others differ."""
    wrong: list[str] = []
    for config in wanted:
        name = str(config["name"])
        try:
            info = await bus.stream(name)
        except errors.NotFound:
            await bus.api(f"STREAM.CREATE.{name}", config, StreamInfo)
            log.info("stream created", stream=name)
            continue
        found = streams.differences(config, info.config)
        if found and may_change:
            found = await _changed(bus, config, info, found)
        wrong += [f"stream {name}: {difference}" for difference in found]
    return wrong


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer as the server describes it."""

    config: dict[str, object]

    @property
    def filters(self) -> object:
        """The subjects that it delivers; the server writes a single one into a field of its own."""
        return self.config.get("filter_subjects") or [self.config.get("filter_subject")]


async def ensure_consumers(bus: Bus, wanted: Sequence[streams.Config]) -> None:
    """Make the missing consumers of named subscribers, and filter anew those with changed namespaces."""
    for config in wanted:
        name = f"{subjects.EVENTS_STREAM}.{config['name']}"
        with contextlib.suppress(errors.NotFound):
            info = await bus.api(f"CONSUMER.INFO.{name}", None, ConsumerInfo)
            if info.filters == config["filter_subjects"]:
                continue
        await bus.api(
            f"CONSUMER.CREATE.{name}", {"stream_name": subjects.EVENTS_STREAM, "config": config}, ConsumerInfo
        )
        log.info("consumer made", consumer=name, filters=config["filter_subjects"])


async def _changed(bus: Bus, config: streams.Config, info: StreamInfo, differences: Sequence[str]) -> list[str]:
    """Make a stream what it must be without losing what it holds; return what the server does not let us change."""
    name = str(config["name"])
    try:
        changed = await bus.api(f"STREAM.UPDATE.{name}", info.config | config, StreamInfo)
    except (errors.Rejected, errors.Unavailable) as problem:
        return [*differences, f"and cannot be changed: {problem}"]
    log.info("stream changed", stream=name, changes=list(differences))
    return streams.differences(config, changed.config)


class _Pause:
    """Time for which an administrator wants no stream to be made: to bring one back, it must not be there."""

    def __init__(self) -> None:
        self._until = float("-inf")
        self._session: Session | None = None

    async def listen(self, session: Session) -> None:
        """Subscribe to the administrator's messages, once for each connection."""
        if self._session is not session:
            self._session = session
            await session.listen(subjects.RECOVERY, self._receive)

    async def _receive(self, message: Incoming) -> None:
        text = message.data.decode(errors="replace").strip()
        seconds = min(float(text), LONGEST_PAUSE) if text.isdecimal() else 0.0
        self._until = asyncio.get_running_loop().time() + seconds
        log.warning("an administrator asks for no stream to be made", seconds=seconds)

    @property
    def is_on(self) -> bool:
        return asyncio.get_running_loop().time() < self._until


async def keep(bus: Bus, wanted: Sequence[streams.Config], consumers: Sequence[streams.Config] = ()) -> None:
    """Maintain the streams and consumers until cancelled, unless an administrator does; each problem is logged once."""
    known: list[str] = []
    pause = _Pause()
    for turn in itertools.count():
        await pause.listen(await bus.session())
        if pause.is_on:
            await asyncio.sleep(CHECK_SECONDS)
            continue
        try:
            problems = await ensure(bus, wanted)
            if turn % CONSUMERS_EVERY == 0:
                await ensure_consumers(bus, consumers)
        except errors.RaybusError as problem:
            problems = [str(problem)]
        for problem in problems:
            if problem not in known:
                log.error("a stream is not as it must be", problem=problem)
        known = problems
        await asyncio.sleep(CHECK_SECONDS)


class _Account(msgspec.Struct, frozen=True):
    """An account with streams to maintain, and the user for it."""

    settings: Settings
    wanted: list[streams.Config]
    consumers: list[streams.Config] = []
    keys: Keys | None = None
    """The keys that the user shows to the server, if the settings name none."""


def _accounts(settings: Settings, options: argparse.Namespace) -> list[_Account]:
    """Return our own account, and that of external subscribers, where the user of it has a key."""
    outside_seed: Path | None = options.outside_seed
    replicas: int = options.replicas
    named: tuple[Subscriber, ...] = options.subscribers
    own = _Account(settings, [streams.state(replicas=replicas), streams.events(replicas=replicas)])
    if outside_seed is None and not settings.nats_register_key:
        return [own]
    if outside_seed is not None and not outside_seed.is_file():
        raise errors.InvalidSpec(f"--outside-seed {outside_seed}: no such file; `credentials` makes it")
    outside = msgspec.structs.replace(settings, service=f"{settings.service}{OUTSIDE}", nats_seed_file=outside_seed)
    consumers = [each.consumer(replicas=replicas) for each in named]
    return [own, _Account(outside, [streams.events_mirror(replicas=replicas)], consumers)]


async def _watch(accounts: Sequence[_Account], settings: Settings, options: argparse.Namespace) -> None:
    """Maintain the streams, and export the metrics of the server if that is asked for."""
    monitor: str = options.server_monitor
    async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
        for account in accounts:
            bus = await stack.enter_async_context(connected(account.settings, account.keys))
            group.create_task(keep(bus, account.wanted, account.consumers))
        if options.metrics:
            group.create_task(Monitor(monitor).run(settings.http_port))
        await asyncio.Event().wait()


async def _keep(settings: Settings, options: argparse.Namespace) -> None:
    """Maintain the server in the same pod, and its streams."""
    place = _place(settings, options)
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent="raybus-keeper")
    try:
        if options.once:
            nobody = {KEEPER: nkeys.public_key(nkeys.new_seed())}
            await Keeper(kube, place, SystemClock(), nobody).write_once()
            return
        accounts, own_keys = _with_keys(_accounts(settings, options), place)
        async with asyncio.TaskGroup() as group:
            group.create_task(Keeper(kube, place, SystemClock(), own_keys).run())
            group.create_task(_watch(accounts, settings, options))
            group.create_task(DiskWatch(place.beside).run())
    finally:
        await kube.close()


def _with_keys(accounts: Sequence[_Account], place: Place) -> tuple[list[_Account], dict[str, str]]:
    """Give each account a key of this process; return the public keys by user as well."""

    async def authority(_public_key: str) -> str:
        """Return the authority of our own server; the keeper itself writes our keys into its configuration."""
        return (place.beside.folder / "ca.crt").read_text()

    async def nothing() -> None:
        return

    keys = [MadeKey(each.settings, authority, nothing) for each in accounts]
    with_keys = [msgspec.structs.replace(each, keys=key) for each, key in zip(accounts, keys, strict=True)]
    return with_keys, {each.settings.service: key.public for each, key in zip(accounts, keys, strict=True)}


def _place(settings: Settings, options: argparse.Namespace) -> Place:
    count: int = options.servers
    hosts = [f"nats-{number}.{SERVERS}" for number in range(count)] if count > 1 else []
    folder: Path = options.server_folder
    monitor: str = options.server_monitor
    server = Server(
        folder=str(folder),
        store=options.store,
        host=options.host,
        port=urlsplit(settings.nats_url).port or 4222,
        monitoring_port=urlsplit(monitor).port,
        name="$NATS_SERVER_NAME" if hosts else '"nats"',
        pid_file=str(options.server_pid),
        max_store=options.max_store,
        sync_interval=options.sync_interval,
        subscribers=options.subscribers,
        cluster=Cluster(routes=tuple(f"{host}:6222" for host in hosts)) if hosts else None,
    )
    space = settings.namespace
    service = ["nats", f"nats.{space}", f"nats.{space}.svc", f"nats.{space}.svc.{settings.cluster_domain}"]
    return Place(
        beside=Beside(folder=folder, pid_file=options.server_pid, monitor=monitor),
        volume=options.server_volume,
        given=options.server_certificate,
        namespace=space,
        entry=identity_of(settings),
        names=[*service, *hosts, "localhost", "127.0.0.1"],
        server=server,
    )


async def _once(accounts: Sequence[_Account]) -> int:
    """Create what is missing; return 1 and name each field if a stream is not as it must be."""
    problems: list[str] = []
    for account in accounts:
        async with connected(account.settings) as bus:
            try:
                async with asyncio.timeout(START_SECONDS):
                    await bus.session()
            except TimeoutError:
                raise errors.Unavailable(bus.problem or "NATS does not answer") from None
            problems += await ensure(bus, account.wanted, may_change=True)
            await ensure_consumers(bus, account.consumers)
    for problem in problems:
        sys.stderr.write(
            f"{problem}; delete the stream, it is made anew (RAY_STATE is filled again, old events are gone)\n"
        )
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nats_admin.provision", description="Set NATS up for raybus.")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("streams", help="make the streams, and change those that differ")
    make.add_argument("--watch", action="store_true", help="stay, and make them again when the volume is lost")
    _add_stream_arguments(make)
    subscribers.add_argument(make)
    beside = commands.add_parser("keeper", help="maintain the server in the same pod, in a cluster, and its streams")
    beside.add_argument(
        "--once", action="store_true", help="write the server's files and end, before the server starts"
    )
    beside.add_argument("--servers", type=_servers, default=1, metavar="N", help="how many form a cluster")
    beside.add_argument("--store", metavar="DIR", default="/data/jetstream", help="where the server keeps its streams")
    for option, default, text in (
        ("--server-folder", "/etc/nats", "where the server reads its files"),
        ("--server-volume", "/data/tls", "where its key and certificate are kept over restarts"),
        ("--server-certificate", "/etc/nats-certificate", "tls.crt, tls.key and ca.crt that the installer brings"),
        ("--server-pid", "/run/nats/nats.pid", "where it writes its process id"),
    ):
        beside.add_argument(option, type=Path, metavar="PATH", default=Path(default), help=text)
    _add_stream_arguments(beside)
    issue.add_server_arguments(beside)
    issue.add_key_arguments(commands.add_parser("key", help="make a private key, and print its public key"))
    issue.add_arguments(
        commands.add_parser("credentials", help="make keys, certificates and configuration in a folder")
    )
    return parser


def _add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server-monitor", metavar="URL", default="http://127.0.0.1:8222")
    parser.add_argument("--metrics", action="store_true", help="export the server's metrics on RAYBUS_HTTP_PORT")
    parser.add_argument("--replicas", type=_replicas, default=1, metavar="N", help="on how many servers each is kept")
    parser.add_argument(
        "--outside-seed",
        type=Path,
        help="seed of the user in the account of external subscribers, to mirror the events",
    )


def _servers(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SERVERS or int(text) % 2 == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1, or 3, 5 or 7 for a cluster")
    return int(text)


def _replicas(text: str) -> int:
    if not text.isdecimal() or int(text) not in ALLOWED_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1, 3 or 5")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "credentials":
            return issue.run(options)
        if options.command == "key":
            return issue.make_key(options)
        if options.command == "keeper":
            return process.run(KEEPER, lambda settings: _keep(settings, options))
        if options.watch:
            return process.run(KEEPER, lambda settings: _watch(_accounts(settings, options), settings, options))
        settings = Settings.from_environment(USER, os.environ)
        logging.configure(USER, level=settings.log_level)
        return uvloop.run(_once(_accounts(settings, options)))
    except (errors.RaybusError, OSError) as problem:
        sys.stderr.write(f"provision: {problem}\n")
        return process.MISCONFIGURED if isinstance(problem, errors.InvalidSpec) else process.FAILED


if __name__ == "__main__":
    sys.exit(main())
