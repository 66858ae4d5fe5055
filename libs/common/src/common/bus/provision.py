"""Sets NATS up: the streams, and the credentials and configuration of the server.

    python -m common.bus.provision streams [--replicas N] [--outside-seed FILE]
    python -m common.bus.provision streams --watch [--replicas N] [--outside-seed FILE] [--server-folder DIR …] [--metrics]
    python -m common.bus.provision credentials --out DIR | --secrets NAMESPACE [--rotate WHAT …]

`streams` reads `RAYBUS_NATS_*` like a service. Once, as the user `provisioner`, it makes the streams and changes those that
differ. With `--watch`, as the user `keeper`, it stays beside the server, makes again what a lost volume took along, and has
the server read its files when they change, start anew when a full disk has stopped it, and with `--metrics` exports what the
server says of itself; it may change or delete no stream. `credentials`: `common.bus.issue`.
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

import msgspec
import structlog
import uvloop

from common import errors
from common.bus import issue, streams, subjects, subscribers
from common.bus.disk import DiskWatch
from common.bus.monitor import Monitor
from common.bus.nats import Bus, StreamInfo
from common.bus.nats import connect as connected
from common.bus.reload import Beside, Reloader
from common.bus.session import Incoming, Session
from common.bus.subscribers import Subscriber
from common.observability import logging
from common.runtime import process
from common.runtime.clock import SystemClock
from common.runtime.settings import Settings

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0
CONSUMERS_EVERY: Final = 10
"""Checks of the streams between two of the consumers, which are lost with their stream alone."""
PATIENCE_SECONDS: Final = 60.0
"""How long the one-shot form waits for a server that is still starting."""
LONGEST_PAUSE: Final = 3600.0
"""Seconds for which an administrator can keep streams from being made."""
USER: Final = "provisioner"
KEEPER: Final = "keeper"
"""The user of `--watch`, which may make streams and not change them."""
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
    """Make the consumers of named subscribers that are missing, and filter those anew whose namespaces were changed."""
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
    """How long an administrator wants no stream to be made: to bring one back, it must not be there."""

    def __init__(self) -> None:
        self._until = float("-inf")
        self._session: Session | None = None

    async def listen(self, session: Session) -> None:
        """Hear the administrator, once for each connection."""
        if self._session is not session:
            self._session = session
            await session.listen(subjects.RECOVERY, self._hear)

    async def _hear(self, message: Incoming) -> None:
        text = message.data.decode(errors="replace").strip()
        seconds = min(float(text), LONGEST_PAUSE) if text.isdecimal() else 0.0
        self._until = asyncio.get_running_loop().time() + seconds
        log.warning("an administrator asks for no stream to be made", seconds=seconds)

    @property
    def is_on(self) -> bool:
        return asyncio.get_running_loop().time() < self._until


async def keep(bus: Bus, wanted: Sequence[streams.Config], consumers: Sequence[streams.Config] = ()) -> None:
    """Look after the streams and consumers until cancelled, unless an administrator does; each problem is logged once."""
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
    """Whose streams are looked after, and as which user."""

    settings: Settings
    wanted: list[streams.Config]
    consumers: list[streams.Config] = []


def _accounts(settings: Settings, options: argparse.Namespace) -> list[_Account]:
    outside_seed: Path | None = options.outside_seed
    replicas: int = options.replicas
    named: tuple[Subscriber, ...] = options.subscribers
    own = _Account(settings, [streams.state(replicas=replicas), streams.events(replicas=replicas)])
    if outside_seed is None:
        return [own]
    if not outside_seed.is_file():
        raise errors.InvalidSpec(f"--outside-seed {outside_seed}: no such file; `credentials` makes it")
    outside = msgspec.structs.replace(settings, service=f"{settings.service}-outside", nats_seed_file=outside_seed)
    consumers = [each.consumer(replicas=replicas) for each in named]
    return [own, _Account(outside, [streams.events_mirror(replicas=replicas)], consumers)]


async def _watch(accounts: Sequence[_Account], options: argparse.Namespace) -> None:
    beside = _beside(options)
    async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
        for account in accounts:
            bus = await stack.enter_async_context(connected(account.settings))
            group.create_task(keep(bus, account.wanted, account.consumers))
        if beside is not None:
            group.create_task(Reloader(beside, SystemClock()).run())
            group.create_task(DiskWatch(beside).run())
        if options.metrics:
            group.create_task(Monitor(options.server_monitor).run(accounts[0].settings.http_port))
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
            problems += await ensure(bus, account.wanted, may_change=True)
            await ensure_consumers(bus, account.consumers)
    for problem in problems:
        sys.stderr.write(
            f"{problem}; delete the stream, it is made anew (RAY_STATE is filled again, old events are gone)\n"
        )
    return 1 if problems else 0


def _beside(options: argparse.Namespace) -> Beside | None:
    folder: Path | None = options.server_folder
    if folder is None:
        return None
    return Beside(folder=folder, pid_file=options.server_pid, monitor=options.server_monitor)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m common.bus.provision", description="Set NATS up for raybus.")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("streams", help="make the streams, and change those that differ")
    make.add_argument("--watch", action="store_true", help="stay, and make them again when the volume is lost")
    make.add_argument("--replicas", type=_replicas, default=1, metavar="N", help="on how many servers each is kept")
    make.add_argument(
        "--outside-seed", type=Path, help="seed of the user in the outsiders' account, to mirror the events for them"
    )
    subscribers.add_argument(make)
    make.add_argument("--server-folder", type=Path, metavar="DIR", help="with --watch: what the server beside reads")
    make.add_argument("--server-pid", type=Path, metavar="FILE", default=Path("/run/nats/nats.pid"))
    make.add_argument("--server-monitor", metavar="URL", default="http://127.0.0.1:8222")
    make.add_argument(
        "--metrics", action="store_true", help="with --watch: export the server's metrics on RAYBUS_HTTP_PORT"
    )
    issue.add_arguments(commands.add_parser("credentials", help="make or replace keys, certificates and configuration"))
    return parser


def _replicas(text: str) -> int:
    if not text.isdecimal() or int(text) not in ALLOWED_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1, 3 or 5")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "credentials":
            return uvloop.run(issue.run(options))
        if options.watch:
            return process.run(KEEPER, lambda settings: _watch(_accounts(settings, options), options))
        settings = Settings.from_environment(USER, os.environ)
        logging.configure(USER, level=settings.log_level)
        return uvloop.run(_once(_accounts(settings, options)))
    except (errors.RaybusError, OSError) as problem:
        sys.stderr.write(f"provision: {problem}\n")
        return process.MISCONFIGURED if isinstance(problem, errors.InvalidSpec) else process.FAILED


if __name__ == "__main__":
    sys.exit(main())
