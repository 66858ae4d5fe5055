"""Computes the list of RayServices in threads.

The event loop serves all users, and decoding a tenant's object of 1 MB would block it. The row of
one version of a RayService is computed once for all users who read it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, TypeVar

import msgspec
import structlog

from common.api import ray_service
from common.api.meta import Items
from common.api.ray_cluster import RayCluster
from common.runtime.cache import BoundedDict
from raybus_cli import session
from raybus_dashboard import history, model
from raybus_dashboard.history import ObservedUpgrade
from raybus_dashboard.model import ListedService
from raybus_dashboard.threads import ALL, FairThreads

log = structlog.get_logger()

LIST_THREADS: Final = 2
DETAIL_THREADS: Final = 4
"""Number of threads that compute the details of RayServices.

There are more than for lists, because the Serve configs of one RayService can take seconds.
"""
MAX_ENTRIES: Final = 5000
"""Maximum number of RayService versions whose entries are cached."""

T = TypeVar("T")
Moment = tuple[str, int | None]
"""Name of the pending cluster, and its traffic weight in percent (None: unknown)."""


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


class ServiceVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a RayService as the API server sent it."""

    metadata: Metadata
    body: msgspec.Raw


class ListEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a version of a RayService, and the progress of its upgrade."""

    row: ListedService
    progress: ObservedUpgrade
    pending: Moment | None
    """Name and traffic weight of the pending cluster; None if there is none."""


_Known = tuple[Metadata, str, str]
"""Cache key: metadata of the RayService, uid and resource version of its pending cluster.

The last two are empty if the cluster is unknown.
"""


class SharedListing:
    """Computes the list and the details for all sessions.

    Entries are shared between users. An entry belongs to one version of an object, and is requested
    only by a user who has read that version with their own rights, so nobody sees more than they
    may read.
    """

    def __init__(self) -> None:
        self.details: Final = FairThreads(DETAIL_THREADS)
        self._threads = FairThreads(LIST_THREADS)
        self._known: BoundedDict[_Known, ListEntry] = BoundedDict(
            max_entries=MAX_ENTRIES, size=lambda _, entry: len(entry.row.message)
        )

    def close(self) -> None:
        """Prevent further computations from starting."""
        self.details.close()
        self._threads.close()

    async def compute(self, namespace: str | None, work: Callable[[], T]) -> T:
        """Run a computation about the objects of a namespace (None: of all) in a thread."""
        return await self._threads.run(namespace or ALL, work)

    async def split(self, namespace: str | None, body: bytes) -> list[ServiceVersion]:
        """Parse the RayServices in a list response of the API server."""
        return await self._threads.run(namespace or ALL, partial(_split_items, body))

    async def update_entries(
        self, versions: Sequence[ServiceVersion], clusters: Mapping[str, RayCluster]
    ) -> dict[str, ListEntry]:
        """Return the entries of RayService versions by key; compute entries that are not cached.

        `clusters` maps the same keys to pending clusters.
        """
        ordered = sorted(versions, key=lambda version: version.metadata.key)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._update_namespace(list(listed), clusters))
                for _, listed in groupby(ordered, key=lambda version: version.metadata.namespace)
            ]
        return {key: entry for task in tasks for key, entry in task.result().items()}

    async def _update_namespace(
        self, versions: Sequence[ServiceVersion], clusters: Mapping[str, RayCluster]
    ) -> dict[str, ListEntry]:
        return {
            version.metadata.key: await self._update_entry(
                version, clusters.get(version.metadata.key)
            )
            for version in versions
        }

    async def _update_entry(self, version: ServiceVersion, cluster: RayCluster | None) -> ListEntry:
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


def _split_items(body: bytes) -> list[ServiceVersion]:
    return [
        ServiceVersion(metadata=msgspec.json.decode(item, type=_Head).metadata, body=item)
        for item in msgspec.json.decode(body, type=Items[msgspec.Raw]).items
    ]


def _compute(metadata: Metadata, body: msgspec.Raw, cluster: RayCluster | None) -> ListEntry:
    try:
        service = ray_service.decode(bytes(body))
        pending = service.status.pending_service_status
        name = pending.ray_cluster_name
        return ListEntry(
            row=model.build_row(service, cluster, now=session.read_clock()),
            progress=history.derive_progress(service),
            pending=(name, pending.traffic_routed_percent) if name else None,
        )
    except Exception as problem:  # an unreadable object of one tenant must not hide the others
        log.exception("cannot show a RayService", key=metadata.key, error=str(problem))
        row = model.build_unreadable_row(metadata.namespace, metadata.name, problem)
        return ListEntry(row=row, progress=ObservedUpgrade(old="", new=""), pending=None)
