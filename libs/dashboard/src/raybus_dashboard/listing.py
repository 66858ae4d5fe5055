"""Computes the list of RayServices in threads.

A tenant's object may have 1 MB, and the event loop serves all users. The entry of a RayService's
version is computed once, whichever user reads it.
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
from common.runtime.cache import BoundedDict
from raybus_cli import session
from raybus_dashboard import history, model
from raybus_dashboard.history import Progress
from raybus_dashboard.model import Row
from raybus_dashboard.threads import ALL, FairThreads

log = structlog.get_logger()

LIST_THREADS: Final = 2
DETAIL_THREADS: Final = 4
"""Number of threads for details.

More than for lists, because the Serve configs of one RayService can take seconds.
"""
MAX_ENTRIES: Final = 5000
"""Maximum number of RayService versions whose entries are cached."""

Moment = tuple[str, int | None]
"""Name of the pending cluster, and its traffic weight."""


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that identify a version of a RayService."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """NAMESPACE/NAME, which identifies the RayService on the page."""
        return f"{self.namespace}/{self.name}"


class _Head(msgspec.Struct, frozen=True):
    metadata: Metadata


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a RayService as the API server sent it."""

    metadata: Metadata
    body: msgspec.Raw


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a version of a RayService, and the progress of its upgrade."""

    row: Row
    progress: Progress
    pending: Moment | None
    """Name and traffic weight of the pending cluster; None if there is none."""


_Known = tuple[Metadata, str, str]
"""Metadata of the RayService, uid and version of its pending cluster (empty if unknown)."""


class Listing:
    """Computes the list and the details for all sessions.

    Entries are shared between users. An entry belongs to one version of an object, and is requested
    only by a user who has read that version with their own rights, so nobody sees more than they
    may read.
    """

    def __init__(self) -> None:
        self.details: Final = FairThreads(DETAIL_THREADS)
        self._threads = FairThreads(LIST_THREADS)
        self._known: BoundedDict[_Known, Entry] = BoundedDict(
            max_entries=MAX_ENTRIES, size=lambda _, entry: len(entry.row.message)
        )

    def close(self) -> None:
        """Start no further computations."""
        self.details.close()
        self._threads.close()

    async def split(self, namespace: str | None, body: bytes) -> list[Version]:
        """Parse the RayServices in a list response of the API server."""
        return await self._threads.run(namespace or ALL, partial(_split, body))

    async def entries(
        self, versions: Sequence[Version], clusters: Mapping[str, RayCluster]
    ) -> dict[str, Entry]:
        """Return the entries by RayService key.

        `clusters` maps the same keys to pending clusters.
        """
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
    except Exception as problem:  # an unreadable object of one tenant must not hide the others
        log.exception("a RayService cannot be shown", key=metadata.key, error=str(problem))
        row = model.unreadable(metadata.namespace, metadata.name, problem)
        return Entry(row=row, progress=Progress(old="", new=""), pending=None)
