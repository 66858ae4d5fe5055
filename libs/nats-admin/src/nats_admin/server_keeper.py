"""The command `keeper`: maintains the NATS server in the same pod, and the streams.

The keeper restarts a server whose disk was full, and logs other problems that the server's health
check reports. A stream that met a full disk accepts no message until the server restarts, even when
there is room again, and publishers get no answer (measured with nats-server 2.15). The kubelet's
probes do not detect this. The server's own health check `/healthz` does, but is not used as a
probe: it also fails while a cluster has no leader, when a restart would make things worse.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec
import structlog

from common.bus import nkeys
from common.bus.access import GeneratedKey
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.settings import Settings, identity_of
from nats_admin import stream_keeper
from nats_admin.keeper import Keeper, ServerPaths
from nats_admin.reload import NeighborServer
from nats_admin.server_conf import ServerCluster, ServerConfig
from nats_admin.stream_keeper import StreamAccount

log = structlog.get_logger()

CHECK_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
BETWEEN_STARTS: Final = 60.0
"""Minimum seconds between two restarts. While the disk stays full, a restart does not help."""
WRITE_ERROR: Final = "write error"


class _Health(msgspec.Struct, frozen=True):
    error: str = ""


class DiskWatch:
    """Watches the NATS server in the same pod, and restarts it after its disk was full."""

    def __init__(self, server: NeighborServer) -> None:
        self._server = server
        self._known = ""
        self._ended_at = float("-inf")

    async def run(self) -> None:
        """Check the server's health every `CHECK_SECONDS`, until cancelled."""
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client:
            while True:
                try:
                    answer = await client.get(f"{self._server.monitor}/healthz")
                    self._classify(msgspec.json.decode(answer.content, type=_Health).error)
                except (httpx.HTTPError, OSError, ValueError) as problem:
                    self._log_change(f"{type(problem).__name__}: {problem}")
                await asyncio.sleep(CHECK_SECONDS)

    def _classify(self, problem: str) -> None:
        self._log_change(problem)
        now = asyncio.get_running_loop().time()
        if WRITE_ERROR not in problem or now - self._ended_at < BETWEEN_STARTS:
            return
        self._ended_at = now
        log.error(
            "the NATS server cannot write and is started anew; free its disk, or give it a "
            "larger one",
            why=problem,
        )
        os.kill(int(self._server.pid_file.read_text()), signal.SIGTERM)

    def _log_change(self, problem: str) -> None:
        if problem and problem != self._known:
            log.warning("NATS server unhealthy", why=problem)
        self._known = problem


SERVERS: Final = "nats-servers"
"""Name of the headless Service that gives each NATS server a DNS name."""


async def run(settings: Settings, options: argparse.Namespace) -> None:
    """Maintain the server in the same pod, and its streams, until cancelled.

    With `--once`, only write the server's files and return.
    """
    place = _build_place(settings, options)
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent="raybus-keeper")
    try:
        if options.once:
            nobody = {settings.service: nkeys.derive_public_key(nkeys.new_seed())}
            await Keeper(kube, place, SystemClock(), nobody).write_once()
            return
        accounts, own_keys = _assign_keys(
            stream_keeper.build_accounts_of_options(settings, options), place
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(Keeper(kube, place, SystemClock(), own_keys).run())
            group.create_task(stream_keeper.watch(accounts, settings, options))
            group.create_task(DiskWatch(place.beside).run())
    finally:
        await kube.close()


def _assign_keys(
    accounts: Sequence[StreamAccount], place: ServerPaths
) -> tuple[list[StreamAccount], dict[str, str]]:
    """Return the accounts, each with a newly generated key, and the public keys by user name."""

    class Own(GeneratedKey):
        async def announce(self) -> str:
            """Return the CA certificate of the NATS server in the same pod.

            Other clients also register their public key here. The keeper need not: it writes its
            own public keys into the server's configuration.
            """
            return (place.beside.folder / "ca.crt").read_text()

    keys = [Own(account.settings) for account in accounts]
    with_keys = [
        msgspec.structs.replace(account, keys=key)
        for account, key in zip(accounts, keys, strict=True)
    ]
    return with_keys, {
        account.settings.service: key.public for account, key in zip(accounts, keys, strict=True)
    }


def _build_place(settings: Settings, options: argparse.Namespace) -> ServerPaths:
    count: int = options.servers
    hosts = [f"nats-{number}.{SERVERS}" for number in range(count)] if count > 1 else []
    folder: Path = options.server_folder
    monitor: str = options.server_monitor
    server = ServerConfig(
        folder=str(folder),
        store=options.store,
        host=options.host,
        port=urlsplit(settings.nats_url).port or 4222,
        monitoring_port=urlsplit(monitor).port,
        name="$NATS_SERVER_NAME" if hosts else '"nats"',
        pid_file=str(options.server_pid),
        max_store=options.max_store,
        sync_interval=options.sync_interval,
        subscribers=options.subscribers,
        cluster=ServerCluster(routes=tuple(f"{host}:6222" for host in hosts)) if hosts else None,
    )
    space = settings.namespace
    service = [
        "nats",
        f"nats.{space}",
        f"nats.{space}.svc",
        f"nats.{space}.svc.{settings.cluster_domain}",
    ]
    return ServerPaths(
        beside=NeighborServer(folder=folder, pid_file=options.server_pid, monitor=monitor),
        volume=options.server_volume,
        given_folder=options.server_certificate,
        namespace=space,
        entry=identity_of(settings),
        names=[*service, *hosts, "localhost", "127.0.0.1", "::1"],
        server=server,
    )
