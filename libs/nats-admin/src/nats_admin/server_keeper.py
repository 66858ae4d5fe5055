"""The command `keeper`: maintains the server in the same pod, and the streams."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from common.bus import nkeys
from common.bus.access import MadeKey
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.settings import Settings, identity_of
from nats_admin import stream_keeper
from nats_admin.disk import DiskWatch
from nats_admin.keeper import Keeper, Place
from nats_admin.reload import Beside
from nats_admin.server_conf import Cluster, Server
from nats_admin.stream_keeper import Account

SERVERS: Final = "nats-servers"
"""The headless Service that gives each server a name."""


async def run(settings: Settings, options: argparse.Namespace) -> None:
    """Maintain the server in the same pod, and its streams."""
    place = _place(settings, options)
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent="raybus-keeper")
    try:
        if options.once:
            nobody = {settings.service: nkeys.public_key(nkeys.new_seed())}
            await Keeper(kube, place, SystemClock(), nobody).write_once()
            return
        accounts, own_keys = _with_keys(stream_keeper.accounts_of(settings, options), place)
        async with asyncio.TaskGroup() as group:
            group.create_task(Keeper(kube, place, SystemClock(), own_keys).run())
            group.create_task(stream_keeper.watch(accounts, settings, options))
            group.create_task(DiskWatch(place.beside).run())
    finally:
        await kube.close()


def _with_keys(accounts: Sequence[Account], place: Place) -> tuple[list[Account], dict[str, str]]:
    """Give each account a key of this process; return the public keys by user as well."""

    async def authority(_public_key: str) -> str:
        """Return the authority of our own server; the keeper itself writes our keys into its configuration."""
        return (place.beside.folder / "ca.crt").read_text()

    async def nothing() -> None:
        return

    keys = [MadeKey(each.settings, authority, nothing) for each in accounts]
    with_keys = [msgspec.structs.replace(each, keys=key) for each, key in zip(accounts, keys, strict=True)]
    return with_keys, {each.settings.service: key.public for each, key in zip(accounts, keys, strict=True)}


def _place(settings: Settings, options: argparse.Namespace) -> Place:
    count: int = options.servers
    hosts = [f"nats-{number}.{SERVERS}" for number in range(count)] if count > 1 else []
    folder: Path = options.server_folder
    monitor: str = options.server_monitor
    server = Server(
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
        cluster=Cluster(routes=tuple(f"{host}:6222" for host in hosts)) if hosts else None,
    )
    space = settings.namespace
    service = ["nats", f"nats.{space}", f"nats.{space}.svc", f"nats.{space}.svc.{settings.cluster_domain}"]
    return Place(
        beside=Beside(folder=folder, pid_file=options.server_pid, monitor=monitor),
        volume=options.server_volume,
        given=options.server_certificate,
        namespace=space,
        entry=identity_of(settings),
        names=[*service, *hosts, "localhost", "127.0.0.1"],
        server=server,
    )
