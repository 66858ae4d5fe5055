"""Updates the files of the NATS server in the same pod from the ConfigMaps of its namespace.

The ConfigMaps hold public keys of users and CA certificates of servers
(`nats_admin.key_registry`). The keeper writes the configuration to a folder that the server mounts.
Private keys never leave the pod: the server's key is on its own volume, and the keys of the users
`keeper` and `keeper-outside` stay in the memory of this process, which writes their public keys
into the configuration itself.
"""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
import msgspec
import structlog

from common import errors
from common.api.meta import Envelope, Items, ObjectMeta
from common.bus import nkeys
from common.clock import Clock
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import CONFIG_MAP, POD
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from nats_admin import certificates, credential_folder, key_registry, server_conf
from nats_admin.certificates import CertificatePair
from nats_admin.reload import NeighborServer, Reloader
from nats_admin.server_conf import ServerConfig

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0
PODS_SECONDS: Final = 30.0
"""Seconds between two checks for deleted pods.

A pod's entry in a ConfigMap is removed if the pod was missing in two consecutive checks.
"""
ANSWER_SECONDS: Final = 5.0
AUTHORITY: Final = "ca.crt"


class ServerPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Files and addresses of the NATS server in the same pod."""

    beside: NeighborServer
    volume: Path
    """Folder that keeps the server's key and certificate across restarts."""
    given_folder: Path
    """Folder for `tls.crt`, `tls.key` and `ca.crt` that the installer of raybus may provide.

    If the folder has a key, its certificate is used instead of the one in `volume`.
    """
    namespace: str
    entry: str
    """Name of this replica's entries in the ConfigMaps: the name of its pod."""
    names: list[str]
    """Host names and addresses under which clients and other servers reach the server."""
    server: ServerConfig


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


class Keeper:
    """Writes the files of one NATS server. Also receives the changes of the ConfigMap watch."""

    def __init__(
        self, kube: KubeClient, place: ServerPaths, clock: Clock, own_keys: Mapping[str, str]
    ) -> None:
        self._kube = kube
        self._place = place
        self._clock = clock
        self._own_keys = own_keys
        """Public keys of the NATS users as which this process connects, by user name.

        Must not be empty: a server without users accepts every client.
        """
        self._maps: dict[str, dict[str, str]] = {}
        self._changed = asyncio.Event()
        self._reloader = Reloader(place.beside)
        self._missing: set[tuple[str, str]] = set()
        self._reported: frozenset[str] = frozenset()
        self._problem = ""

    async def write_once(self) -> None:
        """Write the files once, from the current ConfigMaps.

        Raises:
            RaybusError, OSError: A ConfigMap cannot be read or patched, or a file cannot be
                written.
        """
        body = await self._kube.list(
            CONFIG_MAP, self._place.namespace, label_selector=key_registry.LABEL
        )
        self._maps = {
            config_map.metadata.name: config_map.data
            for config_map in msgspec.json.decode(body, type=Items[_ConfigMap]).items
        }
        await self._write()

    async def run(self) -> None:
        """Rewrite the files and reload the server whenever a ConfigMap changes, until cancelled.

        Also checks the files every `CHECK_SECONDS`. Errors are logged and retried.
        """
        target = WatchTarget(
            resource=CONFIG_MAP, namespace=self._place.namespace, selector=key_registry.LABEL
        )
        watch = Watch(self._kube, target, self, jitter=random.random, timing=WatchTiming())
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run())
            await watch.known.wait()
            group.create_task(self._forget_pods())
            await self._follow()

    async def _follow(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client:
            while True:
                self._changed.clear()
                try:
                    await self._write()
                    await self._reloader.settle(client)
                except (httpx.HTTPError, errors.RaybusError, OSError, ValueError) as problem:
                    self._report_problem(f"{type(problem).__name__}: {problem}")
                else:
                    self._problem = ""
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    async def _write(self) -> None:
        """Write the server's files from its certificate and the ConfigMaps.

        First registers the CA of this server in the ConfigMap of servers.
        """
        pair, ca = self._read_certificate()
        text = ca.decode()
        if self._maps.get(nkeys.SERVERS, {}).get(self._place.entry) != text:
            await self._patch(nkeys.SERVERS, {self._place.entry: text})
            self._maps[nkeys.SERVERS] = {
                **self._maps.get(nkeys.SERVERS, {}),
                self._place.entry: text,
            }
        registered = key_registry.read_registry(self._maps, self._place.server.subscribers)
        self._report(registered.ignored)
        keys = {**registered.keys, **{user: [key] for user, key in self._own_keys.items()}}
        folder = self._place.beside.folder
        credential_folder.write(folder / AUTHORITY, registered.authorities.encode())
        credential_folder.write(folder / "tls.crt", pair.certificate)
        credential_folder.write(folder / "tls.key", pair.key)
        credential_folder.write(
            folder / "nats-server.conf", server_conf.render(self._place.server, keys).encode()
        )

    def _read_certificate(self) -> tuple[CertificatePair, bytes]:
        """Return the server's certificate and the certificate of the CA that signed it.

        Takes the installer's certificate if there is one, else the one on the volume if it is
        usable, else makes a new one.
        """
        given, volume, now = self._place.given_folder, self._place.volume, self._clock.now()
        if (given / "tls.key").exists():
            pair = CertificatePair(
                (given / "tls.crt").read_bytes(), (given / "tls.key").read_bytes()
            )
            return pair, (given / AUTHORITY).read_bytes()
        if (volume / "tls.key").exists():
            pair = CertificatePair(
                (volume / "tls.crt").read_bytes(), (volume / "tls.key").read_bytes()
            )
            ca = (volume / AUTHORITY).read_bytes()
            if credential_folder.is_usable(pair, ca, self._place.names, now=now):
                return pair, ca
        # The CA signs only this certificate, so the key of the CA is not stored.
        new_ca = certificates.make_ca(now=now)
        pair = certificates.make_server_certificate(new_ca, names=self._place.names, now=now)
        volume.mkdir(parents=True, exist_ok=True)
        for name, content in (
            (AUTHORITY, new_ca.certificate),
            ("tls.crt", pair.certificate),
            ("tls.key", pair.key),
        ):
            credential_folder.write(volume / name, content)
        log.info("NATS server certificate renewed", names=self._place.names)
        return pair, new_ca.certificate

    async def _forget_pods(self) -> None:
        """Remove the ConfigMap entries of deleted pods every `PODS_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(PODS_SECONDS)
            try:
                await self.forget_pods()
            except errors.RaybusError as problem:
                self._report_problem(f"entries of pods that are gone cannot be removed: {problem}")

    async def forget_pods(self) -> None:
        """Remove ConfigMap entries of pods that were missing in this and in the previous check."""
        body = await self._kube.list(POD, self._place.namespace)
        pods = frozenset(
            pod.metadata.name for pod in msgspec.json.decode(body, type=Items[Envelope]).items
        )
        missing = key_registry.find_orphans(self._maps, pods)
        for name, entry in sorted(missing & self._missing):
            await self._patch(name, {entry: None})
            log.info("entry of a deleted pod removed", config_map=name, entry=entry)
        self._missing = missing

    async def _patch(self, name: str, data: Mapping[str, str | None]) -> None:
        await self._kube.patch(
            CONFIG_MAP, self._place.namespace, name, PatchRequest(body={"data": dict(data)})
        )

    def _report(self, ignored: tuple[str, ...]) -> None:
        for text in sorted(set(ignored) - self._reported):
            log.warning("registered key or certificate ignored", why=text)
        self._reported = frozenset(ignored)

    def _report_problem(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("cannot keep the NATS server in sync with its ConfigMaps", problem=problem)
        self._problem = problem

    # --- the sink of the watch ----------------------------------------------------------------

    def present(self, raw: bytes, reason: str = "") -> None:
        if not reason:
            config_map = msgspec.json.decode(raw, type=_ConfigMap)
            self._maps[config_map.metadata.name] = config_map.data
            self._changed.set()

    def gone(self, raw: bytes) -> None:
        self._maps.pop(msgspec.json.decode(raw, type=Envelope).metadata.name, None)
        self._changed.set()

    def listed(self, keys: set[NamespacedName], version: str) -> None:  # noqa: ARG002  (a sink's)
        names = {name for _, name in keys}
        self._maps = {name: data for name, data in self._maps.items() if name in names}
        self._changed.set()
