"""A NATS server with the events of an upgrade, and the examples as processes that a user starts."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest_asyncio

from support.servers.outside import Outside, outside

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT = 90.0
"""Timeout in seconds.

It is longer than the minute after which the events of a dead example are delivered again."""


class Running:
    """An example that runs, and the lines that it has written so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []

    async def read(self) -> None:
        async with asyncio.TaskGroup() as group:
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err)):
                assert stream is not None
                group.create_task(_collect(stream, lines))

    async def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(TIMEOUT):
            return await self.process.wait()

    async def kill(self) -> None:
        """Kill the example, as a crash would."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def _collect(stream: asyncio.StreamReader, lines: list[str]) -> None:
    async for line in stream:
        lines.append(line.decode().rstrip("\n"))  # noqa: PERF401  (others read the list while it grows)


@asynccontextmanager
async def running(*command: str, variables: Mapping[str, str]) -> AsyncGenerator[Running]:
    """Run an example as long as the block lasts."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=pipe, env={**os.environ, **variables}
    )
    example = Running(process)
    async with asyncio.TaskGroup() as group:
        group.create_task(example.read())
        try:
            yield example
        finally:
            await example.kill()


def python(*path: str) -> tuple[str, str]:
    """Return the command that runs an example in Python."""
    return sys.executable, str(EXAMPLES.joinpath(*path))


def access(at: Outside) -> dict[str, str]:
    """Return the variables that every example needs."""
    return {"RAYBUS_NATS_URL": at.url, "RAYBUS_NATS_CREDENTIALS": str(at.folder)}


@pytest_asyncio.fixture
async def at(tmp_path: Path) -> AsyncGenerator[Outside]:
    async with outside(tmp_path / "nats") as running_server:
        yield running_server
