"""What a contender's processes use, by the kernel's own account: processor time, and memory as PSS.

PSS counts a page that several processes share once among them, so the sum over processes is what they cost together.
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
"""Names the processes as they are now."""


def tree(root: int) -> list[int]:
    """Return a process and all below it."""
    found, waiting = [root], [root]
    while waiting:
        try:
            tasks = list(Path(f"/proc/{waiting.pop()}/task").iterdir())
            children = [
                int(pid) for task in tasks for pid in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        found += children
        waiting += children
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used so far."""
    return sum(_cpu_seconds(pid) for pid in pids)


def cpu_by_program(pids: Sequence[int]) -> dict[str, float]:
    """Return the same by program: the name of its file, or of its Python module."""
    found: dict[str, float] = {}
    for pid in pids:
        with suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            name = (
                arguments[arguments.index("-m") + 1]
                if "-m" in arguments
                else Path(arguments[0]).name
            )
            found[name] = found.get(name, 0.0) + _cpu_seconds(pid)
    return found


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return what each program has used since an earlier account; one that is not in that began afterwards."""
    return {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}


def pss_mib(pids: Sequence[int]) -> float:
    """Return the memory that processes hold together, in MiB."""
    return sum(_pss_kib(pid) for pid in pids) / 1024


class Samples:
    """What was seen while something ran."""

    def __init__(self) -> None:
        self.peak_pss_mib = 0.0
        self.computations: list[float] = []
        """Milliseconds of processor time of a fixed computation: on a machine that others share, it shows how fast the machine was."""


def computation_ms() -> float:
    """Compute something, always the same, and return the milliseconds of processor time that it took."""
    began = time.thread_time()
    for _ in range(_LOOPS):
        sum(range(1000))
    return (time.thread_time() - began) * 1000


@asynccontextmanager
async def watched(pids: Pids) -> AsyncGenerator[Samples]:
    """Sample the memory of processes and the speed of the machine as long as the block lasts."""
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
    """How busy all processors were since this was made, with everything that ran on them."""

    def __init__(self) -> None:
        self._busy, self._all = _processors()

    @property
    def percent(self) -> float:
        """Return the share of the time."""
        busy, everything = _processors()
        return 100 * (busy - self._busy) / max(1, everything - self._all)


def _processors() -> tuple[int, int]:
    """Return the ticks that processors worked, and all ticks."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss_kib(pid: int) -> int:
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0
