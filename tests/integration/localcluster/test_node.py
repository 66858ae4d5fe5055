"""A whole node: pods run and find each other, and two nodes run side by side.

Nothing of a node is left, however it ended.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from localcluster import kubeconfig, processes
from localcluster.api import ApiClient
from localcluster.driver import ClusterRecord, ClusterRequest
from localcluster.drivers.built import Built
from localcluster.errors import ClusterError
from localcluster.node import namespaces
from localcluster.progress import Progress
from localcluster.settings import Layout, LocalSettings, is_root
from support import node
from support.servers import shell_image
from support.waiting import eventually

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(not is_root(), reason="a node needs root"),
    # A node outlives the command that starts it.
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]

_REACHED = "reached by its name"
_SCRIPT = (
    f"exec 3<>/dev/tcp/kubernetes.default.svc.cluster.local/443 && echo '{_REACHED}'; sleep 600"
)


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """The names and folders of one test's nodes."""

    settings: LocalSettings
    tag: str

    def layout(self, number: int) -> Layout:
        return self.settings.layout(f"t{number}-{self.tag}")

    def request(self, number: int) -> ClusterRequest:
        return ClusterRequest(layout=self.layout(number), settings=self.settings, gateway=False)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    state = tmp_path / "state"
    given = msgspec.structs.replace(LocalSettings.from_environment(), state_root=state / "raybus")
    made = Bench(settings=given, tag=uuid4().hex[:6])
    with ExitStack() as stack:
        for number in (1, 2):
            command = node.removal(made.layout(number).name)
            stack.enter_context(
                node.cleaned_up(*command, environment={"XDG_STATE_HOME": str(state)})
            )
        try:
            yield made
        finally:
            for number in (1, 2):
                await Built().down(made.layout(number), Progress.silent(), purge=True)


async def test_two_nodes_side_by_side_run_pods_that_reach_services_by_name(
    bench: Bench, tmp_path: Path
) -> None:
    image = shell_image.write(tmp_path / "shell.tar")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(Built().up(bench.request(number), Progress.silent()))
            for number in (1, 2)
        ]
    for number, task in enumerate(tasks, start=1):
        known = task.result()
        assert await Built().load(known, bench.layout(number), [image]) == [shell_image.NAME]
        assert await Built().load(known, bench.layout(number), [image]) == []
        assert _REACHED in await _logs_of_a_pod(known)
        assert (
            await _kubectl(known, "exec", "shell", "--", "bash", "-c", "echo inside $HOSTNAME")
            == "inside shell\n"
        )
    await Built().down(bench.layout(1), Progress.silent(), purge=True)
    assert _left_of(bench.layout(1)) == []
    assert (
        await _kubectl(tasks[1].result(), "exec", "shell", "--", "bash", "-c", "echo still")
        == "still\n"
    )


async def test_a_second_start_keeps_images_and_forgets_containers(
    bench: Bench, tmp_path: Path
) -> None:
    image = shell_image.write(tmp_path / "shell.tar")
    known = await Built().up(bench.request(1), Progress.silent())
    await Built().load(known, bench.layout(1), [image])
    await _logs_of_a_pod(known)
    await Built().down(bench.layout(1), Progress.silent(), purge=False)
    again = await Built().up(bench.request(1), Progress.silent())
    assert await Built().load(again, bench.layout(1), [image]) == []
    assert _REACHED in await _logs_of_a_pod(again)


async def test_a_running_node_gets_a_gateway_and_keeps_it(bench: Bench, tmp_path: Path) -> None:
    image = shell_image.write(tmp_path / "shell.tar")
    without = msgspec.structs.replace(bench.request(1), gateway_api=True, images=(image,))
    known = await Built().up(without, Progress.silent())
    assert not known.gateway
    assert await Built().load(known, bench.layout(1), [image]) == []
    assert await _kubectl(known, "get", "gatewayclasses", "-o", "name") == ""
    extended = await Built().up(msgspec.structs.replace(without, gateway=True), Progress.silent())
    assert (extended.gateway, extended.processes) == (True, known.processes)
    assert (
        await _kubectl(known, "get", "gatewayclasses", "-o", "name")
        == "gatewayclass.gateway.networking.k8s.io/eg\n"
    )
    assert await Built().up(without, Progress.silent()) == extended


async def test_nothing_is_left_of_a_node_after_its_programs_were_killed(bench: Bench) -> None:
    known = await Built().up(bench.request(1), Progress.silent())
    victims = [
        process
        for process in known.processes
        if process.name in {"containerd", "kubelet", "forward", "etcd"}
    ]
    for victim in victims:
        processes.kill(victim)
    assert await processes.wait_until_gone(victims, timeout=5) == []
    await Built().down(bench.layout(1), Progress.silent(), purge=True)
    assert _left_of(bench.layout(1)) == []


async def test_nothing_is_left_of_a_start_that_was_killed_half_way(
    bench: Bench, tmp_path: Path
) -> None:
    layout = bench.layout(1)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "half")}
    half = msgspec.structs.replace(bench.settings, state_root=tmp_path / "half" / "raybus").layout(
        layout.name
    )
    command = [sys.executable, "-m", "localcluster", "up", "--no-gateway", "--name", layout.name]
    starting = await asyncio.create_subprocess_exec(
        *command, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await _until_programs_run(layout.name)
    finally:
        starting.kill()
        await starting.wait()
    assert _left_of(half) != []
    await Built().down(half, Progress.silent(), purge=True)
    assert _left_of(half) == []


async def test_nothing_is_left_of_a_node_after_the_test_that_started_it_was_killed(
    bench: Bench, tmp_path: Path
) -> None:
    name, state = bench.layout(1).name, tmp_path / "killed"
    code = f"""
import os, signal, subprocess, sys
from support import node
with node.cleaned_up(*node.removal({name!r})):
    subprocess.run([sys.executable, "-m", "localcluster", "up", "--no-gateway", "--name", {name!r}], check=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(state),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    test = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=environment)
    assert await test.wait() == -signal.SIGKILL
    layout = msgspec.structs.replace(bench.settings, state_root=state / "raybus").layout(name)
    await eventually(lambda: _left_of(layout) == [], within=60.0, what="the removal of the node")


async def test_a_port_in_use_is_named(bench: Bench) -> None:
    with processes.listen() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} is in use"):
            await Built().up(
                msgspec.structs.replace(bench.request(1), port=port), Progress.silent()
            )
    assert _left_of(bench.layout(1)) == []


async def _logs_of_a_pod(known: ClusterRecord) -> str:
    spec = {
        "containers": [
            {"name": "main", "image": shell_image.NAME, "command": ["bash", "-c", _SCRIPT]}
        ]
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shell"},
        "spec": spec,
    }
    async with ApiClient(kubeconfig.read_access(known.kubeconfig)) as api:
        await api.apply(pod)
        await api.wait_for("running", "/api/v1/namespaces/default/pods/shell", _runs, timeout=60)
    return await _kubectl(known, "logs", "shell", "--follow", "--limit-bytes=19")


def _runs(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") == "Running"


async def _kubectl(known: ClusterRecord, *arguments: str) -> str:
    argv = [str(known.binaries["kubectl"]), "--kubeconfig", str(known.kubeconfig), *arguments]
    return await processes.run_checked("kubectl", argv)


async def _until_programs_run(name: str) -> None:
    async with asyncio.timeout(60):
        while (node := namespaces.find(name)) is None or len(_in_same_network(node.first.pid)) < 4:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


def _in_same_network(pid: int) -> list[str]:
    network = _network(str(pid))
    return [entry.name for entry in Path("/proc").glob("[0-9]*") if _network(entry.name) == network]


def _network(pid: str) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return None


def _left_of(layout: Layout) -> list[str]:
    """Return every trace of a node that this machine still shows, except empty standard folders."""
    found = [
        f"process {process.pid}"
        for process in processes.find_by_argument(namespaces.build_marker(layout.name))
    ]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if f"{layout.state}/" in line and int(entry.name) != os.getpid():
            found.append(f"process {entry.name} {line[:80]}")
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [
        f"mount {line}" for line in mounts if layout.name in line or str(layout.state) in line
    ]
    found += [f"cgroup {path}" for path in namespaces.list_cgroups(layout.name)]
    return [*found, f"folder {layout.state}"] if layout.state.exists() else found
