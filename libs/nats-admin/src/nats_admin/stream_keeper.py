"""Creates the streams of raybus and the consumers of named subscribers.

If they are lost together with a volume, they are created again.
"""

import argparse
import asyncio
import contextlib
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from common import errors
from common.bus import streams, subjects
from common.bus.access import Keys
from common.bus.nats import Bus
from common.bus.nats import connect as connected
from common.bus.session import Incoming, Session
from common.bus.streams import StreamInfo
from common.settings import Settings
from nats_admin import event_streams
from nats_admin.subscribers import NamedSubscriber

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0
CONSUMERS_EVERY: Final = 10
"""Number of checks of the streams per check of the consumers.

A lost volume loses streams and consumers together, so the check of the streams notices it first.
"""
START_SECONDS: Final = 60.0
"""Seconds to wait for a NATS server that is still starting (only without `--watch`)."""
MAX_PAUSE: Final = 3600.0
"""Maximum seconds for which an administrator's message can prevent the creation of streams."""
OUTSIDE: Final = "-outside"
"""Suffix of the names of users in the account of external subscribers."""


async def ensure_streams(
    bus: Bus, configs: Sequence[streams.Config], *, may_change: bool = False
) -> list[str]:
    """Create missing streams; return how existing streams differ from `configs`.

    With `may_change`, differing streams are changed first, and only the remaining differences are
    returned.
    """
    wrong: list[str] = []
    for config in configs:
        name = str(config["name"])
        try:
            info = await bus.stream(name)
        except errors.NotFound:
            await bus.api(f"STREAM.CREATE.{name}", config, StreamInfo)
            log.info("stream created", stream=name)
            continue
        differences = streams.find_differences(config, info.config)
        if differences and may_change:
            differences = await _update_stream(bus, config, info, differences)
        wrong += [f"stream {name}: {difference}" for difference in differences]
    return wrong


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer's configuration as the server reports it."""

    config: dict[str, object]

    @property
    def filters(self) -> object:
        """The subjects whose messages the consumer delivers.

        The server reports one subject and several subjects in different fields.
        """
        return self.config.get("filter_subjects") or [self.config.get("filter_subject")]


async def ensure_consumers(bus: Bus, configs: Sequence[streams.Config]) -> None:
    """Create missing consumers of named subscribers, and correct the filters of existing ones."""
    for config in configs:
        name = f"{subjects.EVENTS_STREAM}.{config['name']}"
        with contextlib.suppress(errors.NotFound):
            info = await bus.api(f"CONSUMER.INFO.{name}", None, ConsumerInfo)
            if info.filters == config["filter_subjects"]:
                continue
        await bus.api(
            f"CONSUMER.CREATE.{name}",
            {"stream_name": subjects.EVENTS_STREAM, "config": config},
            ConsumerInfo,
        )
        log.info("consumer created", consumer=name, filters=config["filter_subjects"])


async def _update_stream(
    bus: Bus, config: streams.Config, info: StreamInfo, differences: Sequence[str]
) -> list[str]:
    """Change a stream to `config` without losing its messages.

    Return the differences that remain because NATS cannot change them in an existing stream.
    """
    name = str(config["name"])
    try:
        changed = await bus.api(f"STREAM.UPDATE.{name}", info.config | config, StreamInfo)
    except (errors.Rejected, errors.Unavailable) as problem:
        return [*differences, f"and cannot be changed: {problem}"]
    log.info("stream changed", stream=name, changes=list(differences))
    return streams.find_differences(config, changed.config)


class _Pause:
    """A time during which an administrator wants no stream to be created.

    NATS can restore a stream from a backup only while the stream does not exist.
    """

    def __init__(self) -> None:
        self._until = float("-inf")
        self._session: Session | None = None

    async def listen(self, session: Session) -> None:
        """Subscribe to administrators' messages that begin or end a pause.

        A repeated call with the same session does nothing.
        """
        if self._session is not session:
            self._session = session
            await session.listen(subjects.RECOVERY, self._receive)

    async def _receive(self, message: Incoming) -> None:
        text = message.data.decode(errors="replace").strip()
        seconds = min(float(text), MAX_PAUSE) if text.isdecimal() else 0.0
        self._until = asyncio.get_running_loop().time() + seconds
        log.warning("stream not created: an administrator switched it off", seconds=seconds)

    @property
    def is_on(self) -> bool:
        return asyncio.get_running_loop().time() < self._until


class LastCheck:
    """Holds the first problem that the last check of an account's streams found; None if none."""

    def __init__(self) -> None:
        self.problem: str | None = "the streams were not checked yet"


async def keep_streams(
    bus: Bus,
    configs: Sequence[streams.Config],
    consumers: Sequence[streams.Config] = (),
    *,
    last_check: LastCheck | None = None,
) -> None:
    """Maintain the streams and consumers until cancelled, except during a pause.

    Each problem is logged once. `last_check.problem` is set to the first problem of each check.
    """
    last_check = last_check or LastCheck()
    reported: list[str] = []
    pause = _Pause()
    for turn in itertools.count():
        await pause.listen(await bus.session())
        if pause.is_on:
            await asyncio.sleep(CHECK_SECONDS)
            continue
        try:
            problems = await ensure_streams(bus, configs)
            if turn % CONSUMERS_EVERY == 0:
                await ensure_consumers(bus, consumers)
        except errors.RaybusError as problem:
            problems = [str(problem)]
        for problem in problems:
            if problem not in reported:
                log.error("stream misconfigured", problem=problem)
        reported = problems
        last_check.problem = next(iter(problems), None)
        await asyncio.sleep(CHECK_SECONDS)


class StreamAccount(msgspec.Struct, frozen=True):
    """A NATS account: the streams to maintain in it, and the user that maintains them."""

    settings: Settings
    configs: list[streams.Config]
    consumers: list[streams.Config] = []
    keys: Keys | None = None
    """Keys with which the user connects; None for the keys that `settings` name."""
    last_check: LastCheck = msgspec.field(default_factory=LastCheck)


def build_accounts(
    settings: Settings,
    *,
    outside_seed: Path | None = None,
    replicas: int = 1,
    named: Sequence[NamedSubscriber] = (),
) -> list[StreamAccount]:
    """Return the account of raybus and, if there is a key for it, that of external subscribers.

    There is a key for the second account if `nats_register_key` is set (this process generates the
    key), or if `outside_seed`, a file with a key, is given. `named` are the subscribers for which
    the second account has consumers. Raises `InvalidSpec` if the file does not exist.
    """
    own = StreamAccount(
        settings,
        [
            streams.build_state_config(replicas=replicas),
            event_streams.build_stream_config(replicas=replicas),
        ],
    )
    if outside_seed is None and not settings.nats_register_key:
        return [own]
    if outside_seed is not None and not outside_seed.is_file():
        raise errors.InvalidSpec(
            f"--outside-seed {outside_seed}: no such file; `credentials` makes it"
        )
    outside = msgspec.structs.replace(
        settings, service=f"{settings.service}{OUTSIDE}", nats_seed_file=outside_seed
    )
    consumers = [subscriber.build_consumer_config(replicas=replicas) for subscriber in named]
    return [
        own,
        StreamAccount(outside, [event_streams.build_mirror_config(replicas=replicas)], consumers),
    ]


def build_accounts_of_options(
    settings: Settings, options: argparse.Namespace
) -> list[StreamAccount]:
    """Return the accounts of `build_accounts` that the command line asks for."""
    return build_accounts(
        settings,
        outside_seed=options.outside_seed,
        replicas=options.replicas,
        named=options.subscribers,
    )


async def keep_accounts(accounts: Sequence[StreamAccount]) -> None:
    """Maintain the streams of all accounts until cancelled."""
    async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
        for account in accounts:
            bus = await stack.enter_async_context(connected(account.settings, account.keys))
            group.create_task(
                keep_streams(bus, account.configs, account.consumers, last_check=account.last_check)
            )
        await asyncio.Event().wait()


async def watch(
    accounts: Sequence[StreamAccount], settings: Settings, options: argparse.Namespace
) -> None:
    """Maintain the streams of all accounts until cancelled.

    With `--metrics`, also serve the server's metrics, and `/readyz`, which fails while a stream has
    a problem.
    """
    monitor: str = options.server_monitor
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_accounts(accounts))
        if options.metrics:
            from nats_admin.monitor import Monitor  # noqa: PLC0415  (with httpx 2 MiB)

            group.create_task(
                Monitor(monitor).run(
                    settings.http_port,
                    port_file=settings.http_port_file,
                    ready=lambda: next(
                        filter(None, (account.last_check.problem for account in accounts)), None
                    ),
                )
            )


async def make(accounts: Sequence[StreamAccount]) -> int:
    """Create or change the streams once.

    Return the exit code: 1 if differences remain; one line is printed for each.
    """
    problems: list[str] = []
    for account in accounts:
        async with connected(account.settings) as bus:
            try:
                async with asyncio.timeout(START_SECONDS):
                    await bus.session()
            except TimeoutError:
                raise errors.Unavailable(bus.problem or "NATS does not answer") from None
            problems += await ensure_streams(bus, account.configs, may_change=True)
            await ensure_consumers(bus, account.consumers)
    for problem in problems:
        sys.stderr.write(
            f"{problem}; delete the stream, it is made anew (RAY_STATE is filled again, old "
            "events are gone)\n"
        )
    return 1 if problems else 0
