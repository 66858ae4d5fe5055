"""Starts, identifies and stops the programs of a cluster, and opens listening sockets.

A process is identified by its pid and its start time, because the kernel may give the same pid to
another process later.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from localcluster.errors import ClusterError
from raybus_cli.child_processes import bind_to_parent, end_child

_STARTTIME_FIELD = 19
"""Index of `starttime` among the fields of /proc/<pid>/stat after the command name.

It is field 22 in proc(5).
"""

_STATE_FIELD = 0

_KLOG_ERROR = re.compile(r"[EF]\d{4} ")
_SHOWN = 150
"""Characters that an error shows of the beginning of a long line, and as many of its end."""


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a process. A later process with the same pid has another identity."""

    name: str
    pid: int
    started: int
    """Start time in clock ticks since boot; 0 on a system without /proc."""


class Spawned(msgspec.Struct, frozen=True, kw_only=True):
    """A program that this process started."""

    identity: ProcessId
    popen: subprocess.Popen[bytes]
    log: Path


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """Exit code, standard output and standard error of a program."""

    code: int
    output: str
    errors: str


def spawn(
    name: str,
    argv: Sequence[str],
    log: Path,
    *,
    dies_with_us: bool,
    keep: Sequence[int] = (),
    defaults: Mapping[str, str] | None = None,
) -> Spawned:
    """Start a long-running program in a new session, with its output appended to `log`.

    With `dies_with_us`, the kernel kills the program when the *thread* that started it ends for any
    reason (prctl(2), PR_SET_PDEATHSIG), so call this function from the main thread. The file
    descriptors `keep` are inherited. The environment variables `defaults` apply unless this process
    has its own values. Raises `ClusterError` if the program cannot be started.
    """
    command = bind_to_parent(argv) if dies_with_us else list(argv)
    with log.open("ab") as output:
        try:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=keep,
                env={**(defaults or {}), **os.environ},
            )
        except OSError as error:
            raise ClusterError(f"cannot start {name}: {error}") from error
    return Spawned(identity=identify(name, popen.pid), popen=popen, log=log)


def identify(name: str, pid: int) -> ProcessId:
    """Return the identity of the running process with this pid."""
    return ProcessId(name=name, pid=pid, started=_start_time(pid) or 0)


def is_alive(process: ProcessId) -> bool:
    """Return whether the process still runs.

    A zombie, or another process with the same pid, does not count.
    """
    fields = _read_stat(process.pid)
    if fields is None:
        return False
    return fields[_STATE_FIELD] != "Z" and int(fields[_STARTTIME_FIELD]) == process.started


def kill(process: ProcessId) -> None:
    """Kill the process if it still runs, but never another process with the same pid."""
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def end(processes: Sequence[Spawned]) -> None:
    """Kill programs with SIGKILL and reap them. None of them needs a clean shutdown."""
    for process in processes:
        process.popen.kill()
    for process in processes:
        await asyncio.to_thread(process.popen.wait)


async def wait_until_gone(processes: Sequence[ProcessId], *, timeout: float) -> list[ProcessId]:
    """Wait until none of the processes runs.

    Return those that still run after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        left = [process for process in left if is_alive(process)]
    return left


async def run(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Finished:
    """Run a program until it exits; return its exit code and output.

    The program is killed if the task is cancelled. Raises `ClusterError` if it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            cwd=cwd,
        )
    except OSError as error:
        raise ClusterError(
            f"cannot start {argv[0]}: {error.strerror}; install it, and put it on PATH"
        ) from error
    try:
        output, errors = await process.communicate(stdin)
    except BaseException:
        await end_child(process)
        raise
    return Finished(
        code=process.returncode or 0,
        output=output.decode(errors="replace"),
        errors=errors.decode(errors="replace"),
    )


async def follow(
    argv: Sequence[str],
    on_line: Callable[[str], None],
    *,
    environment: Mapping[str, str],
    cwd: Path,
) -> Finished:
    """Run a program until it exits, and call `on_line` with each line of its standard error.

    The program is killed if the task is cancelled.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(environment),
        cwd=cwd,
    )
    lines: list[str] = []
    try:
        if process.stderr is not None:
            async for raw in process.stderr:
                lines.append(raw.decode(errors="replace").rstrip())
                on_line(lines[-1])
        code = await process.wait()
    except BaseException:
        await end_child(process)
        raise
    return Finished(code=code, output="", errors="\n".join(lines))


async def run_checked(what: str, argv: Sequence[str], *, stdin: bytes | None = None) -> str:
    """Run a program and return its output.

    Raises `ClusterError` with `what` and the last error line if it fails.
    """
    finished = await run(argv, stdin=stdin)
    if finished.code != 0:
        raise ClusterError(
            f"{what} failed ({argv[0]} exit code {finished.code}): "
            f"{find_last_line(finished.errors)}"
        )
    return finished.output


def find_last_line(text: str) -> str:
    """Return the last line that is not empty, for a one-line error message.

    A long line is shortened in its middle, because the cause usually is at its end.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no output"
    return (
        lines[-1]
        if len(lines[-1]) <= 2 * _SHOWN
        else f"{lines[-1][:_SHOWN]} … {lines[-1][-_SHOWN:]}"
    )


def find_last_error(log: str) -> str:
    """Return the last error line of a Kubernetes log (klog), or else its last non-empty line."""
    errors = [line for line in log.splitlines() if _KLOG_ERROR.match(line)]
    return find_last_line("\n".join(errors) or log)


def find_by_argument(argument: str) -> list[ProcessId]:
    """Return the processes that have `argument` on their command line.

    A node whose record is missing is found in this way.
    """
    return [
        identify(Path(arguments[0]).name, pid)
        for pid, arguments in _list_command_lines()
        if argument in arguments
    ]


def find_working_in(folder: Path, programs: Container[str]) -> list[ProcessId]:
    """Return the processes of these programs that have a path inside `folder` as an argument."""
    inside = f"{folder}/"
    return [
        identify(Path(arguments[0]).name, pid)
        for pid, arguments in _list_command_lines()
        if Path(arguments[0]).name in programs and any(inside in argument for argument in arguments)
    ]


def _list_command_lines() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if int(entry.name) != os.getpid():
            yield int(entry.name), arguments


def _start_time(pid: int) -> int | None:
    fields = _read_stat(pid)
    return None if fields is None else int(fields[_STARTTIME_FIELD])


def _read_stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name is in parentheses, and may contain spaces and parentheses itself.
    return text[text.rindex(")") + 2 :].split()


Listening = socket.socket

_LOOPBACK = "127.0.0.1"


def listen(port: int = 0) -> Listening:
    """Open a listening socket on loopback for a program to inherit.

    Port 0 takes a free port. Raises `OSError` if the port is in use.
    """
    opened = socket.socket()
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((_LOOPBACK, port))
        opened.listen(128)
    except OSError:
        opened.close()
        raise
    return opened
