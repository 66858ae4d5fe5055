"""Sets NATS up: the streams, and the credentials and configuration of the server.

    python -m common.bus.provision streams [--watch]
    python -m common.bus.provision credentials --out DIR
    python -m common.bus.provision credentials --secrets NAMESPACE

`streams --watch` stays beside the server and creates again what a lost volume took along, so that no service needs the
right to create a stream.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from common import errors
from common.bus import streams
from common.bus.nats import Bus, StreamInfo

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0


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
