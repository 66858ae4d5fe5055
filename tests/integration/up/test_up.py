"""`raybus up` on a real API server: it reports when all is ready, heals itself, and leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from localcluster.control_plane import ControlPlane
from support.servers.raybus_up import is_alive, started
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

PROGRAMS = [
    *("nats", "watcher", "cluster-reconciler", "service-reconciler", "traffic-manager"),
    "job-reconciler",
]


async def test_it_reports_the_pids_of_what_runs_and_ends_all(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with started(tmp_path, "--kubeconfig", str(control_plane.kubeconfig)) as up:
        announced = await up.ready()
        assert list(announced.pids) == PROGRAMS
        assert all(map(is_alive, announced.all))
        began = time.monotonic()
        code = await asyncio.to_thread(up.end, signal.SIGTERM, within=15)
    assert (code, time.monotonic() - began < 10) == (0, True)
    assert [pid for pid in announced.all if is_alive(pid)] == []
    assert len(up.results) == 1
    assert up.left_behind == []


async def test_what_is_killed_starts_again(control_plane: ControlPlane, tmp_path: Path) -> None:
    with started(tmp_path, "--kubeconfig", str(control_plane.kubeconfig)) as up:
        announced = await up.ready()
        os.kill(announced.one("nats"), signal.SIGKILL)
        os.kill(announced.one("watcher"), signal.SIGKILL)
        await eventually(
            lambda: "watcher is not ready" in up.reported.partition("watcher is ready")[2],
            what=up.reported,
        )
        await eventually(
            lambda: up.reported.count("watcher is ready") > 1, within=30, what="a new watcher"
        )
        assert "nats was ended by SIGKILL; it restarts in" in up.reported
        assert "Traceback" not in up.reported


async def test_nothing_outlives_a_kill(control_plane: ControlPlane, tmp_path: Path) -> None:
    with started(tmp_path, "--kubeconfig", str(control_plane.kubeconfig)) as up:
        announced = await up.ready()
        up.end(signal.SIGKILL, within=5)
        await eventually(
            lambda: not any(map(is_alive, announced.all)), within=5, what="the end of all"
        )


async def test_it_waits_for_an_api_server_that_comes_later(tmp_path: Path) -> None:
    crds = Path(__file__).parents[3] / "deploy" / "crds"
    async with ControlPlane.started(tmp_path / "control-plane", crds=crds) as own:
        await own.stop_api_server()
        with started(tmp_path / "up", "--kubeconfig", str(own.kubeconfig)) as up:
            await eventually(
                lambda: "trying again" in up.reported,
                within=30,
                what="a message about the API server",
            )
            await own.start_api_server()
            await up.ready()
    assert f"the API server at {own.server} does not answer" in up.reported
    assert "Traceback" not in up.reported


async def test_it_names_the_command_that_installs_missing_crds(tmp_path: Path) -> None:
    async with ControlPlane.started(tmp_path / "control-plane") as own:
        with started(tmp_path / "up", "--kubeconfig", str(own.kubeconfig)) as up:
            await eventually(
                lambda: "kubectl apply -k deploy/crds" in up.reported,
                within=30,
                what="a message about CRDs",
            )
            assert await asyncio.to_thread(up.end, signal.SIGINT, within=10) == 0


async def test_it_uses_a_nats_server_that_runs_already(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    folder, address = tmp_path / "nats", "127.0.0.1"
    with started(
        tmp_path / "one", "--kubeconfig", str(control_plane.kubeconfig), "--data-dir", str(folder)
    ) as one:
        first = await one.ready()
        port = (
            (folder / "nats-server.conf")
            .read_text()
            .partition(f'listen: "{address}:')[2]
            .partition('"')[0]
        )
        own = ["--nats", f"tls://{address}:{port}", "--nats-credentials", str(folder)]
        with started(tmp_path / "two", "--kubeconfig", str(control_plane.kubeconfig), *own) as two:
            second = await two.ready()
    assert second.pids.keys() == first.pids.keys() - {"nats"}


def test_credentials_are_refused_with_one_line(control_plane: ControlPlane, tmp_path: Path) -> None:
    stranger = tmp_path / "kubeconfig"
    text = control_plane.kubeconfig.read_text()
    stranger.write_text(
        "\n".join("    token: wrong" if "token:" in line else line for line in text.splitlines())
    )
    with started(tmp_path / "up", "--kubeconfig", str(stranger)) as up:
        assert up.process.wait(timeout=30) == 1
    assert up.reported.startswith(f"error: {control_plane.server} denies access: ")
    assert len(up.reported.splitlines()) == 1


def test_setpriv_is_here_to_guard_the_children() -> None:
    assert subprocess.run(["setpriv", "--version"], check=True, capture_output=True).stdout
