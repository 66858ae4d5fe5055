"""The controllers that users run beside raybus, as processes on the control plane of this folder."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.servers.process import Process

TERM_SECONDS = 10.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.third_party)


@asynccontextmanager
async def process(command: Sequence[str], log: Path) -> AsyncGenerator[Process]:
    """Run a program for the length of a block; where it ended by itself, the end of its log is printed."""
    running = Process()
    with log.open("wb") as out:
        running.spawn(command, out=out)
        try:
            yield running
        finally:
            if running.has_ended:
                sys.stdout.write(await asyncio.to_thread(log.read_text, errors="replace"))
            await asyncio.to_thread(running.end, signal.SIGTERM, within=TERM_SECONDS)
