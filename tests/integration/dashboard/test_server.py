"""The answers of the dashboard's server to its clients, and how it begins and ends; no browser is needed."""

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
from support.tables import cases

pytestmark = [pytest.mark.integration]

TIMEOUT = 30.0


async def _ask(
    of: Dashboard, path: str = "", *, method: str = "GET", **headers: str
) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
        return await client.request(method, of.address + path, headers=sent)


async def _first(
    of: Dashboard,
    event: str,
    path: str = "events",
    *,
    that: Callable[[Any], bool] = lambda _data: True,
) -> Any:
    """Return the first event of a kind that a page is sent and that a check likes."""
    name = ""
    async with (
        httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client,
        client.stream("GET", of.address + path) as reported,
    ):
        assert reported.headers["content-type"].startswith("text/event-stream")
        async for line in reported.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == event:
                data = msgspec.json.decode(line.removeprefix("data: "))
                if that(data):
                    return data
    raise AssertionError(f"no {event}")


def _bound(port: int) -> set[str]:
    """Return the addresses that sockets of this machine have at a port, as the kernel writes them."""
    lines = [
        line
        for each in ("tcp", "tcp6")
        for line in Path("/proc/net", each).read_text().splitlines()
    ]
    return {
        address
        for address in (line.split()[1] for line in lines)
        if address.endswith(f":{port:04X}")
    }


async def test_the_answer_to_each_request(
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
            **{
                method: await _ask(running, method=method)
                for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS")
            },
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


async def test_actions_need_the_token_and_the_page_itself(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    nobodys_bus: tuple[str, ...],
    tmp_path: Path,
) -> None:
    body = a_ray_service()
    body["metadata"] = {"name": "demo"}
    made = msgspec.json.decode(await kube.create(RAY_SERVICE, namespace, body))
    arguments = (
        "--kubeconfig",
        str(control_plane.kubeconfig),
        "-n",
        namespace,
        "--controls",
        *nobodys_bus,
    )
    async with dashboard.started(tmp_path, *arguments) as running:
        address, _, token = running.address.partition("?token=")
        asked = {
            "service": f"{namespace}/demo",
            "verb": "pause",
            "generation": made["metadata"]["generation"],
        }
        good = {
            "Origin": address.rstrip("/"),
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
        }

        async def act(body: object = asked, **changed: str | bytes) -> httpx.Response:
            given = good | {name.replace("_", "-"): value for name, value in changed.items()}
            headers = httpx.Headers(
                [
                    (name.encode(), value if isinstance(value, bytes) else value.encode())
                    for name, value in given.items()
                ]
            )
            content = body if isinstance(body, bytes) else msgspec.json.encode(body)
            async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
                return await client.post(f"{address}actions", content=content, headers=headers)

        async def annotations() -> dict[str, str]:
            found = msgspec.json.decode(await kube.get(RAY_SERVICE, namespace, "demo"))
            return found["metadata"].get("annotations", {})

        answers = {
            "no token": await act(Authorization=""),
            "another token": await act(Authorization="Bearer x"),
            "a token that is no text": await act(Authorization=b"Bearer \xff"),
            "another site": await act(Origin="http://evil.example"),
            "no site": await act(Origin=""),
            "a form of another site": await act(Content_Type="text/plain"),
            "another site's script": await act(Sec_Fetch_Site="cross-site"),
            "no JSON": await act("pause"),
            "no text": await act(b'{"service": "\xff"}'),
            "another field": await act({**asked, "namespace": "x"}),
            "no name of a service": await act({**asked, "service": "../x"}),
            "too long": await act({**asked, "verb": "x" * 5000}),
            "another verb": await act({**asked, "verb": "delete"}),
            "what was seen before": await act({**asked, "generation": 0}),
        }
        assert {name: each.status_code for name, each in answers.items()} == {
            "no token": 401,
            "another token": 401,
            "a token that is no text": 401,
            "another site": 403,
            "no site": 403,
            "a form of another site": 403,
            "another site's script": 403,
            "no JSON": 400,
            "no text": 400,
            "another field": 400,
            "no name of a service": 400,
            "too long": 413,
            "another verb": 400,
            "what was seen before": 409,
        }
        assert "raybus.io/pause" not in await annotations()
        done = await act()
        assert (done.status_code, done.text.split(" ")[:2]) == (200, ["demo", "paused:"])
        assert (await annotations())["raybus.io/pause"] == "true"


async def test_it_listens_on_this_machine_alone(
    control_plane: ControlPlane, nobodys_bus: tuple[str, ...], tmp_path: Path
) -> None:
    async with dashboard.started(
        tmp_path, "--kubeconfig", str(control_plane.kubeconfig), *nobodys_bus
    ) as running:
        port = int(running.address.split(":")[2].strip("/"))
        assert _bound(port) == {f"0100007F:{port:04X}"}
        assert await running.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_ends_in_good_order_with_a_page_open(
    number: signal.Signals,
    control_plane: ControlPlane,
    nobodys_bus: tuple[str, ...],
    tmp_path: Path,
) -> None:
    async with dashboard.started(
        tmp_path, "--kubeconfig", str(control_plane.kubeconfig), *nobodys_bus
    ) as running:
        async with (
            httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client,
            client.stream("GET", f"{running.address}events") as reported,
        ):
            lines = reported.aiter_lines()
            assert await anext(lines) == "event: sources"
            assert await running.end(number) == 0
        assert running.stderr == "raybus dashboard: open this address; Ctrl-C ends it\n"


async def test_a_port_that_is_taken(
    control_plane: ControlPlane, nobodys_bus: tuple[str, ...], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        arguments = ("--kubeconfig", str(control_plane.kubeconfig), *nobodys_bus, "--port", port)
        async with dashboard.started(tmp_path, *arguments) as running:
            assert (running.process.wait(), running.address) == (1, "")
            assert running.stderr == (
                f"error: port {port} of 127.0.0.1 is taken: is another dashboard open? --port names another, "
                "--port 0 takes any free one\n"
            )


@cases(
    ("arguments", "code", "message"),
    {
        "no kubeconfig": (("--kubeconfig", "/nowhere"), 1, "there is no kubeconfig /nowhere"),
        "no port": (("--port", "70000"), 2, "Invalid value for '--port'"),
        "no address of a NATS": (("--nats", "http://x"), 2, "--nats 'http://x': expected"),
    },
)
async def test_a_command_that_makes_no_sense(
    arguments: tuple[str, ...], code: int, message: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = () if "--kubeconfig" in arguments else ("--kubeconfig", str(control_plane.kubeconfig))
    async with dashboard.started(tmp_path, *config, *arguments) as running:
        assert running.process.wait() == code
        assert message in " ".join(running.stderr.split())
        assert "Traceback" not in running.stderr


async def test_an_api_server_that_is_not_there(control_plane: ControlPlane, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        control_plane.kubeconfig.read_text().replace(control_plane.server, "https://127.0.0.1:9")
    )
    async with dashboard.started(tmp_path / "run", "--kubeconfig", str(config)) as running:
        assert running.process.wait() == 1
        assert running.stderr.startswith(
            "error: the API server at https://127.0.0.1:9 does not answer"
        )
        assert len(running.stderr.splitlines()) == 1


async def test_a_user_without_the_right_to_list_gets_the_reason(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    await kube.create(
        SERVICE_ACCOUNT,
        namespace,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}},
    )
    config = await control_plane.kubeconfig_for_service_account(namespace, "nobody")
    async with dashboard.started(tmp_path, "--kubeconfig", str(config), "-A") as running:
        assert running.process.wait() == 1
        assert "cannot list resource" in running.stderr
        assert len(running.stderr.splitlines()) == 1


async def test_a_cluster_without_raybus_has_no_events_and_the_page_shows_that(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    arguments = (
        "--kubeconfig",
        str(control_plane.kubeconfig),
        "-n",
        namespace,
        "--raybus-namespace",
        namespace,
    )
    async with dashboard.started(tmp_path, *arguments) as running:
        assert await _first(running, "rows") == {"all": True, "rows": [], "gone": []}
        sources = await _first(running, "sources", that=lambda data: data["eventFeed"] == "away")
        assert (sources["namespace"], sources["problem"]) == (namespace, "")
        assert sources["feedProblem"].startswith(
            f"namespace {namespace} has no ConfigMap nats-keys-subscriber"
        )


async def test_a_chosen_service_is_shown(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    nobodys_bus: tuple[str, ...],
    tmp_path: Path,
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
