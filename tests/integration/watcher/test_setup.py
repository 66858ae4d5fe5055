"""What an installation does before the services run, and how they end when that went wrong."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common.bus.nats import connect
from common.settings import Settings
from localcluster.control_plane import ControlPlane
from nats_admin import provision
from support.servers.nats import NatsServer
from support.servers.relayed import Relayed
from support.waiting import eventually

pytestmark = [pytest.mark.integration]


async def test_a_server_that_hangs_is_noticed(harness: Relayed) -> None:
    harness.nats.freeze()
    await eventually(lambda: not harness.reader.is_synced, within=30.0, what="a stale reader")

    harness.nats.thaw()
    await harness.until_synced(within=30.0)
    assert any("silent" in each or "lost" in each for each in harness.reader.reasons)


async def test_a_server_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.start()
    server.kill()
    try:
        async with connect(Settings(service="late", nats_url=server.url)) as bus:
            await eventually(lambda: "is not reachable" in (bus.problem or ""), what="the reason")
            assert server.url in str(bus.problem)
            server.start()
            await eventually(lambda: bus.problem is None, what="the connection")
    finally:
        server.kill()


def test_a_seed_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert provision.main(["streams", "--outside-seed", "/no/such/file"]) == 2
    assert "--outside-seed /no/such/file: no such file" in capsys.readouterr().err


@pytest.mark.parametrize("attempt", range(3))
def test_a_port_in_use_is_one_line(control_plane: ControlPlane, attempt: int) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104  (what the watcher binds)
        taken.listen()
        port = str(taken.getsockname()[1])
        environment = {
            **os.environ,
            "RAYBUS_KUBECONFIG": str(control_plane.kubeconfig),
            "RAYBUS_HTTP_PORT": port,
        }
        command = [sys.executable, "-m", "watcher"]
        ended = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=30
        )

    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("watcher: ")
    assert port in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("gates", ["SidecarSubmitterRestart=true", "AllAlpha=true"])
def test_a_gate_that_needs_a_newer_kubernetes_is_one_line(
    control_plane: ControlPlane, gates: str
) -> None:
    environment = {
        **os.environ,
        "RAYBUS_KUBECONFIG": str(control_plane.kubeconfig),
        "RAYBUS_HTTP_PORT": "0",
        "RAYBUS_FEATURE_GATES": gates,
    }
    command = [sys.executable, "-m", "watcher"]
    ended = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=30
    )

    assert ended.returncode == 2
    line = ended.stderr.splitlines()[-1]
    assert line.startswith("watcher: feature gate SidecarSubmitterRestart requires Kubernetes 1.35")
    assert line.endswith("set SidecarSubmitterRestart=false")
