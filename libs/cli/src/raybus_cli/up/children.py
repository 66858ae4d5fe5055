"""Child processes: started, restarted with back-off when they end, and stopped.

The kernel kills a child when we die in whatever way (prctl(2), PR_SET_PDEATHSIG, set by util-linux' setpriv; where there is
none, as on macOS, a `kill -9` of us leaves them running).
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from common import errors
from localcluster.processes import bound, signal_child

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 10.0
GOOD_LIFE: Final = 30.0
"""A child that lived this long did not fail because of how it was started."""
MISCONFIGURED: Final = 2
"""Exit code of a service that a setting keeps from running; starting it again would not help."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A command line with its environment."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path | None = None
    """None means our own standard error."""


class Child:
    """One program that is kept running."""

    def __init__(self, program: Program, report: Callable[[str], None]) -> None:
        self.program = program
        self._report = report
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Return the process id of the child that runs, or ran last; 0 before the first."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        """Return whether the process exists."""
        return self._process is not None and self._process.returncode is None

    async def keep(self) -> None:
        """Start it, and again whenever it ends, until cancelled; raise `InvalidSpec` when a setting stops it."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started = loop.time()
            code = await (await self._start()).wait()
            if code == MISCONFIGURED:
                raise errors.InvalidSpec(f"{self.program.name} rejects its settings; see {self._where()}")
            failures = 0 if loop.time() - started > GOOD_LIFE else failures + 1
            wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, 10))
            self._report(f"{self.program.name} {_how(code)}; it restarts in {wait:.1f} s ({self._where()})")
            await asyncio.sleep(wait)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process exists."""
        if self._process is not None:
            signal_child(self._process, number)

    async def ended(self) -> None:
        """Wait until the process has ended."""
        if self._process is not None:
            await self._process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        with contextlib.ExitStack() as stack:
            log = sys.stderr if self.program.log is None else stack.enter_context(self.program.log.open("ab"))
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *bound(self.program.argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(self.program.environment),
                    # Ctrl-C is for us; we end the children in order.
                    start_new_session=True,
                )
            except OSError as problem:
                raise errors.InvalidSpec(f"cannot start {self.program.argv[0]}: {problem.strerror}") from problem
        return self._process

    def _where(self) -> str:
        return "the log above" if self.program.log is None else str(self.program.log)


async def stop(children: Sequence[Child], *, timeout: float) -> None:
    """End children at the same time: SIGTERM, and SIGKILL for those that remain after `timeout` seconds."""
    for child in children:
        child.send(signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            for child in children:
                await child.ended()
    for child in children:
        child.send(signal.SIGKILL)
    for child in children:
        await child.ended()


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
