"""`/metrics`, `/healthz` and `/readyz` of a service, on one port.

They use aiohttp's low-level server, because `aiohttp.web` costs each process 1.4 MiB and 17 ms of
processor time more.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from aiohttp.web_server import Server
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

BACKLOG: Final = 128
"""Maximum connections that wait to be accepted."""

MAX_PORTS: Final = 10
"""Number of consecutive ports to try. As many replicas can share one network."""

HealthCheck = Callable[[], str | None]
"""Function that returns a problem, or None if there is none."""


async def serve(
    port: int,
    *,
    ready: HealthCheck,
    live: HealthCheck = lambda: None,
    note: HealthCheck = lambda: None,
    port_file: Path | None = None,
) -> None:
    """Serve `/metrics`, `/healthz` and `/readyz` until cancelled.

    `/healthz` calls `live`, and `/readyz` calls `ready`. The answer is 503 with the problem that
    the check returns. Without a problem the answer is 200 with `ok`, or for `/readyz` with the text
    of `note`. With `port_file`, the next free port is used if `port` is in use, and the number of
    the port is written to the file.
    """
    disable_created_metrics()

    async def answer(request: BaseRequest) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return Response(status=405, headers={"Allow": "GET, HEAD"})
        match request.path:
            case "/metrics":
                # Collect here, where no state changes meanwhile; format in a thread, beside the
                # event loop.
                text = await asyncio.to_thread(generate_latest, _Scrape(REGISTRY.collect()))
                return Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
            case "/healthz":
                return _answer(live(), None)
            case "/readyz":
                return _answer(ready(), note())
            case _:
                return Response(status=404)

    server = Server(answer, access_log=None)
    opened = open_port(port) if port_file is None else _open_noted_port(port, port_file)
    listening = await asyncio.get_running_loop().create_server(server, sock=opened)
    try:
        await asyncio.Event().wait()
    finally:
        listening.close()
        await server.shutdown(timeout=1.0)


def open_port(port: int) -> socket.socket:
    """Listen on all addresses, since probes and users connect from outside of the pod.

    Listens only on IPv4 if IPv6 is not available.
    """
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
        except OSError as problem:
            if problem.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise
    return socket.create_server(("", port), backlog=BACKLOG)


def _open_noted_port(port: int, port_file: Path) -> socket.socket:
    """Listen on `port` or the next free one, and write the chosen number to the file."""
    opened = _open_next_port(port, MAX_PORTS)
    port_file.write_text(f"{opened.getsockname()[1]}\n")
    return opened


def _open_next_port(port: int, attempts: int) -> socket.socket:
    """Listen on the first free port among `attempts` consecutive ones."""
    try:
        return open_port(port)
    except OSError as problem:
        if problem.errno != errno.EADDRINUSE or attempts == 1:
            raise
    return _open_next_port(port + 1, attempts - 1)


class _Scrape(list[Metric], Collector):
    def collect(self) -> Iterable[Metric]:
        return self


def _answer(problem: str | None, note: str | None) -> Response:
    return Response(text=(problem or note or "ok") + "\n", status=200 if problem is None else 503)
