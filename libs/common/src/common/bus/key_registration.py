"""Registers the public key of this process with the NATS of its cluster, and learns there which servers to trust.

The private key is made at the start, stays in memory and ends with the process, so no API object holds it. The public key lies
in the ConfigMap `nats-keys-USER`, which only the ServiceAccount of that user may change (`nats_admin.key_registry`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec
import structlog

from common import errors
from common.bus import key_maps
from common.kube.client import KubeClient, Patch
from common.kube.resources import CONFIG_MAP
from common.settings import Settings, identity_of

log = structlog.get_logger()

API_SECONDS: Final = 3.0
"""For all requests of one registration; after that what was learned before must do."""


class ConfigMap(msgspec.Struct, frozen=True):
    """The data of a ConfigMap."""

    data: dict[str, str] = {}


class Registration:
    """The entry of one process, and the certificates of the servers.

    A named subscriber registers under its name, among the keys of all of them; any other user in the ConfigMap of its own.
    """

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[], Awaitable[KubeClient]] | None = None,
        *,
        named_subscriber: str | None = None,
    ) -> None:
        agent = f"raybus-{settings.service}"
        self._connect = connect or partial(KubeClient.connect, kubeconfig=settings.kubeconfig, user_agent=agent)
        self._namespace = settings.namespace
        self._name = key_maps.PREFIX + (settings.service if named_subscriber is None else key_maps.NAMED)
        self._entry = ".".join(filter(None, (named_subscriber, identity_of(settings))))
        self._kube: KubeClient | None = None
        self._trusted = ""

    async def announce(self, public_key: str) -> str:
        """Register a key if it is not registered; return the certificates of the servers, PEM.

        Without an answer of the API server a connection is tried with what was learned before, so NATS stays usable.
        """
        try:
            async with asyncio.timeout(API_SECONDS):
                await self._register(public_key)
                servers = await self._read(key_maps.SERVERS)
        except errors.NotFound:
            raise
        except (errors.Retryable, TimeoutError) as problem:
            if not self._trusted:
                raise errors.Unavailable(
                    f"the key for NATS cannot be registered: {problem or 'no answer in time'}"
                ) from problem
            return self._trusted
        self._trusted, _ = key_maps.trusted(servers)
        if not self._trusted:
            raise errors.Unavailable(
                f"no NATS server has registered its certificate in ConfigMap {self._namespace}/{key_maps.SERVERS} yet"
            )
        return self._trusted

    async def entries(self) -> list[str]:
        """Return the names of all entries of this user."""
        return list(await self._read(self._name))

    async def withdraw(self, *entries: str) -> None:
        """Remove entries, or else one's own, which ends the access."""
        await self._patch(dict.fromkeys(entries or (self._entry,)))

    async def close(self) -> None:
        """Close the connections to the API server."""
        kube, self._kube = self._kube, None
        if kube is not None:
            await kube.close()

    async def _register(self, public_key: str) -> None:
        if (await self._read(self._name)).get(self._entry) != public_key:
            await self._patch({self._entry: public_key})
            log.info("the public key for NATS is registered", config_map=self._name, entry=self._entry)

    async def _read(self, name: str) -> dict[str, str]:
        kube = await self._client()
        try:
            return msgspec.json.decode(await kube.get(CONFIG_MAP, self._namespace, name), type=ConfigMap).data
        except errors.NotFound:
            raise errors.NotFound(
                f"namespace {self._namespace} has no ConfigMap {name}: is raybus installed there? Apply deploy/ again"
            ) from None

    async def _patch(self, data: Mapping[str, str | None]) -> None:
        kube = await self._client()
        await kube.patch(CONFIG_MAP, self._namespace, self._name, Patch(body={"data": dict(data)}))

    async def _client(self) -> KubeClient:
        if self._kube is None:
            self._kube = await self._connect()
        return self._kube
