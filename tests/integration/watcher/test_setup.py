"""What an installation does before the services run, and how they end when that went wrong."""

import base64
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.bus import credentials, permissions, provision
from common.bus.nats import connect
from common.kube import resources
from common.kube.client import KubeClient
from common.runtime.settings import Settings
from localcluster.control_plane import ControlPlane
from support.servers.nats import NatsServer
from support.servers.relayed import Relayed
from support.waiting import eventually

pytestmark = [pytest.mark.integration]


def run(control_plane: ControlPlane, namespace: str) -> str:
    command = [sys.executable, "-m", "common.bus.provision", "credentials", "--secrets", namespace]
    command += ["--kubeconfig", str(control_plane.kubeconfig)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def secret(kube: KubeClient, namespace: str, name: str) -> dict[str, bytes]:
    found = msgspec.json.decode(await kube.get(resources.SECRET, namespace, name), type=dict[str, Any])
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


async def test_secrets_are_made_once(control_plane: ControlPlane, kube: KubeClient, namespace: str) -> None:
    first = run(control_plane, namespace)
    server = await secret(kube, namespace, "nats-server")

    assert all(f"nats-user-{user.name}" in first for user in permissions.USERS)
    assert set(server) == {"nats-server.conf", "tls.crt", "tls.key", "ca.crt"}
    watcher = await secret(kube, namespace, "nats-user-watcher")
    assert credentials.public_key(watcher["seed"].decode()) in server["nats-server.conf"].decode()
    assert watcher["ca.crt"] == server["ca.crt"]

    assert "nothing was missing" in run(control_plane, namespace)
    assert await secret(kube, namespace, "nats-server") == server


async def test_a_server_that_hangs_is_noticed(world: Relayed) -> None:
    world.nats.freeze()
    await eventually(lambda: not world.reader.is_synced, within=30.0, what="the reader's doubt")

    world.nats.thaw()
    await world.until_synced(within=30.0)
    assert any("silent" in each or "lost" in each for each in world.reader.reasons)


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
        environment = {**os.environ, "RAYBUS_KUBECONFIG": str(control_plane.kubeconfig), "RAYBUS_HTTP_PORT": port}
        command = [sys.executable, "-m", "watcher"]
        ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=30)

    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("watcher: ")
    assert port in ended.stderr.splitlines()[-1]
