"""The list of RayServices, made in threads: tenants write objects of 1 MB, and the event loop serves everybody.

What a version of a RayService shows is computed once, whoever reads this version.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import msgspec
import structlog

from common.api import ray_service
from common.api.meta import Items
from common.api.ray_cluster import RayCluster
from common.runtime.cache import Remembered
from raybus_cli import session
from raybus_cli.dashboard import history, model
from raybus_cli.dashboard.history import Progress
from raybus_cli.dashboard.model import Row
from raybus_cli.dashboard.threads import ALL, FairThreads

log = structlog.get_logger()

LIST_THREADS: Final = 2
DETAIL_THREADS: Final = 4
"""More than for lists, since the Serve configs of one RayService can take seconds."""
MAX_ENTRIES: Final = 5000
"""Versions of RayServices of which the list is kept."""

Moment = tuple[str, int | None]
"""The name of the pending cluster, and its weight."""


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What names a version of a RayService."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Return the key of the RayService on the page."""
        return f"{self.namespace}/{self.name}"


class _Head(msgspec.Struct, frozen=True):
    metadata: Metadata


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a RayService as the API server sent it."""

    metadata: Metadata
    body: msgspec.Raw


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the list needs of a version of a RayService."""

    row: Row
    progress: Progress
    pending: Moment | None
    """None without a pending cluster."""


_Known = tuple[Metadata, str, str]
"""A version, and uid and version of its pending cluster; empty where the cluster is unknown."""


class Listing:
    """Computes the list and the details for all sessions.

    An entry names the version that it was made from, and only a user that has read this version
    with their own rights asks for it, so sharing entries shows nobody more than they may read.
    """

    def __init__(self) -> None:
        self.details: Final = FairThreads(DETAIL_THREADS)
        self._threads = FairThreads(LIST_THREADS)
        self._known: Remembered[_Known, Entry] = Remembered(
            most=MAX_ENTRIES, size=lambda _, entry: len(entry.row.message)
        )

    def close(self) -> None:
        """Compute nothing more."""
        self.details.close()
        self._threads.close()

    async def split(self, namespace: str | None, body: bytes) -> list[Version]:
        """Return the RayServices in an answer of the API server."""
        return await self._threads.run(namespace or ALL, partial(_split, body))

    async def entries(
        self, versions: Sequence[Version], clusters: Mapping[str, RayCluster]
    ) -> dict[str, Entry]:
        """Return the entries by the keys of the RayServices, as `clusters` with the pending ones."""
        ordered = sorted(versions, key=lambda each: each.metadata.key)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._of_namespace(list(each), clusters))
                for _, each in groupby(ordered, key=lambda each: each.metadata.namespace)
            ]
        return {key: entry for task in tasks for key, entry in task.result().items()}

    async def _of_namespace(
        self, versions: Sequence[Version], clusters: Mapping[str, RayCluster]
    ) -> dict[str, Entry]:
        return {
            each.metadata.key: await self._entry(each, clusters.get(each.metadata.key))
            for each in versions
        }

    async def _entry(self, version: Version, cluster: RayCluster | None) -> Entry:
        meta = version.metadata
        known: _Known = (meta, "", "")
        if cluster is not None:
            known = (meta, cluster.metadata.uid, cluster.metadata.resource_version)
        entry = self._known.get(known)
        if entry is None:
            compute = partial(_compute, meta, version.body, cluster)
            entry = await self._threads.run(meta.namespace, compute)
            if meta.uid and meta.resource_version:
                self._known[known] = entry
        return entry


def _split(body: bytes) -> list[Version]:
    return [
        Version(metadata=msgspec.json.decode(each, type=_Head).metadata, body=each)
        for each in msgspec.json.decode(body, type=Items[msgspec.Raw]).items
    ]


def _compute(metadata: Metadata, body: msgspec.Raw, cluster: RayCluster | None) -> Entry:
    try:
        service = ray_service.decode(bytes(body))
        pending = service.status.pending_service_status
        name = pending.ray_cluster_name
        return Entry(
            row=model.row(service, cluster, now=session.now()),
            progress=history.progress_of(service),
            pending=(name, pending.traffic_routed_percent) if name else None,
        )
    except Exception as problem:  # one object of a tenant may not hide the others
        log.exception("a RayService cannot be shown", key=metadata.key, error=str(problem))
        row = model.unreadable(metadata.namespace, metadata.name, problem)
        return Entry(row=row, progress=Progress(old="", new=""), pending=None)
