"""One process plays the heads of all clusters: their dashboards, their Serve proxies, and what their pods export.

The API server's proxy comes to a pod's address and names in a header for which Service or pod it asks.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from common import errors
from common.clock import SystemClock
from common.ray import ports
from support.fakes.serve import FakeServe

FORWARDED: Final = "X-Forwarded-Uri"
DEPLOY_SECONDS: Final = 0.5
_PLACE_OF_TARGET: Final = 6
"""In `/api/v1/namespaces/<namespace>/services/<name>:<port>/proxy/…`."""


class Heads:
    """All heads."""

    def __init__(self) -> None:
        self.serve = FakeServe(SystemClock())
        self.asked: Counter[str] = Counter()
        """Requests by what was asked for."""
        self.answers: dict[str, bytes] = {}
        """What the heads of some objects answer in place of their status, by how the names of their Services begin."""
        self.redirects: dict[str, str] = {}
        """Where the heads of some objects redirect to, by how the names of their Services begin."""
        self.pages: dict[str, bytes] = {}
        """The metrics of the pods of some objects, by how the names of the pods begin."""
        self.ongoing = 0
        """Requests that each pod's proxy works on, as far as it reports them."""
        self._put = asyncio.Event()

    async def configured(self, cluster: str, count: int) -> None:
        """Wait until a cluster has got so many Serve configs."""
        head = self.serve.head(f"{cluster}-head-svc")
        while len(head.puts) < count:
            self._put.clear()
            await self._put.wait()

    async def details(self, request: web.Request) -> web.Response:
        """Answer a GET of the applications."""
        self.asked["dashboard"] += 1
        target = _target(request)
        if (
            answer := next(
                (each for name, each in self.answers.items() if target.startswith(name)), None
            )
        ) is not None:
            return web.Response(body=answer)
        if (
            location := next(
                (each for name, each in self.redirects.items() if target.startswith(name)), None
            )
        ) is not None:
            return web.Response(status=307, headers={"Location": location})
        head = self.serve.head(target)
        return (
            web.json_response(head.details())
            if head.behaviour == "ok"
            else web.Response(status=500)
        )

    async def deploy(self, request: web.Request) -> web.Response:
        """Take a Serve config."""
        self.asked["config"] += 1
        head = self.serve.head(_target(request))
        head.deploy_seconds = DEPLOY_SECONDS
        try:
            head.deploy(await request.json())
        except errors.Rejected as problem:
            return web.Response(status=400, text=str(problem))
        self._put.set()
        return web.json_response({})

    async def health(self, _request: web.Request) -> web.Response:
        """Answer for a proxy."""
        self.asked["proxy"] += 1
        return web.Response(text="success")

    async def metrics(self, request: web.Request) -> web.Response:
        """Report how many requests a pod's proxy works on."""
        self.asked["metrics"] += 1
        target = _target(request)
        for name, page in self.pages.items():
            if target.startswith(name):
                return web.Response(body=page)
        return web.Response(
            text=f'ray_serve_num_ongoing_http_requests{{node_id="n"}} {self.ongoing}.0\n'
        )


@asynccontextmanager
async def played() -> AsyncGenerator[Heads]:
    """Play all heads as long as the block lasts."""
    heads = Heads()
    app = web.Application()
    app.router.add_get("/api/serve/applications/", heads.details)
    app.router.add_put("/api/serve/applications/", heads.deploy)
    app.router.add_get("/-/healthz", heads.health)
    app.router.add_get("/metrics", heads.metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        for port in (ports.DASHBOARD, ports.SERVE, ports.METRICS):
            await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104  (there is no other network inside)
        yield heads
    finally:
        await runner.cleanup()


def _target(request: web.Request) -> str:
    parts = request.headers.get(FORWARDED, "").split("/")
    return parts[_PLACE_OF_TARGET].partition(":")[0] if len(parts) > _PLACE_OF_TARGET else ""
