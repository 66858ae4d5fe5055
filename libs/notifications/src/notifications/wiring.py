"""Starts the notifications: a NATS user, a connection and a sender for each destination."""

import asyncio
import os
import random
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Final

import httpx
import msgspec

from common import errors
from common.bus import nkeys
from common.bus.access import FileKeys, Keys, Registration
from common.bus.nats import Bus
from common.clock import SystemClock
from common.observability import health
from common.proxies import OutboundProxies
from common.settings import Settings
from common.tls import choose_verification
from notifications.delivery import WebhookSender
from notifications.settings import Paths, read

LIMITS: Final = httpx.Limits(max_keepalive_connections=0)


class EnvironmentProxyTransport(httpx.AsyncBaseTransport):
    """Sends each request directly, or through the proxy that the environment sets for its URL."""

    def __init__(self, proxies: OutboundProxies) -> None:
        self._proxies = proxies
        self._tls = httpx.create_ssl_context()
        choose_verification(self._tls)
        self._transports: dict[str | None, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        proxy = self._proxies.find(str(request.url))
        if proxy not in self._transports:
            self._transports[proxy] = httpx.AsyncHTTPTransport(
                verify=self._tls, limits=LIMITS, proxy=proxy
            )
        return await self._transports[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


async def serve(settings: Settings) -> None:
    """Send the events to all destinations, and serve health checks and metrics, until cancelled.

    Raises `InvalidSpec` for wrong settings.
    """
    paths = Paths.from_environment(os.environ)
    notifications = read(paths)
    parts: list[tuple[WebhookSender, Bus]] = []

    def find_readiness_problem() -> str | None:
        problems = (bus.problem or sender.problem for sender, bus in parts)
        return next((problem for problem in problems if problem is not None), None)

    transport = EnvironmentProxyTransport(OutboundProxies.from_environment(os.environ))
    timeout = notifications.choices.timeout_seconds
    async with (
        httpx.AsyncClient(timeout=timeout, transport=transport) as http,
        asyncio.TaskGroup() as group,
    ):
        http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for destination in notifications.choices.destinations:
            user, keys = _build_user(settings, destination.name, paths.nats_credentials)
            sender = WebhookSender(
                destination, notifications, http, clock=SystemClock(), jitter=random.random
            )
            parts.append((sender, Bus(user, keys)))
        group.create_task(
            health.serve(
                settings.http_port, ready=find_readiness_problem, port_file=settings.http_port_file
            )
        )
        running = [group.create_task(bus.run()) for _, bus in parts]
        try:
            await _deliver(parts)
        finally:
            for task in running:
                task.cancel()


async def _deliver(parts: list[tuple[WebhookSender, Bus]]) -> None:
    """Run the senders until cancelled.

    The senders end before the connections close, so that each sender can still release the event
    that it has not delivered.
    """
    async with asyncio.TaskGroup() as group:
        for sender, bus in parts:
            group.create_task(sender.run(bus))


def _build_user(settings: Settings, name: str, credentials: Path | None) -> tuple[Settings, Keys]:
    """Return the settings and keys with which a named subscriber connects to NATS."""
    user = msgspec.structs.replace(settings, service=f"subscriber-{name}")
    if settings.nats_register_key:
        keys = Registration(settings, named_subscriber=name)
        keys.refused = (
            f"the server does not know {keys.public} for user {user.service} yet: name {name} in "
            "NATS_SUBSCRIBERS; `keeper`"
            f" reads keys from ConfigMap {nkeys.KEYS_PREFIX}{nkeys.NAMED}"
        )
        return user, keys
    if credentials is None:
        return user, FileKeys(user)
    seed = credentials / "users" / f"{user.service}.seed"
    if not seed.is_file():
        raise errors.InvalidSpec(
            f"RAYBUS_NATS_CREDENTIALS={credentials}: there is no "
            f"{seed.relative_to(credentials)}; run"
            f" `python -m nats_admin.provision credentials --subscribers {name}`"
        )
    user = msgspec.structs.replace(user, nats_seed_file=seed, nats_ca_file=credentials / "ca.crt")
    return user, FileKeys(user)
