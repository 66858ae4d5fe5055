"""`/metrics`, `/healthz` and `/readyz` of a service, on one port."""

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

Check = Callable[[], str | None]
"""Returns why something is not well, or None."""


async def serve(port: int, *, live: Check, ready: Check, host: str = "0.0.0.0") -> None:  # noqa: S104  (a pod's probes come from outside)
    """Answer until cancelled; 200 with `ok`, or 503 with the reason."""
    app = web.Application()
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/healthz", _answer(live))
    app.router.add_get("/readyz", _answer(ready))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def _metrics(_request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(check: Check) -> Callable[[web.Request], "asyncio.Future[web.Response]"]:
    async def handle(_request: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=(problem or "ok") + "\n", status=200 if problem is None else 503)

    return handle  # type: ignore[return-value]  # aiohttp accepts any coroutine function
