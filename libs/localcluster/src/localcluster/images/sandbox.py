"""Runs one step, or debootstrap, in mount and pid namespaces of its own: when this process dies, everything in there ends with it."""

import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from localcluster.errors import ClusterError
from localcluster.images.inside import Job
from localcluster.progress import Step

_ISOLATION = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL", "--"),
)
_TAIL = 8
_SHOWN = 60


def perform(job: Job, what: str, shown: Step, log: Path) -> None:
    """Do one step of a stage."""
    command = [sys.executable, "-m", "localcluster.images.inside"]
    run(command, what=what, shown=shown, log=log, given=msgspec.json.encode(job))


def run(
    command: Sequence[str],
    *,
    what: str,
    shown: Step,
    log: Path,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program isolated, show its latest line, keep all of its output in `log`."""
    last: deque[str] = deque(maxlen=_TAIL)
    with (
        log.open("a") as keep,
        subprocess.Popen(
            [*_ISOLATION, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        ) as process,
    ):
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        try:
            process.stdin.write(given)
            process.stdin.close()
            for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip()
                keep.write(f"{line}\n")
                if line:
                    last.append(line)
                    shown.note(line[:_SHOWN])
        except BaseException:
            # Pid 1 of a namespace ignores an interrupt: end it ourselves, then everything below it ends too.
            process.kill()
            raise
    if process.returncode:
        raise ClusterError(f"{what} failed (exit code {process.returncode}): {' | '.join(last)}; all of it: {log}")


def has_overlay(folder: Path) -> bool:
    """Return whether overlayfs works on this file system (not inside most containers)."""
    for name in ("lower", "upper", "work", "root"):
        (folder / name).mkdir(parents=True)
    mount = ["mount", "-t", "overlay", "-o", "lowerdir=lower,upperdir=upper,workdir=work", "overlay", f"{folder}/root"]
    return subprocess.run([*_ISOLATION, *mount], cwd=folder, capture_output=True, check=False).returncode == 0
