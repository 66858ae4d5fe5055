"""A web application on this machine, and a client that connects to it for every address."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from aiohttp import web


class ToLoopback(httpx.AsyncHTTPTransport):
    """Client that sends every request to one port of this machine, with the original Host header."""

    def __init__(self, port: int) -> None:
        super().__init__(limits=httpx.Limits(max_connections=None))
        self._port = port

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host="127.0.0.1", port=self._port)
        return await super().handle_async_request(request)


@asynccontextmanager
async def served(app: web.Application, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """Serve an application on a free port of loopback."""
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
