"""`raybus dashboard` as a user starts it: a process, the address that it prints, and its exit."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from raybus_cli.child_processes import bind_to_parent
from support.waiting import eventually

TIMEOUT: Final = 180.0


class Dashboard:
    """A running dashboard process."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self._folder = folder

    @property
    def address(self) -> str:
        """Return the address of the page."""
        return (self._folder / "out").read_text().strip()

    @property
    def stderr(self) -> str:
        """Return the standard error of the process."""
        return (self._folder / "err").read_text()

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self.process.poll() is not None

    async def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, Ctrl-C's by default, and return the exit code."""
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, TIMEOUT)


@asynccontextmanager
async def started(folder: Path, *arguments: str) -> AsyncGenerator[Dashboard]:
    """Run a dashboard for the duration of a block, on any free port; it may end at once and report
    why.
    """
    port = () if "--port" in arguments else ("--port", "0")
    async with started_as(folder, "--no-open", *port, *arguments) as running:
        yield running


@asynccontextmanager
async def served(folder: Path, *arguments: str) -> AsyncGenerator[Dashboard]:
    """Run a dashboard for many users, as in a Pod, for the duration of a block; without TLS unless
    a certificate is given.
    """
    scheme = () if "--tls-cert-file" in arguments else ("--plain-http",)
    ports = ("--address", "127.0.0.1", "--port", "0", "--health-port", "0")
    async with started_as(folder, "serve", *ports, *scheme, *arguments) as running:
        yield running


@asynccontextmanager
async def started_as(folder: Path, *arguments: str) -> AsyncGenerator[Dashboard]:
    """Run the command with exactly these arguments for the duration of a block."""
    running = _start(folder, arguments)
    try:
        await eventually(
            lambda: running.address or running.has_ended, within=TIMEOUT, what="an address"
        )
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def _start(folder: Path, arguments: Sequence[str]) -> Dashboard:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "raybus_cli.main", "dashboard", *arguments]
    reported = {
        name: value for name, value in os.environ.items() if not name.startswith("RAYBUS_NATS")
    }
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return Dashboard(
            subprocess.Popen(bind_to_parent(command), stdout=out, stderr=err, env=reported), folder
        )
