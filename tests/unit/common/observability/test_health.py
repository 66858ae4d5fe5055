"""What kubelets and Prometheus get of a service, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from prometheus_client import REGISTRY

from common.observability import health
from support.waiting import eventually_true


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


@pytest.mark.parametrize(
    ("path", "live", "ready", "note", "expected"),
    [
        pytest.param(
            "/healthz", None, "no NATS", None, (200, "ok\n"), id="it lives though it is not ready"
        ),
        pytest.param(
            "/healthz",
            "it stands still",
            None,
            None,
            (503, "it stands still\n"),
            id="it does not live",
        ),
        pytest.param("/readyz", None, None, None, (200, "ok\n"), id="it is ready"),
        pytest.param(
            "/readyz",
            None,
            None,
            "standing by",
            (200, "standing by\n"),
            id="there is something to note",
        ),
        pytest.param(
            "/readyz", None, "no NATS", "standing by", (503, "no NATS\n"), id="it is not ready"
        ),
        pytest.param("/", None, None, None, (404, ""), id="an unknown path"),
    ],
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
