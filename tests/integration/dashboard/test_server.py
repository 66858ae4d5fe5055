"""What the dashboard's server answers, to whom, and how it begins and ends; no browser is needed."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE, SERVICE_ACCOUNT
from localcluster.control_plane import ControlPlane
from support.builders.ray_service import a_ray_service
from support.servers import dashboard
from support.servers.dashboard import Dashboard

pytestmark = [pytest.mark.integration]

PATIENCE = 30.0


async def _ask(of: Dashboard, path: str = "", *, method: str = "GET", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        return await client.request(method, of.address + path, headers=sent)


async def _first(
    of: Dashboard, event: str, path: str = "events", *, that: Callable[[Any], bool] = lambda _data: True
) -> Any:
    """Return the first event of a kind that a page is sent and that a check likes."""
    name = ""
    async with (
        httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
        client.stream("GET", of.address + path) as told,
    ):
        assert told.headers["content-type"].startswith("text/event-stream")
        async for line in told.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == event:
                data = msgspec.json.decode(line.removeprefix("data: "))
                if that(data):
                    return data
    raise AssertionError(f"no {event}")


def _bound(port: int) -> set[str]:
    """Return the addresses that sockets of this machine have at a port, as the kernel writes them."""
    lines = [line for each in ("tcp", "tcp6") for line in Path("/proc/net", each).read_text().splitlines()]
    return {address for address in (line.split()[1] for line in lines) if address.endswith(f":{port:04X}")}


async def test_what_is_answered_and_to_whom(
    control_plane: ControlPlane, namespace: str, nobodys_bus: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", namespace, *nobodys_bus)
    async with dashboard.started(tmp_path, *arguments) as running:
        page = await _ask(running)
        assert (page.status_code, "<title>raybus</title>" in page.text) == (200, True)
        port = running.address.split(":")[2].strip("/")
        answers = {
            "another name": await _ask(running, host=f"evil.example:{port}"),
            "another port": await _ask(running, host="127.0.0.1:1"),
            "localhost": await _ask(running, host=f"localhost:{port}"),
            "another site's script": await _ask(running, "events", sec_fetch_site="cross-site"),
            "a link on another site": await _ask(running, sec_fetch_site="cross-site"),
            "a file that is none": await _ask(running, "../cli.py"),
            "no name of a service": await _ask(running, "events?service=../../x"),
            **{method: await _ask(running, method=method) for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS")},
        }
        for each in (page, *answers.values()):
            assert each.headers["content-security-policy"].startswith("default-src 'none'")
            assert "access-control-allow-origin" not in each.headers
        assert {name: answer.status_code for name, answer in answers.items()} == {
            "another name": 421,
            "another port": 421,
            "localhost": 200,
            "another site's script": 403,
            "a link on another site": 200,
            "a file that is none": 404,
            "no name of a service": 400,
            **dict.fromkeys(("POST", "HEAD", "PUT", "DELETE", "OPTIONS"), 405),
        }


async def test_it_listens_on_this_machine_alone(
    control_plane: ControlPlane, nobodys_bus: tuple[str, ...], tmp_path: Path
) -> None:
    async with dashboard.started(tmp_path, "--kubeconfig", str(control_plane.kubeconfig), *nobodys_bus) as running:
        port = int(running.address.split(":")[2].strip("/"))
        assert _bound(port) == {f"0100007F:{port:04X}"}
        assert await running.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_ends_in_good_order_with_a_page_open(
    number: signal.Signals, control_plane: ControlPlane, nobodys_bus: tuple[str, ...], tmp_path: Path
) -> None:
    async with dashboard.started(tmp_path, "--kubeconfig", str(control_plane.kubeconfig), *nobodys_bus) as running:
        async with (
            httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
            client.stream("GET", f"{running.address}events") as told,
        ):
            lines = told.aiter_lines()
            assert await anext(lines) == "event: standing"
            assert await running.end(number) == 0
        assert running.said == "raybus dashboard: open that address; Ctrl-C ends it\n"


async def test_a_port_that_is_taken(control_plane: ControlPlane, nobodys_bus: tuple[str, ...], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        arguments = ("--kubeconfig", str(control_plane.kubeconfig), *nobodys_bus, "--port", port)
        async with dashboard.started(tmp_path, *arguments) as running:
            assert (running.process.wait(), running.address) == (1, "")
            assert running.said == (
                f"error: port {port} of 127.0.0.1 is taken: is another dashboard open? --port names another, "
                "--port 0 takes any free one\n"
            )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(("--kubeconfig", "/nowhere"), 2, "there is no kubeconfig /nowhere", id="no kubeconfig"),
        pytest.param(("--port", "70000"), 2, "Invalid value for '--port'", id="no port"),
        pytest.param(("--nats", "http://x"), 2, "--nats 'http://x': expected", id="no address of a NATS"),
    ],
)
async def test_a_command_that_makes_no_sense(
    words: tuple[str, ...], code: int, said: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = () if "--kubeconfig" in words else ("--kubeconfig", str(control_plane.kubeconfig))
    async with dashboard.started(tmp_path, *config, *words) as running:
        assert running.process.wait() == code
        assert said in " ".join(running.said.split())
        assert "Traceback" not in running.said


async def test_an_api_server_that_is_not_there(control_plane: ControlPlane, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(control_plane.kubeconfig.read_text().replace(control_plane.server, "https://127.0.0.1:9"))
    async with dashboard.started(tmp_path / "run", "--kubeconfig", str(config)) as running:
        assert running.process.wait() == 1
        assert running.said.startswith("error: the API server at https://127.0.0.1:9 does not answer")
        assert len(running.said.splitlines()) == 1


async def test_who_may_not_list_is_told_so(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    await kube.create(
        SERVICE_ACCOUNT, namespace, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    )
    config = await control_plane.kubeconfig_for_service_account(namespace, "nobody")
    async with dashboard.started(tmp_path, "--kubeconfig", str(config), "-A") as running:
        assert running.process.wait() == 1
        assert "cannot list resource" in running.said
        assert len(running.said.splitlines()) == 1


async def test_a_cluster_without_raybus_has_no_events_and_says_so(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", namespace, "--raybus-namespace", namespace)
    async with dashboard.started(tmp_path, *arguments) as running:
        assert await _first(running, "rows") == {"all": True, "rows": [], "gone": []}
        standing = await _first(running, "standing", that=lambda data: data["hearing"] == "away")
        assert (standing["namespace"], standing["problem"]) == (namespace, "")
        assert standing["deaf"].startswith(f"namespace {namespace} has no Secret nats-user-subscriber")


async def test_a_service_that_is_chosen_is_looked_at(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, nobodys_bus: tuple[str, ...], tmp_path: Path
) -> None:
    body = a_ray_service()
    body["metadata"] = {"name": "demo"}
    await kube.create(RAY_SERVICE, namespace, body)
    arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", namespace, *nobodys_bus)
    async with dashboard.started(tmp_path, *arguments) as running:
        found = await _first(running, "detail", f"events?service={namespace}/demo")
        assert (found["row"]["phase"], found["problem"]) == ("Starting", "")
        gone = await _first(running, "detail", f"events?service={namespace}/nobody")
        assert (gone["row"], gone["problem"]) == (None, "")
