"""A Docker engine: the one that answers, or Debian's, in namespaces of its own until the test ends."""

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from localcluster import binaries
from localcluster.images import debian
from localcluster.images.builder import ImageArchive
from localcluster.progress import Progress
from raybus_cli.child_processes import bind_to_parent
from support.servers.programs import REMEDY, prepared

PACKAGES: Final[debian.Packages] = {"docker.io": ("dockerd",)}
START_SECONDS: Final = 60.0
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET: Final = 0x40000000


class Engine:
    """A Docker engine; `DOCKER_HOST` names it."""

    def __init__(self, outside: Sequence[str] = ()) -> None:
        self._outside = outside
        """Command that runs a program in the engine's process namespace."""

    def run(self, *arguments: str) -> str:
        """Run a command of `docker` and return its output.

        Raises:
            AssertionError: The command failed.
        """
        done = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def load(self, images: Mapping[str, ImageArchive]) -> None:
        for archive in images.values():
            self.run("load", "--quiet", "--input", str(archive.path))

    def crash(self, container: str) -> None:
        """Kill the first process of a container.

        `docker kill` is no crash: the engine does not restart a container after it.
        """
        pid = self.run("inspect", "--format", "{{.State.Pid}}", container).strip()
        subprocess.run([*self._outside, "kill", "-KILL", pid], check=True)


def answers() -> bool:
    """Return whether an engine answers within 10 s."""
    try:
        asked = ["docker", "version", "--format", "{{.Server.Version}}"]
        done = subprocess.run(asked, capture_output=True, check=False, timeout=10)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def install(progress: Progress) -> None:
    """Install Debian's engine, unless one answers."""
    if not answers():
        debian.install(PACKAGES, progress)


@contextmanager
def engine(folder: Path, *, with_compose: bool = True) -> Generator[Engine]:
    """Provide an engine for a block, with Docker Compose as a plugin of `docker`.

    If none answers, one is started. Until the end of the block, this process and the programs that
    it starts are then in the engine's network, where no ports are in use. All processes, mounts and
    containers of the engine end with the block, or with this process.
    """
    with pytest.MonkeyPatch.context() as environment:
        if with_compose:
            environment.setenv("DOCKER_CONFIG", str(_configure(folder)))
        if answers():
            yield Engine()
            return
        missing = debian.list_missing(PACKAGES)
        assert not missing, f"no Docker engine answers or is installed: {REMEDY}"
        assert os.geteuid() == 0, "only root can start a Docker engine; start one yourself"
        environment.setenv("DOCKER_HOST", f"unix://{folder}/docker.sock")
        with _own_network(), _started(folder) as own:
            yield own


def _configure(folder: Path) -> Path:
    """Write a configuration with Docker Compose as a plugin; return its folder."""
    plugins = folder / "config" / "cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(prepared(binaries.DOCKER_COMPOSE))
    return plugins.parent


@contextmanager
def _own_network() -> Generator[None]:
    """Put this thread into a new network namespace, and its threads and child processes with it."""
    with Path("/proc/thread-self/ns/net").open() as previous:
        if _LIBC.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            if _LIBC.setns(previous.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def _started(folder: Path) -> Generator[Engine]:
    log = folder / "dockerd.log"
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    flags = [f"--{name}={folder / name}" for name in ("data-root", "exec-root", "pidfile")]
    # The containers use the network of the engine, so it needs neither a bridge nor firewall rules.
    flags += ["--bridge=none", "--iptables=false", "--ip6tables=false"]
    program = ["dockerd", "--host", f"unix://{folder}/docker.sock", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(
            # The first process of the namespace must reap the processes of ended containers.
            bind_to_parent([*namespaces, "--", "docker-init", "--", *program]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers():
            is_starting = process.poll() is None and time.monotonic() < deadline
            assert is_starting, log.read_text()[-2000:]
            time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Engine(["nsenter", f"--target={children[0]}", "--mount", "--pid", "--"])
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder / "data-root", ignore_errors=True)
