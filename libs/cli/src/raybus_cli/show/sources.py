"""The objects that `raybus get` and `raybus list` show, as tables of all or as trees of named ones.

A source is read once, or kept up to date by watches.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec import structs

from common import errors, labels
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.kube.client import KubeClient
from common.kube.resources import (
    EVENT,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    Resource,
    format_selector,
)
from common.kube.watch import WatchSink, WatchTarget
from common.ray import owner, serve_writer
from common.upgrade import weighted_route
from raybus_cli.reading import job_reader, kinds, reader
from raybus_cli.reading.job_snapshot import CronJobSnapshot, JobSnapshot
from raybus_cli.reading.kinds import ArgumentKind
from raybus_cli.reading.kinds import NamedTarget as Shown
from raybus_cli.reading.snapshot import ClusterSnapshot, Snapshot
from raybus_cli.show import frame
from raybus_cli.show.changes import EventSignal, ObjectStore, Signal
from raybus_cli.show.frame import AnySnapshot, OutputFrame

RESYNC_SECONDS: Final = 30.0
"""Seconds between reads of Ray dashboards for the state of Serve, which cannot be watched."""
UPGRADE_SECONDS: Final = 2.0
"""Seconds between reads of Ray dashboards during an upgrade."""


class ObjectSource(Protocol):
    """Objects that a command shows, with the watches that keep them up to date."""

    @property
    def resync(self) -> float:
        """Seconds after which the source is refreshed even without a change."""
        ...

    async def refresh(self, kube: KubeClient) -> None:
        """Read what the watches do not provide, such as the state of Serve."""

    def build_sinks(self, changed: asyncio.Event) -> Mapping[WatchTarget, WatchSink]:
        """Return a sink for each collection to watch; each one keeps its sink between calls.

        A sink sets `changed` at each change.
        """
        ...

    def build_frame(self, now: datetime) -> OutputFrame | None:
        """Return the present output; None until the objects have been read."""
        ...

    def convert_error(self, problem: errors.RaybusError) -> errors.RaybusError:
        """Convert the error of a request into an error that names the option to correct."""
        ...


_VIEWS: Final[Mapping[ArgumentKind, type[Any]]] = {
    kinds.SERVICE: RayService,
    kinds.CLUSTER: RayCluster,
    kinds.JOB: RayJob,
    kinds.CRON_JOB: RayCronJob,
}
_OPTIONAL: Final = frozenset({kinds.JOB, kinds.CRON_JOB})
"""Kinds that a list of all kinds omits if they are not served or the user may not list them."""


class TableSource:
    """Tables of all objects of the kinds `shown`, in the namespace `scope` (None: in all).

    The last frame is kept, so that the next frame can report deleted objects.
    """

    resync = float("inf")

    def __init__(
        self, shown: tuple[ArgumentKind, ...], scope: str | None, selector: str, *, wide: bool
    ) -> None:
        self._shown = shown
        self._scope = scope
        self._selector = selector
        self._wide = wide
        self._before: list[frame.Item] = []
        self._stores: dict[ArgumentKind, ObjectStore[Any]] = {}
        self._optional = _OPTIONAL if set(kinds.KINDS) <= set(shown) else frozenset[ArgumentKind]()
        self.unseen: list[str] = []
        """Kinds that the user may not list, each with the reason."""

    async def read(self, kube: KubeClient, now: datetime) -> OutputFrame:
        """Read the objects of each kind once."""
        objects = {kind: await self._list(kube, kind) for kind in self._shown}
        return self._build_frame(objects, now=now)

    async def _list(self, kube: KubeClient, kind: ArgumentKind) -> list[Any]:
        try:
            return await reader.list_objects(
                kube, kind.resource, _VIEWS[kind], self._scope, self._selector
            )
        except (errors.Forbidden, errors.NotFound) as problem:
            if kind not in self._optional:
                raise
            if isinstance(problem, errors.Forbidden):
                self.unseen.append(f"{kind.resource.plural}: {problem}")
            return []

    async def refresh(self, kube: KubeClient) -> None:
        """Do nothing, because the watches provide all objects."""

    def build_sinks(self, changed: asyncio.Event) -> Mapping[WatchTarget, WatchSink]:
        """Return a store for each shown kind."""
        for kind in self._shown:
            self._stores.setdefault(kind, ObjectStore(_VIEWS[kind], changed))
        return {self._build_target(kind): store for kind, store in self._stores.items()}

    def build_frame(self, now: datetime) -> OutputFrame | None:
        """Return the tables; None until every required kind has been listed."""
        stores = self._stores.items()
        if any(not store.is_listed and kind not in self._optional for kind, store in stores):
            return None
        return self._build_frame({kind: store.objects for kind, store in stores}, now=now)

    @property
    def empty_message(self) -> str:
        """The message to print if no object exists."""
        *others, last = (target.resource.kind for target in self._shown)
        what = f"{', '.join(others)} or {last}" if others else last
        labelled = f" with labels {self._selector}" if self._selector else ""
        where = (
            f"in namespace {self._scope}; -A shows all namespaces"
            if self._scope
            else "in any namespace"
        )
        return f"No {what}{labelled} {where}."

    def convert_error(self, problem: errors.RaybusError) -> errors.RaybusError:
        """Convert the error of a request; for a rejected selector, the result names the option."""
        return reader.convert_list_error(self._selector, problem)

    def _build_target(self, kind: ArgumentKind) -> WatchTarget:
        return WatchTarget(
            resource=kind.resource,
            namespace=self._scope,
            selector=self._selector,
            is_optional=kind in self._optional,
        )

    def _build_frame(
        self, objects: Mapping[ArgumentKind, Iterable[Any]], *, now: datetime
    ) -> OutputFrame:
        output = frame.build(*(objects.get(kind, ()) for kind in kinds.KINDS), now=now)
        made = frame.build_listing(
            output, wide=self._wide, all_namespaces=self._scope is None, before=self._before
        )
        self._before = made.items
        return made


class TreeSource:
    """Trees of some objects. If any object of a tree changes, all trees are read again."""

    def __init__(self, namespace: str, objects: Sequence[Shown], *, wide: bool) -> None:
        self._namespace = namespace
        self._objects = objects
        self._wide = wide
        self._found: list[AnySnapshot] = []
        self._sinks: dict[WatchTarget, WatchSink] = {}
        self._events: EventSignal | None = None

    @property
    def resync(self) -> float:
        """Seconds until the Ray dashboards are read again."""
        is_upgrading = any(
            isinstance(snapshot, Snapshot) and snapshot.pending for snapshot in self._found
        )
        return UPGRADE_SECONDS if is_upgrading else RESYNC_SECONDS

    async def refresh(self, kube: KubeClient) -> None:
        """Read every object and the objects that belong to it."""
        self._found = [await read_one(kube, self._namespace, target) for target in self._objects]

    def build_sinks(self, changed: asyncio.Event) -> Mapping[WatchTarget, WatchSink]:
        """Return a sink that signals changes for each collection with objects of the trees."""
        wanted = {target for snapshot in self._found for target in list_targets(snapshot)}
        signals = {target: self._sinks.get(target) or Signal(changed) for target in wanted}
        self._events = self._events or EventSignal(changed)
        self._events.objects = frozenset(
            key for snapshot in self._found for key in _list_shown(snapshot)
        )
        self._sinks = {
            **signals,
            WatchTarget(resource=EVENT, namespace=self._namespace, is_optional=True): self._events,
        }
        return self._sinks

    def build_frame(self, now: datetime) -> OutputFrame | None:
        return frame.build_trees(self._found, now=now, wide=self._wide)

    def convert_error(self, problem: errors.RaybusError) -> errors.RaybusError:
        return problem


async def read_one(kube: KubeClient, namespace: str, shown: Shown) -> AnySnapshot:
    """Read an object and the objects that belong to it."""
    match shown.kind:
        case kinds.SERVICE:
            return await reader.read(kube, namespace, shown.name)
        case kinds.CLUSTER:
            return await reader.read_cluster(kube, namespace, shown.name)
        case kinds.JOB:
            return await job_reader.read_job(kube, namespace, shown.name)
        case _:
            return await job_reader.read_cron_job(kube, namespace, shown.name)


def list_targets(snapshot: AnySnapshot) -> list[WatchTarget]:
    """Return the collections to watch for the tree of an object.

    Only the collection of the object itself must be readable.
    """
    match snapshot:
        case Snapshot():
            clusters = snapshot.clusters
            targets = [_watch_one(RAY_SERVICE, snapshot.service.metadata)]
            targets += _list_service_targets(snapshot)
        case ClusterSnapshot():
            clusters = (snapshot.cluster,)
            targets = [_watch_one(RAY_CLUSTER, snapshot.cluster.metadata)]
        case JobSnapshot():
            clusters = () if snapshot.cluster is None else (snapshot.cluster,)
            targets = [_watch_one(RAY_JOB, snapshot.job.metadata), *_list_job_targets(snapshot)]
        case CronJobSnapshot():
            clusters, meta = (), snapshot.cron_job.metadata
            selector = format_selector({labels.CRON_JOB_NAME: meta.name})
            jobs = _watch_labelled(RAY_JOB, meta.namespace, selector)
            targets = [_watch_one(RAY_CRON_JOB, meta), jobs]
    namespace = targets[0].namespace or ""
    return targets + [
        _watch_labelled(POD, namespace, format_selector({labels.CLUSTER: cluster.metadata.name}))
        for cluster in clusters
    ]


def _list_service_targets(snapshot: Snapshot) -> list[WatchTarget]:
    meta = snapshot.service.metadata
    selector = format_selector(owner.marks(meta.name))
    targets = [_watch_labelled(RAY_CLUSTER, meta.namespace, selector)]
    if serve_writer.is_incremental(snapshot.service, BETA):
        route = f"metadata.name={weighted_route.name_of(snapshot.service)}"
        targets.append(
            WatchTarget(
                resource=HTTP_ROUTE, namespace=meta.namespace, fields=route, is_optional=True
            )
        )
    return targets


def _list_job_targets(snapshot: JobSnapshot) -> list[WatchTarget]:
    meta = snapshot.job.metadata
    selector = format_selector({labels.KUBERNETES_JOB_NAME: meta.name})
    targets = [_watch_labelled(POD, meta.namespace, selector)]
    if snapshot.cluster is not None:
        cluster = _watch_one(RAY_CLUSTER, snapshot.cluster.metadata)
        targets.append(structs.replace(cluster, is_optional=True))
    return targets


def _watch_one(resource: Resource, meta: ObjectMeta) -> WatchTarget:
    return WatchTarget(
        resource=resource, namespace=meta.namespace, fields=f"metadata.name={meta.name}"
    )


def _watch_labelled(resource: Resource, namespace: str, selector: str) -> WatchTarget:
    return WatchTarget(resource=resource, namespace=namespace, selector=selector, is_optional=True)


def _list_shown(snapshot: AnySnapshot) -> Iterable[tuple[str, str]]:
    """Yield kind and name of each object in a tree whose Events are shown."""
    match snapshot:
        case Snapshot():
            yield RAY_SERVICE.kind, snapshot.service.metadata.name
            clusters, pods = snapshot.clusters, snapshot.pods
        case ClusterSnapshot():
            clusters, pods = (snapshot.cluster,), snapshot.pods
        case JobSnapshot():
            yield RAY_JOB.kind, snapshot.job.metadata.name
            yield "Job", snapshot.job.metadata.name
            clusters = () if snapshot.cluster is None else (snapshot.cluster,)
            pods = (*snapshot.pods, *snapshot.submitters)
        case CronJobSnapshot():
            yield RAY_CRON_JOB.kind, snapshot.cron_job.metadata.name
            clusters, pods = (), ()
    yield from ((RAY_CLUSTER.kind, cluster.metadata.name) for cluster in clusters)
    yield from ((POD.kind, pod.metadata.name) for pod in pods)
