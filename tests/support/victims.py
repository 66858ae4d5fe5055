"""Finds and kills the processes of a pod from outside, like a failing node: kill -9, and the loss
of a volume.
"""

import contextlib
import os
import shutil
import signal
from pathlib import Path

PROC = Path("/proc")


def find(pod_uid: str, command: str) -> list[int]:
    """Return the processes of a pod whose command line contains a text."""
    found: list[int] = []
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command_line = (
                (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
            cgroup = (entry / "cgroup").read_text()
        except OSError:
            continue
        if command in command_line and pod_uid in cgroup:
            found.append(int(entry.name))
    return found


def kill(pod_uid: str, command: str) -> None:
    """Kill the processes, which they cannot prevent."""
    victims = find(pod_uid, command)
    assert victims, f"no process of pod {pod_uid} runs {command}"
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):  # it may have ended with the one before
            os.kill(pid, signal.SIGKILL)


def kill_and_empty(pod_uid: str, command: str, folder: str) -> None:
    """Kill the processes and empty their volume, so that their successors start with nothing."""
    victims = find(pod_uid, command)
    assert victims, f"no process of pod {pod_uid} runs {command}"
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    for pid in victims:
        for each in (PROC / str(pid) / "root" / folder.lstrip("/")).iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
