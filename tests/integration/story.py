"""A story that a process of its own tells, in a network of its own: progress on standard error, what was found as JSON on standard output."""

import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench import pod_network
from bench.report import keep_stdout_clean
from localcluster.processes import bound

TESTS = Path(__file__).parents[1]
_BEGAN: Final = time.monotonic()

Told = TypeVar("Told", bound=msgspec.Struct)


def heard(module: str, *arguments: str, kind: type[Told], within: float, codes: Container[int] = (0,)) -> Told:
    """Let a module tell its story, in so many seconds, its progress where this test's goes; return what it found.

    Raises:
        AssertionError: It ended with none of the exit codes, or told nothing.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(bound(command), cwd=TESTS, stdout=subprocess.PIPE, text=True, check=False, timeout=within)
    assert done.returncode in codes, f"{module} ended with {done.returncode}"
    assert done.stdout, f"{module} told nothing"
    return msgspec.json.decode(done.stdout, type=kind)


def begin(module: str) -> None:
    """Go on in the network where stories are told, with a standard output to which only `tell` writes."""
    pod_network.enter(module)
    keep_stdout_clean()


def say(line: str) -> None:
    """Tell whoever waits what goes on, and how long after the beginning."""
    sys.stderr.write(f"{Path(sys.argv[0]).stem}: {time.monotonic() - _BEGAN:.0f} s: {line}\n")
    sys.stderr.flush()


def tell(found: msgspec.Struct) -> None:
    """Print what was found, for `heard`."""
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
