"""KubeRay's collector, with the environment that raybus gives it, sends the logs of pods that end to an S3 store.

Only where a collector is at hand: `COLLECTOR` is the program `cmd/collector` of KubeRay's module `historyserver`. The store is versitygw, which keeps
each object as a file. What a node adds is given here: the pod's address, the name of the head, the place of the mount, and a raylet's socket.
"""

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from cluster_reconciler.config import Config
from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from localcluster import binaries
from raybus_cli import child_processes
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.builders.ray_pod import containers_of, env_of, head_of, worker_of
from support.servers.process import process
from support.servers.programs import prepared
from support.waiting import eventually, eventually_true

COLLECTOR: Final = os.environ.get("COLLECTOR", "")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not COLLECTOR, reason="COLLECTOR names no collector of KubeRay"),
]

ON: Final = Config(gates=BETA | {FeatureGate.HISTORY_SERVER})
SESSION: Final = "session_2026-01-01_00-00-00_000001_1"
KEY, SECRET = "raybus", "open-sesame"
NODES: Final = {"head": ("127.0.0.1", "aa" * 28), "worker": ("127.0.0.2", "bb" * 28)}
"""Address and identity of the Ray nodes."""
OF_A_SERVICE: Final = {
    "ray.io/originated-from-crd": "RayService",
    "ray.io/originated-from-cr-name": "demo",
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[tuple[int, Path]]:
    """Run an S3 store; return its port and the folder of its buckets."""
    (port,), objects, meta = (
        child_processes.find_free_ports(1),
        tmp_path / "objects",
        tmp_path / "meta",
    )
    objects.mkdir()
    meta.mkdir()
    command = [
        str(prepared(binaries.S3_STORE)),
        "--access",
        KEY,
        "--secret",
        SECRET,
        "--region",
        "here",
    ]
    command += ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(meta), str(objects)]

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    async with process(command, tmp_path / "store.log"):
        await eventually_true(listens, within=30, every=0.1, what="the store")
        yield port, objects


@pytest.fixture
async def dashboard() -> AsyncGenerator[int]:
    """Answer as Ray's dashboard does about its nodes; return the port."""

    async def nodes(_: web.Request) -> web.Response:
        found = [
            {"node_id": name, "node_ip": address, "state": "ALIVE"}
            for address, name in NODES.values()
        ]
        return web.json_response({"data": {"result": {"result": found}}})

    app = web.Application()
    app.router.add_get("/{path:.*}", nodes)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = child_processes.find_free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield port
    await runner.cleanup()


@pytest.fixture
def roots() -> Generator[dict[str, Path]]:
    """Make what Ray has in /tmp/ray in a head and in a worker: a session with logs, and a raylet that listens."""
    with tempfile.TemporaryDirectory(
        prefix="ray-"
    ) as folder:  # the path of a socket has at most 107 characters
        sockets: list[socket.socket] = []
        found = {role: Path(folder) / role for role in NODES}
        for role, root in found.items():
            (root / SESSION / "logs").mkdir(parents=True)
            (root / SESSION / "sockets").mkdir()
            (root / "session_latest").symlink_to(root / SESSION)
            (root / SESSION / "logs/raylet.out").write_text(f"a line of the {role}")
            sockets.append(socket.socket(socket.AF_UNIX))
            sockets[-1].bind(str(root / SESSION / "sockets/raylet"))
            sockets[-1].listen()
        yield found
        for each in sockets:
            each.close()


def environment(labels: dict[str, str], role: str, store: int) -> dict[str, str]:
    """Return the environment of the collector in the pod that raybus makes."""
    options = {
        "STORAGE_BACKEND": "s3",
        "STORAGE_ROOT_DIR": "ray",
        "S3_BUCKET": "history",
        "S3_REGION": "here",
        "S3_ENDPOINT": f"http://127.0.0.1:{store}",
        "S3FORCE_PATH_STYLE": "true",
        "S3DISABLE_SSL": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    env: list[Json] = [{"name": name, "value": value} for name, value in options.items()]
    given = {"image": "collector:1", "env": env}
    cluster = a_ray_cluster(
        labels=labels, groups=[a_group()], history_server_options={"collectorOptions": given}
    )
    pod = (head_of if role == "head" else worker_of)(cluster, ON)
    container = containers_of(pod)["ray-history-collector"]
    assert "command" not in container, "the image's own"
    return env_of(container)


@pytest.mark.parametrize(
    ("labels", "owner"),
    [({}, "raycluster/ns/c"), (OF_A_SERVICE, "rayservice/ns/demo/c")],
    ids=["cluster", "service"],
)
async def test_the_logs_of_ended_pods_are_in_the_store(
    labels: dict[str, str],
    owner: str,
    store: tuple[int, Path],
    dashboard: int,
    roots: dict[str, Path],
    tmp_path: Path,
) -> None:
    port, objects = store
    for role, (address, node) in NODES.items():
        of_the_node = {
            "POD_IP": address,
            "FQ_RAY_IP": f"127.0.0.1:{dashboard}",
            "RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{dashboard}",
            "EVENTS_PORT": str(child_processes.find_free_ports(1)[0]),
            "RAY_TMP_ROOT": str(roots[role]),
            "RAY_COLLECTOR_EVENT_DATA_DIR": str(tmp_path / f"events-{role}"),
        }
        log = tmp_path / f"{role}.log"
        async with process(
            [COLLECTOR], log, env={**environment(labels, role, port), **of_the_node}
        ) as running:
            await eventually(
                lambda log=log: "polling active session" in log.read_text(),
                within=30,
                what=f"collector of the {role}",
            )
            assert await asyncio.to_thread(running.end, signal.SIGTERM, within=20) == 0
        path = objects / "history/ray/cluster-history" / owner / SESSION / node / "logs/raylet.out"
        assert path.read_text() == f"a line of the {role}"
    records = objects / "history/ray/cluster-metadata"
    kind, *names = owner.split("/")
    assert [str(each.relative_to(records)) for each in records.rglob(SESSION)] == [
        f"{kind}/{'_'.join(names)}/{SESSION}"
    ]
