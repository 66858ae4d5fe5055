"""kubectl as the demo uses it: the commands that a user would type, run and read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from common import errors


class Kubectl(msgspec.Struct, frozen=True, kw_only=True):
    """kubectl against one cluster."""

    binary: Path
    kubeconfig: Path

    async def run(self, *args: str, stdin: str | None = None) -> str:
        """Run one command and return what it printed; raise with its complaint."""
        process = await self._start(*args, feed=stdin is not None)
        out, complaint = await process.communicate(None if stdin is None else stdin.encode())
        if process.returncode != 0:
            raise errors.Rejected(f"kubectl {' '.join(args[:4])}: {complaint.decode(errors='replace').strip()}")
        return out.decode()

    @asynccontextmanager
    async def follow(self, *args: str) -> AsyncGenerator[AsyncIterator[str]]:
        """Run a command that goes on, such as `logs -f`, and read its lines; it ends with the block."""
        process = await self._start(*args)
        stdout = process.stdout
        if stdout is None:
            raise errors.Invariant("kubectl was started without a pipe")
        try:
            yield (line.decode(errors="replace") async for line in stdout)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _start(self, *args: str, feed: bool = False) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            str(self.binary),
            "--kubeconfig",
            str(self.kubeconfig),
            *args,
            stdin=pipe if feed else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
