"""kubectl as the demo uses it: the commands that a user would type, run and read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from common import errors
from localcluster import processes


class Kubectl(msgspec.Struct, frozen=True, kw_only=True):
    """kubectl against one cluster."""

    binary: Path
    kubeconfig: Path

    async def run(self, *args: str, stdin: str | None = None) -> str:
        """Run one command and return what it printed; raise with its complaint."""
        done = await processes.run(self._argv(*args), stdin=None if stdin is None else stdin.encode())
        if done.code != 0:
            raise errors.Rejected(f"kubectl {' '.join(args[:4])}: {done.errors.strip()}")
        return done.output

    @asynccontextmanager
    async def follow(self, *args: str) -> AsyncGenerator[AsyncIterator[str]]:
        """Run a command that goes on, such as `logs -f`, and read its lines; it ends with the block."""
        pipe = asyncio.subprocess.PIPE
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*self._argv(*args), stdin=null, stdout=pipe, stderr=null)
        stdout = process.stdout
        if stdout is None:
            raise errors.Invariant("kubectl was started without a pipe")
        try:
            yield (line.decode(errors="replace") async for line in stdout)
        finally:
            await processes.end_child(process)

    def _argv(self, *args: str) -> list[str]:
        return [str(self.binary), "--kubeconfig", str(self.kubeconfig), *args]
