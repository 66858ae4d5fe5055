"""A program that tests start, freeze and end: dead with the test process at the latest."""

import asyncio
import ctypes
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final

PR_SET_PDEATHSIG: Final = 1
TERM_SECONDS: Final = 10.0
_LIBC: Final = ctypes.CDLL(None)


class Process:
    """One program; after its end it may be started again."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> "subprocess.Popen[bytes]":
        """The process that runs; one that was not started, or was ended here, is a mistake of the test."""
        assert self._running is not None, "it does not run"
        return self._running

    @property
    def pid(self) -> int:
        """The process that runs."""
        return self.running.pid

    @property
    def is_down(self) -> bool:
        """Return whether it was not started, or was ended here."""
        return self._running is None

    @property
    def has_ended(self) -> bool:
        """Return whether the process is gone, though nobody here ended it."""
        return self._running is None or self._running.poll() is not None

    def spawn(
        self,
        command: Sequence[str],
        *,
        out: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; `out` takes what it writes to both of its outputs."""
        self._running = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env=env,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (one system call, no lock)
        )

    def freeze(self) -> None:
        """Make it hang without closing anything."""
        self.running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.running.send_signal(signal.SIGCONT)

    def end(self, with_signal: signal.Signals, *, within: float) -> int:
        """End it with a signal, or, when that takes longer than so many seconds, by force; return its exit code."""
        process = self._running
        if process is None:
            return 0
        process.send_signal(signal.SIGCONT)
        process.send_signal(with_signal)
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
        self._running = None
        return process.wait()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@asynccontextmanager
async def process(
    command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Process]:
    """Run a program for the length of a block; where it ended by itself, the end of its log is printed."""
    running = Process()
    with log.open("wb") as out:
        running.spawn(command, out=out, env=env)
        try:
            yield running
        finally:
            if running.has_ended:
                sys.stdout.write(await asyncio.to_thread(log.read_text, errors="replace"))
            await asyncio.to_thread(running.end, signal.SIGTERM, within=TERM_SECONDS)
