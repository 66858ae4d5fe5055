"""Connections of a client that abandons an answer, or that is closed."""

import asyncio
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from common.kube import credentials
from common.kube.client import KubeClient
from common.kube.credentials import Identity
from common.kube.rest_config import RestConfig
from localcluster import kubeconfig
from support.servers.loopback import served
from support.servers.wire import Wire
from support.waiting import eventually

pytestmark = [pytest.mark.integration]


@pytest.mark.parametrize("path", ["/endless", "/silent"])
async def test_an_abandoned_request_leaves_no_connection_although_the_server_is_away(
    tmp_path: Path, path: str
) -> None:
    pki = kubeconfig.create(tmp_path, addresses=["127.0.0.1"], node="n")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pki.certificate("apiserver"), pki.key("apiserver"))
    is_asked = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        """Answer one line, as a watch does, and then nothing more."""
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"{}\n")
        return await silent(request)

    async def silent(_: web.Request) -> web.StreamResponse:
        is_asked.set()
        await asyncio.Event().wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/endless", endless)
    app.router.add_get("/silent", silent)
    async with served(app, tls=tls) as port, Wire(port).laid() as wire:
        trusting = Identity(tls=ssl.create_default_context(cafile=pki.ca))
        config = RestConfig(
            server=f"https://127.0.0.1:{wire.port}", credentials=credentials.make_constant(trusting)
        )
        kube = KubeClient(config, user_agent="test")

        async def read() -> None:
            async with kube.stream(path, query={}) as lines:
                async for _ in lines:
                    pass

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            async with asyncio.timeout(30):
                await is_asked.wait()
            wire.swallow()
            reading.cancel()
        await kube.close()
        await eventually(lambda: not wire.is_used, within=5.0, what="the end of the connection")
