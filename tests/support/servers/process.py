"""A program that tests start, freeze and end; it ends with the test process at the latest."""

import asyncio
import ctypes
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final, Protocol

PR_SET_PDEATHSIG: Final = 1
TERM_SECONDS: Final = 10.0
_LIBC: Final = ctypes.CDLL(None)


class RunningProgram(Protocol):
    """The part of `subprocess.Popen` that tests use; a container has it, too."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class Process:
    """A program as a process; it can be started again after its end."""

    def __init__(self) -> None:
        self._running: RunningProgram | None = None

    @property
    def running(self) -> RunningProgram:
        """The running process; a call before its start or after its end is a mistake in the test."""
        assert self._running is not None, "it does not run"
        return self._running

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self.running.pid

    @property
    def is_down(self) -> bool:
        """Return whether the process was not started, or was ended by the test."""
        return self._running is None

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended without the test ending it."""
        return self._running is None or self._running.poll() is not None

    def spawn(
        self,
        command: Sequence[str],
        *,
        out: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process; `out` receives both of its outputs."""
        self._running = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env=env,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  (one system call, no lock)
        )

    def adopt(self, running: RunningProgram) -> None:
        """Take a program that was started otherwise as the running process."""
        self._running = running

    def freeze(self) -> None:
        """Stop the process without closing its connections."""
        self.running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.running.send_signal(signal.SIGCONT)

    def end(self, with_signal: signal.Signals, *, within: float) -> int:
        """End the process with a signal, or by force after `within` seconds; return its exit code."""
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
    """Run a program for the duration of a block; if it ends by itself, the end of its log is
    printed.
    """
    running = Process()
    with log.open("wb") as out:
        running.spawn(command, out=out, env=env)
        try:
            yield running
        finally:
            if running.has_ended:
                sys.stdout.write(await asyncio.to_thread(log.read_text, errors="replace"))
            await asyncio.to_thread(running.end, signal.SIGTERM, within=TERM_SECONDS)
