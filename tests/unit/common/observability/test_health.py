"""The answers of a service to kubelets and Prometheus, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import REGISTRY

from common.observability import health
from support.tables import cases
from support.waiting import eventually, eventually_true


@asynccontextmanager
async def served(
    *,
    live: health.HealthCheck = lambda: None,
    ready: health.HealthCheck = lambda: None,
    note: health.HealthCheck = lambda: None,
) -> AsyncGenerator[httpx.AsyncClient]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with (
        asyncio.TaskGroup() as group,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
    ):
        serving = group.create_task(health.serve(port, live=live, ready=ready, note=note))

        async def answers() -> bool:
            try:
                return (await http.get("/healthz")).status_code > 0
            except httpx.TransportError:
                return False

        await eventually_true(answers, within=5.0, what="the port")
        yield http
        serving.cancel()


@cases(
    ("path", "live", "ready", "note", "expected"),
    {
        "it lives though it is not ready": ("/healthz", None, "no NATS", None, (200, "ok\n")),
        "it does not live": ("/healthz", "it stands still", None, None, (503, "it stands still\n")),
        "it is ready": ("/readyz", None, None, None, (200, "ok\n")),
        "there is something to note": (
            "/readyz",
            None,
            None,
            "standing by",
            (200, "standing by\n"),
        ),
        "it is not ready": ("/readyz", None, "no NATS", "standing by", (503, "no NATS\n")),
        "an unknown path": ("/", None, None, None, (404, "")),
    },
)
async def test_probes_get_the_reason(
    path: str, live: str | None, ready: str | None, note: str | None, expected: tuple[int, str]
) -> None:
    async with served(live=lambda: live, ready=lambda: ready, note=lambda: note) as http:
        answer = await http.get(path)
        assert (answer.status_code, answer.text) == expected


async def test_a_scrape_has_all_metrics_and_a_head_their_size() -> None:
    async with served() as http:
        scraped = await http.get("/metrics?name=x")
        assert scraped.headers["Content-Type"].startswith("text/plain; version=")
        assert all(each.name in scraped.text for each in REGISTRY.collect())
        head = await http.head("/readyz")
        assert (head.status_code, head.text, head.headers["Content-Length"]) == (200, "", "3")


async def test_a_replica_with_a_port_file_takes_the_next_free_port(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    with health.open_port(0) as used:
        port = used.getsockname()[1]
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(health.serve(port, ready=lambda: None, port_file=port_file))
            await eventually(port_file.exists, within=5.0, what="the file")
            taken = int(port_file.read_text())
            assert port < taken < port + health.MAX_PORTS
            async with httpx.AsyncClient(trust_env=False) as http:
                assert (await http.get(f"http://127.0.0.1:{taken}/readyz")).status_code == 200
            serving.cancel()


async def test_a_port_in_use_is_an_error_without_a_port_file() -> None:
    with health.open_port(0) as used, pytest.raises(OSError, match="in use"):
        await health.serve(used.getsockname()[1], ready=lambda: None)


async def test_nothing_can_be_sent() -> None:
    async with served() as http:
        assert (await http.post("/metrics", content=b"x" * 100_000)).status_code == 405


async def test_a_port_in_use_is_an_error_of_the_port() -> None:
    with (
        socket.create_server(("", 0)) as used,
        pytest.raises(OSError, match="Address already in use"),
    ):
        await health.serve(used.getsockname()[1], live=lambda: None, ready=lambda: None)


@pytest.mark.parametrize(
    ("has_ipv6", "families"),
    [
        pytest.param(True, {socket.AF_INET, socket.AF_INET6}, id="dual stack"),
        pytest.param(False, {socket.AF_INET}, id="a kernel without IPv6"),
    ],
)
def test_probes_come_by_both_families(
    has_ipv6: bool, families: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_ipv6:
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with health.open_port(0) as listening:
        reached = set[int]()
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.socket(family) as client:
                if client.connect_ex((host, listening.getsockname()[1])) == 0:
                    reached.add(family)
    assert reached == families


def test_a_port_that_is_taken_is_an_error() -> None:
    with health.open_port(0) as first, pytest.raises(OSError, match="Address already in use"):
        health.open_port(first.getsockname()[1])
