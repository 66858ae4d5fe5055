"""`raybus up` as a user starts it: a process, its two outputs, and the processes that it names."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import msgspec

from raybus_cli.child_processes import bind_to_parent
from support.waiting import eventually


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line that the command writes on standard output when everything is ready."""

    ready: bool
    pids: dict[str, int | list[int]]

    def one(self, program: str) -> int:
        """Return the process of a program of which exactly one process runs."""
        found = self.pids[program]
        assert isinstance(found, int)
        return found

    @property
    def all(self) -> list[int]:
        """Return all processes."""
        return [
            pid
            for found in self.pids.values()
            for pid in (found if isinstance(found, list) else [found])
        ]


class Running:
    """A running `raybus up`."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self._folder = folder
        self._out = folder / "out"
        self._err = folder / "err"

    @property
    def reported(self) -> str:
        """Return the standard error of the command."""
        return self._err.read_text()

    @property
    def results(self) -> list[str]:
        """Return the lines that the command wrote on standard output."""
        return self._out.read_text().splitlines()

    @property
    def left_behind(self) -> list[str]:
        """Return the private folders that the command has not removed."""
        return [path.name for path in self._folder.glob("raybus-up-*")]

    async def ready(self, *, within: float = 60) -> Ready:
        """Wait until the command reports that everything is ready."""
        await eventually(
            lambda: self.results or self.process.poll() is not None,
            within=within,
            what=self.reported,
        )
        assert self.process.poll() is None, self.reported
        return msgspec.json.decode(self.results[0], type=Ready)

    def end(self, number: signal.Signals, *, within: float) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=within)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a dead process that was not waited for does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def started(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Generator[Running]:
    """Run `raybus up` for the duration of a block, with additional environment variables."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "raybus_cli.main",
        "up",
        "--log-dir",
        str(folder / "logs"),
        *arguments,
    ]
    surroundings = os.environ | {"TMPDIR": str(folder)} | dict(environment or {})
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            bind_to_parent(command), stdout=out, stderr=err, env=surroundings
        )
    try:
        yield Running(process, folder)
    finally:
        process.terminate()
        process.wait(timeout=60)
