"""nats-server in containers, in place of the processes that tests start otherwise.

The image has one program, which is built from the Go module of the server, so that no registry is
needed. The containers use the network of the engine, which is also that of the tests.
"""

import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from support.servers import docker, shell_image
from support.servers.nats import NatsServer
from support.servers.programs import prepared

SIGNALLED: Final = 128
"""Exit code of a container whose program was ended by a signal, minus the signal's number."""
POLL_SECONDS: Final = 0.02


class RunningContainer:
    """A started container, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, container: DockerContainer) -> None:
        self._container = container
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """The id of the container's process in the namespace of the engine."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return int(wrapped.attrs["State"]["Pid"])

    def poll(self) -> int | None:
        """Return the exit code, negative after a signal; None while the container runs."""
        if self._code is None:
            wrapped = self._container.get_wrapped_container()
            wrapped.reload()
            if not wrapped.attrs["State"]["Running"]:
                code = int(wrapped.attrs["State"]["ExitCode"])
                self._code = SIGNALLED - code if code > SIGNALLED else code
                self._container.stop()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise `TimeoutExpired` as `Popen` does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("nats-server in a container", timeout)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, as `docker kill` does, to a container that still runs."""
        if self.poll() is None:
            self._container.get_wrapped_container().kill(signal=int(sig))

    def kill(self) -> None:
        """Kill the program."""
        self.send_signal(SIGKILL)


class ContainerStarter:
    """Starts nats-servers of one image."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._started: list[RunningContainer] = []

    def start(self, server: NatsServer, command: Sequence[str]) -> RunningContainer:
        """Start a container with the arguments of a server's command.

        It sees the server's folder, and the folders beside it, under the same paths. The server
        writes its log itself.
        """
        folder = str(server.folder.parent)
        container = (
            DockerContainer(self._image)
            .with_kwargs(network_mode="host", entrypoint="/bin/nats-server")
            .with_volume_mapping(folder, folder, "rw")
            .with_command([*command[1:], "--log", str(server.log)])
        )
        container.start()
        running = RunningContainer(container)
        self._started.append(running)
        return running

    def end(self) -> None:
        """Kill the containers that still run."""
        for running in self._started:
            running.kill()
            running.wait()


@contextmanager
def used(folder: Path, version: str) -> Generator[None]:
    """Let each `NatsServer` of a block be a container of this version."""
    program = prepared(f"nats-server-{version}")
    link = folder / "nats-server"
    link.symlink_to(program)
    name = f"registry.invalid/raybus/nats:{version}"
    archive = shell_image.write_programs(folder / "nats.tar", name, [link])
    with (
        docker.engine(folder, with_compose=False) as engine,
        pytest.MonkeyPatch.context() as patch,
    ):
        engine.run("load", "--quiet", "--input", str(archive))
        # The helper that removes forgotten containers is another image; the engine ends anyway.
        patch.setattr(testcontainers_config, "ryuk_disabled", True)
        starter = ContainerStarter(name)

        def spawn(server: NatsServer, command: Sequence[str], **_outputs: object) -> None:
            server.adopt(starter.start(server, command))

        patch.setattr(NatsServer, "spawn", spawn)
        try:
            yield
        finally:
            starter.end()
