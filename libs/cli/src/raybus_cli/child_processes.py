"""Helpers for child processes: free ports, signals, and children that die with their parent."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
_CHOICE: Final = range(10_000, 30_000)
"""Range in which free ports are searched. It is below the kernel's range for outgoing connections
and below the node ports of Kubernetes.
"""


def bind_to_parent(argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` and is killed when its parent dies.

    On a system without setpriv, the result is `argv` itself.
    """
    setpriv = shutil.which("setpriv")
    return list(argv) if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--", *argv]


def signal_child(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a child process of asyncio, unless it has exited.

    `Process.kill` and similar methods call `Popen.poll`, which reaps a child that has just exited.
    asyncio then finds no child, and logs "Unknown child process pid …, will report returncode 255".
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def end_child(process: asyncio.subprocess.Process) -> None:
    """Kill a child process of asyncio if it still runs, and wait until it has exited."""
    signal_child(process, signal.SIGKILL)
    await process.wait()


def find_free_ports(count: int) -> list[int]:
    """Return ports that are free now, from a range that outgoing connections do not use.

    Another program may take a port before it is bound, so the caller must check that its program
    started.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(_CHOICE, len(_CHOICE)):
            if len(ports) == count:
                return ports
            if _is_free(port, stack.enter_context(socket.socket())):
                ports.append(port)
    raise OSError(
        f"fewer than {count} of the ports {_CHOICE.start} to {_CHOICE.stop - 1} are free on "
        f"{_LOOPBACK}"
    )


def _is_free(port: int, holder: socket.socket) -> bool:
    try:
        holder.bind((_LOOPBACK, port))
    except OSError:
        return False
    return True
