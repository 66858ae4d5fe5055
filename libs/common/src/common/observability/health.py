"""`/metrics`, `/healthz` and `/readyz` of a service, on one port."""

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Check = Callable[[], str | None]
"""Returns why something is not well, or None."""


async def serve(port: int, *, live: Check, ready: Check, note: Check = lambda: None) -> None:
    """Answer until cancelled; 200 with `ok`, or what there is to note of one that is ready, or 503 with the reason."""
    disable_created_metrics()
    app = web.Application()
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/healthz", _answer(live, lambda: None))
    app.router.add_get("/readyz", _answer(ready, note))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104  (a pod's probes come from outside)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


class _Scrape(Collector):
    """The result of one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _metrics(_request: web.Request) -> web.Response:
    """Read the state here, where nothing changes it meanwhile; the text is written beside the event loop."""
    text = await asyncio.to_thread(generate_latest, _Scrape(list(REGISTRY.collect())))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(check: Check, note: Check) -> Handler:
    async def handle(_request: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=(problem or note() or "ok") + "\n", status=200 if problem is None else 503)

    return handle
