"""Another operator by its command line, as in the benchmarks: a shell command that reads
KUBECONFIG.
"""

import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from raybus_cli.child_processes import bind_to_parent
from support.waiting import eventually


@asynccontextmanager
async def running(command: str, kubeconfig: Path, log: Path) -> AsyncGenerator[None]:
    """Run the operator during a block.

    It is ended as Kubernetes ends a pod, and the block waits until it has ended.
    """
    process = _start(command, os.environ | {"KUBECONFIG": str(kubeconfig)}, log)
    try:
        yield
        assert process.poll() is None, f"the operator has ended:\n{_last_lines(log)}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        await eventually(
            lambda: process.poll() is not None, within=30, what="the end of the operator"
        )


def _start(command: str, environment: dict[str, str], log: Path) -> "subprocess.Popen[bytes]":
    argv = bind_to_parent(["/bin/sh", "-c", f"exec {command}"])
    with log.open("ab") as output:
        return subprocess.Popen(
            argv, stdout=output, stderr=output, env=environment, start_new_session=True
        )


def _last_lines(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]
