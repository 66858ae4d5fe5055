"""Send requests to cluster addresses in a separate network while the environment names a proxy."""

import asyncio
import os
import subprocess
from typing import Final

import httpx
import msgspec
from aiohttp import web

from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from common.proxies import OutboundProxies
from integration.isolated import isolate, print_result
from notifications.wiring import EnvironmentProxyTransport

MODULE: Final = "integration.proxies.proxied"
ADDRESSES: Final = ("10.96.0.1", "fd00:10:96::1")
PORT: Final = 8080
PROXY_PORT: Final = 3128


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Which server answered one request."""

    client: str
    server: str
    no_proxy: str
    answered_by: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All answers."""

    answers: list[Answer]


def a_server(name: str) -> web.ServerRunner:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.json_response({"by": name})

    return web.ServerRunner(web.Server(answer))


async def run(no_proxies: list[str]) -> Report:
    """Ask each server with each value of `NO_PROXY`."""
    runners = [a_server(name) for name in ("server", "proxy")]
    for runner in runners:
        await runner.setup()
    for address in ADDRESSES:
        await web.TCPSite(runners[0], address, PORT).start()
    await web.TCPSite(runners[1], "127.0.0.1", PROXY_PORT).start()
    answers = list[Answer]()
    for no_proxy in no_proxies:
        os.environ |= {"HTTP_PROXY": f"127.0.0.1:{PROXY_PORT}", "NO_PROXY": no_proxy}
        for client, ask, server in ASKED:
            answered_by = msgspec.json.decode(await ask(server))["by"]
            answers.append(
                Answer(client=client, server=server, no_proxy=no_proxy, answered_by=answered_by)
            )
    for runner in runners:
        await runner.cleanup()
    return Report(answers=answers)


async def _ask_as_kube(server: str) -> bytes:
    kube = KubeClient(RestConfig(server=server), user_agent="test")
    try:
        return await kube.request("GET", "/version")
    finally:
        await kube.close()


async def _ask_as_notifications(server: str) -> bytes:
    transport = EnvironmentProxyTransport(OutboundProxies.from_environment(os.environ))
    async with httpx.AsyncClient(transport=transport) as http:
        return (await http.get(server)).content


ASKED: Final = (
    ("kube", _ask_as_kube, "http://10.96.0.1:8080"),
    ("kube", _ask_as_kube, "http://[fd00:10:96::1]:8080"),
    ("notifications", _ask_as_notifications, "http://10.96.0.1:8080"),
)
"""Clients and the servers that they ask. httpcore sends IPv6 addresses to a proxy without
brackets."""

if __name__ == "__main__":
    isolate(MODULE)
    # without nodad an IPv6 address may not be bound until the kernel has checked it
    for address, *options in (("10.96.0.1/12",), ("fd00:10:96::1/112", "nodad")):
        subprocess.run(["ip", "address", "add", address, "dev", "lo", *options], check=True)
    print_result(
        asyncio.run(run(["", "10.96.0.0/12,fd00:10:96::/112", "10.0.0.0/16", "10.96.0.1"]))
    )
