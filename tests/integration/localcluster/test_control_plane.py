"""The control plane alone is real and fast, and leaves nothing behind."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localcluster import processes
from localcluster.api import ApiClient
from localcluster.control_plane import ControlPlane
from localcluster.kubeconfig import Access
from raybus_cli import child_processes

pytestmark = [pytest.mark.integration]

_WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""

_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {"containers": [{"name": "main", "image": "example.org/none:1"}]},
}

_CONTROLLER_MANAGER = 3
_KWOK = 5
"""Position of kwok's ports among the ports that a control plane draws; kwok binds last."""

_CRASHING = """
import asyncio, os, signal, sys
from pathlib import Path
from localcluster.control_plane import ControlPlane

async def main():
    async with ControlPlane.started(Path(sys.argv[1])) as control_plane:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_pods_become_ready_on_simulated_nodes_and_definitions_are_served(
    tmp_path: Path,
) -> None:
    crds = tmp_path / "crds"
    crds.mkdir()
    (crds / "widgets.yaml").write_text(_WIDGETS)
    async with ControlPlane.started(
        tmp_path / "cp", crds=crds, scheduler=True, kwok_nodes=1
    ) as running:
        async with running.api() as api:
            await api.apply(
                {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}}
            )
            await api.apply(_POD)
            pod = await api.wait_for(
                "pod", "/api/v1/namespaces/default/pods/one", _runs, timeout=30
            )
        assert pod["spec"]["nodeName"] == "kwok-0"
        assert running.kubeconfig.stat().st_mode & 0o077 == 0


async def test_a_service_account_may_do_only_what_rbac_grants(tmp_path: Path) -> None:
    async with ControlPlane.started(tmp_path) as running:
        path = await running.kubeconfig_for_service_account("default", "default")
        token = path.read_text().split("token: ")[1].split()[0]
        async with ApiClient(
            Access(server=running.server, ca=running.access.ca, token=token)
        ) as api:
            assert await api.get("/api/v1/namespaces/default/pods") is None
            assert await api.get("/version") is not None


async def test_the_api_server_comes_back_with_all_objects(tmp_path: Path) -> None:
    async with ControlPlane.started(tmp_path) as running, running.api() as api:
        await api.apply(_POD)
        await running.restart_api_server()
        pod = await api.get("/api/v1/namespaces/default/pods/one")
    assert pod is not None


@pytest.mark.parametrize(
    "program",
    [pytest.param(_CONTROLLER_MANAGER, id="controller-manager"), pytest.param(_KWOK, id="kwok")],
)
async def test_a_port_that_another_program_took_meanwhile_is_replaced(
    program: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = child_processes.find_free_ports
    draws: list[list[int]] = []

    def drawn(count: int) -> list[int]:
        draws.append(draw(count))
        if len(draws) == 1:
            draws[0][program] = taken.getsockname()[1]
        return draws[-1]

    monkeypatch.setattr(child_processes, "find_free_ports", drawn)
    with processes.listen() as taken:
        async with ControlPlane.started(tmp_path, kwok_nodes=1) as running, running.api() as api:
            assert await api.is_ready()
    assert len(draws) == 2


def test_a_killed_test_process_takes_the_control_plane_with_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _CRASHING, str(tmp_path)], check=False, timeout=120)
    deadline = time.monotonic() + 5
    etcd = f"--data-dir={tmp_path / 'etcd'}"
    while processes.find_by_argument(etcd) and time.monotonic() < deadline:
        asyncio.run(asyncio.sleep(0.05))
    assert (tmp_path / "etcd").is_dir()
    assert processes.find_by_argument(etcd) == []


def _runs(pod: dict[str, dict[str, str]]) -> bool:
    return pod.get("status", {}).get("phase") == "Running"
