"""Envoy Gateway, built and started beside the demo's first steps: the first answer does not need it, and its build takes minutes.

It is the command that a user would type, at the lowest priority: it gets only the processor time that the demo leaves.
"""

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import IO, Final

from common import errors
from localcluster import processes

END_SECONDS: Final = 20.0
"""The longest wait for the orderly end of an interrupted build."""
_TAIL: Final = 2000
"""Bytes of the output that are read."""
_MARKS: Final = " …✓✗"


class LateGateway:
    """A running command that adds a gateway, and its output."""

    def __init__(self, process: asyncio.subprocess.Process, output: IO[bytes]) -> None:
        self._process = process
        self._output = output

    @property
    def activity(self) -> str:
        """The last line of its progress."""
        end = self._output.seek(0, 2)
        self._output.seek(max(0, end - _TAIL))
        lines = self._output.read().decode(errors="replace").split("\n")
        return next((shown for line in reversed(lines) if (shown := line.strip(_MARKS))), "starting")

    @property
    def has_ended(self) -> bool:
        """Whether the gateway is there, or cannot be."""
        return self._process.returncode is not None

    def expect_success(self) -> None:
        """Raise with the end of its output if it failed."""
        if self._process.returncode:
            raise errors.Rejected(f"adding Envoy Gateway to the cluster failed: {self.activity}")

    async def end(self, *, within: float = END_SECONDS) -> None:
        """Interrupt it if it still runs, and kill it if it goes on; what it has built stays in the cache."""
        processes.signal_child(self._process, signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._process.wait()
        await processes.end_child(self._process)


@asynccontextmanager
async def adding(command: Sequence[str]) -> AsyncGenerator[LateGateway]:
    """Run the command while the block runs, at the lowest priority."""
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *("nice", "-n", "19", *command), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
        late = LateGateway(process, output)
        try:
            yield late
        finally:
            await late.end()


def command(driver: str, name: str) -> list[str]:
    """Return what a user types to add a gateway to a running cluster."""
    raybus = [sys.executable, "-m", "raybus_cli.main"]
    return [*raybus, "cluster", "up", "--gateway", "--driver", driver, "--name", name]
