"""Runs a module in a process and network of its own.

Progress goes to standard error, and the result as JSON to standard output.
"""

import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench import pod_network
from bench.report import keep_stdout_clean
from raybus_cli.child_processes import bind_to_parent

TESTS = Path(__file__).parents[1]
_BEGAN: Final = time.monotonic()

Report = TypeVar("Report", bound=msgspec.Struct)


def result_of(
    module: str, *arguments: str, kind: type[Report], within: float, codes: Container[int] = (0,)
) -> Report:
    """Run a module for at most `within` seconds and return its result.

    Its progress goes where this test's progress goes.

    Raises:
        AssertionError: The module ended with another exit code, or printed nothing.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        bind_to_parent(command),
        cwd=TESTS,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=within,
    )
    assert done.returncode in codes, f"{module} ended with {done.returncode}"
    assert done.stdout, f"{module} printed nothing"
    return msgspec.json.decode(done.stdout, type=kind)


def isolate(module: str) -> None:
    """Continue in a network of its own, with a standard output to which only `print_result` writes."""
    pod_network.enter(module)
    keep_stdout_clean()


def log_progress(line: str) -> None:
    """Print a line of progress with the seconds since the start to standard error."""
    sys.stderr.write(f"{Path(sys.argv[0]).stem}: {time.monotonic() - _BEGAN:.0f} s: {line}\n")
    sys.stderr.flush()


def print_result(found: msgspec.Struct) -> None:
    """Print the result for `result_of`."""
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
