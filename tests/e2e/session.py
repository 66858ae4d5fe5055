"""A terminal at which the tests type commands, and the page with commands and output.

Random parts (ends of names, addresses) are replaced by texts of the same length, so that columns
stay aligned. Times are shifted to begin at a fixed time, so that the order of events stays visible.
"""

import asyncio
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

COLUMNS: Final = 100
ROWS: Final = 40
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BEGIN: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
ADDRESS: Final = re.compile(r"\b(?:10|172|192)\.\d+\.\d+\.\d+\b")
LIMIT: Final = 400.0
"""Seconds that a command may take."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command; `shown` is the terminal's content, standard output and error as they
    came.
    """

    code: int
    shown: str

    @property
    def lines(self) -> list[str]:
        """Return the lines without blanks at their ends."""
        return [line.rstrip() for line in self.shown.splitlines()]


class Following:
    """A command that runs until it is interrupted."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self._process = process
        self._master = master
        self.raw = b""

    def read(self) -> None:
        """Read the output to its end."""
        self.raw = _drain(self._master)

    async def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        self._process.send_signal(signal.SIGINT)
        return await asyncio.to_thread(self._process.wait, 30)


class Session:
    """The terminal of a user with a kubeconfig that names the cluster and the namespace."""

    def __init__(self, folder: Path, kubeconfig: Path, programs: Path) -> None:
        path = f"{Path(sys.executable).parent}:{programs}:{os.environ['PATH']}"
        self._env = {
            "PATH": path,
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig),
            "TERM": "xterm",
            "LANG": "C.UTF-8",
        }
        self.folder = folder
        self._page: list[str] = []
        self._began = time.time()  # noqa: TID251  (compared with times that a cluster wrote)
        self.commands: list[str] = []

    def paragraph(self, text: str) -> None:
        """Write a paragraph of the page."""
        self._page.append(f"{text}\n")

    async def type(self, command: str, *, code: int = 0, is_shown: bool = True) -> Done:
        """Run a command at the terminal; expect its exit code; `is_shown` puts it on the page."""
        done = await asyncio.to_thread(self._run, command)
        if is_shown:
            self._show(command, done)
        assert done.code == code, f"$ {command}\n{done.shown}exit code {done.code}, not {code}"
        return done

    async def read(self, command: str) -> Any:
        """Return what a command prints into a pipe, read as JSON; it is not on the page."""
        return json.loads(await self.pipe(command))

    async def pipe(self, command: str) -> str:
        """Return the output of a command into a pipe, which has no colours and no cut lines."""
        run = asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            timeout=LIMIT,
        )
        done = await run
        assert done.returncode == 0, f"$ {command}\n{done.stderr.decode()}"
        text = done.stdout.decode()
        assert "\x1b" not in text
        return text

    @asynccontextmanager
    async def following(self, command: str) -> AsyncGenerator[Following]:
        """Run a command at a terminal during a block, and interrupt it at the end if it still runs."""
        process, master = self._start(command)
        found = Following(process, master)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(found.read))
            try:
                yield found
            finally:
                if process.poll() is None:
                    await found.interrupt()

    @asynccontextmanager
    async def kept(self, command: str, text: str) -> AsyncGenerator[None]:
        """Run a command with a pipe for the length of a block, and put what it printed on the page, below a text."""
        arguments = ["bash", "-c", f"exec {command}"]
        process = subprocess.Popen(  # noqa: ASYNC220  (ends with the block)
            arguments, cwd=self.folder, env=self._env, stdout=subprocess.PIPE
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            out, _ = await asyncio.to_thread(process.communicate, timeout=30)
            self.paragraph(text)
            self._show(f"{command} | cat", Done(code=0, shown=out.decode()))

    @property
    def page(self) -> str:
        """Return what is on the page so far."""
        return "\n".join(self._page)

    def write(self, path: Path, head: str) -> None:
        """Write the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}\n{self.page}")

    def _run(self, command: str) -> Done:
        process, master = self._start(
            f"timeout --foreground {LIMIT:g} bash -c {shlex.quote(command)}"
        )
        shown = _drain(master)
        text = (
            ESCAPES.sub("", shown.decode(errors="replace")).replace("\r\n", "\n").replace("\r", "")
        )
        return Done(code=process.wait(LIMIT), shown=text)

    def _start(self, command: str) -> tuple[subprocess.Popen[bytes], int]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        return process, master

    def _show(self, command: str, done: Done) -> None:
        self.commands.append(command)
        tail = f"$ echo $?\n{done.code}\n" if done.code else ""
        body = "\n".join(done.lines).strip("\n")
        text = self._normalized(f"$ {command}\n{body}\n{tail}" if body else f"$ {command}\n{tail}")
        self._page.append(f"```console\n{text.rstrip()}\n```\n")

    def _normalized(self, text: str) -> str:
        """Return a text without its random and machine-dependent parts."""
        shift = BEGIN - datetime.fromtimestamp(self._began, tz=UTC).replace(microsecond=0)
        text = MOMENT.sub(lambda found: _shifted(found[0], shift), text)
        return ADDRESS.sub(lambda found: "192.0.2.1".ljust(len(found[0])), text).replace(
            str(self.folder), "~"
        )


def _shifted(text: str, shift: timedelta) -> str:
    moment = datetime.fromisoformat(text) + shift
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _drain(master: int) -> bytes:
    """Return all that comes until the other end closes the terminal."""
    parts: list[bytes] = []
    with suppress(OSError):  # what Linux answers when the last writer is gone
        while part := os.read(master, 65536):
            parts.append(part)
    os.close(master)
    return b"".join(parts)
