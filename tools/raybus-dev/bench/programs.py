"""Measures the processor time and memory (PSS) of processes.

PSS divides a page that several processes share among them, so the sum over all processes is their
real cost.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

_PSS: Final = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
_SAMPLE_SECONDS: Final = 0.5
_LOOPS: Final = 400

Pids = Callable[[], Sequence[int]]
"""A function that returns the current process ids of an operator."""


def tree(root: int) -> list[int]:
    """Return the ids of the process `root` and of all its descendants."""
    pids, waiting = [root], [root]
    while waiting:
        try:
            tasks = list(Path(f"/proc/{waiting.pop()}/task").iterdir())
            children = [
                int(pid) for task in tasks for pid in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        pids += children
        waiting += children
    return pids


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the total processor seconds that the processes have used so far."""
    return sum(_read_cpu_seconds(pid) for pid in pids)


def cpu_by_program(pids: Sequence[int]) -> dict[str, float]:
    """Return the processor seconds of each program.

    A program's name is that of its Python module (`-m`) or of its executable.
    """
    seconds: dict[str, float] = {}
    for pid in pids:
        with suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            name = (
                arguments[arguments.index("-m") + 1]
                if "-m" in arguments
                else Path(arguments[0]).name
            )
            seconds[name] = seconds.get(name, 0.0) + _read_cpu_seconds(pid)
    return seconds


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return the processor seconds that each program used between two readings.

    A program that is missing in `before` started later, so its whole time counts.
    """
    return {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}


def pss_mib(pids: Sequence[int]) -> float:
    """Return the total memory (PSS) of the processes in MiB."""
    return sum(_read_pss_kib(pid) for pid in pids) / 1024


class Samples:
    """Samples of an operator and of the machine, taken while a measurement ran."""

    def __init__(self) -> None:
        self.peak_pss_mib = 0.0
        self.computations: list[float] = []
        """Milliseconds of processor time of a fixed computation, one value for each sample.

        They show how fast a shared machine was.
        """


def computation_ms() -> float:
    """Run a fixed computation; return its processor time in milliseconds."""
    began = time.thread_time()
    for _ in range(_LOOPS):
        sum(range(1000))
    return (time.thread_time() - began) * 1000


@asynccontextmanager
async def watched(pids: Pids) -> AsyncGenerator[Samples]:
    """Sample the memory of processes and the speed of the machine during the `with` block."""
    seen = Samples()

    async def sample() -> None:
        while True:
            seen.peak_pss_mib = max(seen.peak_pss_mib, pss_mib(pids()))
            seen.computations.append(computation_ms())
            await asyncio.sleep(_SAMPLE_SECONDS)

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sample())
        try:
            yield seen
        finally:
            sampling.cancel()
    seen.peak_pss_mib = max(seen.peak_pss_mib, pss_mib(pids()))


class Machine:
    """Utilisation of all processors by everything on the machine, since this object was created."""

    def __init__(self) -> None:
        self._busy, self._all = _read_processor_ticks()

    @property
    def percent(self) -> float:
        """Percent of the time in which the processors were busy."""
        busy, everything = _read_processor_ticks()
        return 100 * (busy - self._busy) / max(1, everything - self._all)


def _read_processor_ticks() -> tuple[int, int]:
    """Return the busy ticks and all ticks of the processors since the machine started."""
    ticks = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _read_cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_pss_kib(pid: int) -> int:
    try:
        match = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0
    return int(match[1]) if match else 0
