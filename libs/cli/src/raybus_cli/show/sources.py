"""The contents of `raybus get` and `raybus list`: tables of all objects, or trees of some.

A source is read once, or kept up to date by watches.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from common import errors, labels
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.kube.client import KubeClient
from common.kube.resources import (
    EVENT,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    Resource,
    format_selector,
)
from common.kube.watch import WatchSink, WatchTarget
from common.ray import owner, serve_writer
from common.upgrade import weighted_route
from raybus_cli.reading import kinds, reader
from raybus_cli.reading.kinds import Kind
from raybus_cli.reading.kinds import Target as Shown
from raybus_cli.reading.snapshot import ClusterSnapshot, Snapshot
from raybus_cli.show import frame
from raybus_cli.show.changes import EventSignal, Signal, Store
from raybus_cli.show.frame import Frame

RESYNC_SECONDS: Final = 30.0
"""Seconds between reads of Serve's dashboards, which cannot be watched."""
UPGRADE_SECONDS: Final = 2.0
"""Seconds between reads of Serve's dashboards during an upgrade."""


class Source(Protocol):
    """Objects that can be shown and watched."""

    @property
    def resync(self) -> float:
        """Seconds after which the source is refreshed even without a change."""
        ...

    async def refresh(self, kube: KubeClient) -> None:
        """Read what the watches do not provide."""

    def sinks(self, changed: asyncio.Event) -> Mapping[WatchTarget, WatchSink]:
        """Return the collections to watch; a collection that is watched already keeps its sink."""
        ...

    def frame(self, now: datetime) -> Frame | None:
        """Return the present output; None until it is known."""
        ...

    def problem(self, problem: errors.RaybusError) -> errors.RaybusError:
        """Convert the error of a request into an error that names the option to correct."""
        ...


class Tables:
    """Tables of whole kinds.

    The last frame is kept, so that the next frame can report deleted objects.
    """

    resync = float("inf")

    def __init__(
        self, shown: tuple[Kind, ...], scope: str | None, selector: str, *, wide: bool
    ) -> None:
        self._shown = shown
        self._scope = scope
        self._selector = selector
        self._wide = wide
        self._before: list[frame.Item] = []
        self._services: Store[RayService] | None = None
        self._clusters: Store[RayCluster] | None = None

    async def read(self, kube: KubeClient, now: datetime) -> Frame:
        """Read the objects of each kind once."""
        services: list[RayService] = []
        clusters: list[RayCluster] = []
        if kinds.SERVICE in self._shown:
            services = await reader.listed(
                kube, RAY_SERVICE, RayService, self._scope, self._selector
            )
        if kinds.CLUSTER in self._shown:
            clusters = await reader.listed(
                kube, RAY_CLUSTER, RayCluster, self._scope, self._selector
            )
        return self._of(services, clusters, now=now)

    async def refresh(self, kube: KubeClient) -> None:
        """Do nothing, because the watches provide all objects."""

    def sinks(self, changed: asyncio.Event) -> Mapping[WatchTarget, WatchSink]:
        """Return a store for each shown kind."""
        found: dict[WatchTarget, WatchSink] = {}
        if kinds.SERVICE in self._shown:
            self._services = self._services or Store(RayService, changed)
            found[self._target(RAY_SERVICE)] = self._services
        if kinds.CLUSTER in self._shown:
            self._clusters = self._clusters or Store(RayCluster, changed)
            found[self._target(RAY_CLUSTER)] = self._clusters
        return found

    def frame(self, now: datetime) -> Frame | None:
        """Return the tables; None until every kind has been listed."""
        if not all(each.is_listed for each in (self._services, self._clusters) if each is not None):
            return None
        services = self._services.objects if self._services else ()
        return self._of(services, self._clusters.objects if self._clusters else (), now=now)

    @property
    def nothing(self) -> str:
        """The message for the case that no object exists."""
        what = " and ".join(f"no {each.resource.kind}" for each in self._shown)
        labelled = f" with labels {self._selector}" if self._selector else ""
        where = (
            f"in namespace {self._scope}; -A shows all namespaces"
            if self._scope
            else "in any namespace"
        )
        return f"N{what[1:]}{labelled} {where}."

    def problem(self, problem: errors.RaybusError) -> errors.RaybusError:
        """Convert the error of a request; a rejected selector names its option."""
        return reader.of_selector(self._selector, problem)

    def _target(self, resource: Resource) -> WatchTarget:
        return WatchTarget(resource=resource, namespace=self._scope, selector=self._selector)

    def _of(
        self, services: Iterable[RayService], clusters: Iterable[RayCluster], *, now: datetime
    ) -> Frame:
        found = frame.build(services, clusters, now=now)
        made = frame.of_listing(
            found, wide=self._wide, all_namespaces=self._scope is None, before=self._before
        )
        self._before = made.items
        return made


class Trees:
    """Trees of some objects. A change in any object of a tree causes a read of all trees."""

    def __init__(self, namespace: str, objects: Sequence[Shown], *, wide: bool) -> None:
        self._namespace = namespace
        self._objects = objects
        self._wide = wide
        self._found: list[Snapshot | ClusterSnapshot] = []
        self._sinks: dict[WatchTarget, WatchSink] = {}
        self._events: EventSignal | None = None

    @property
    def resync(self) -> float:
        """Seconds until the dashboards are read again."""
        is_upgrading = any(isinstance(each, Snapshot) and each.pending for each in self._found)
        return UPGRADE_SECONDS if is_upgrading else RESYNC_SECONDS

    async def refresh(self, kube: KubeClient) -> None:
        """Read every object with what belongs to it."""
        self._found = [await one(kube, self._namespace, each) for each in self._objects]

    def sinks(self, changed: asyncio.Event) -> Mapping[WatchTarget, WatchSink]:
        """Return signals for the objects and for all objects that belong to them."""
        wanted = {target for each in self._found for target in targets(each)}
        signals = {target: self._sinks.get(target) or Signal(changed) for target in wanted}
        self._events = self._events or EventSignal(changed)
        self._events.objects = frozenset(each for found in self._found for each in _shown(found))
        self._sinks = {
            **signals,
            WatchTarget(resource=EVENT, namespace=self._namespace, is_optional=True): self._events,
        }
        return self._sinks

    def frame(self, now: datetime) -> Frame | None:
        return frame.of_trees(self._found, now=now, wide=self._wide)

    def problem(self, problem: errors.RaybusError) -> errors.RaybusError:
        return problem


async def one(kube: KubeClient, namespace: str, shown: Shown) -> Snapshot | ClusterSnapshot:
    """Read a RayService or RayCluster with what belongs to it."""
    read = reader.read if shown.kind == kinds.SERVICE else reader.read_cluster
    return await read(kube, namespace, shown.name)


def targets(found: Snapshot | ClusterSnapshot) -> list[WatchTarget]:
    """Return the collections that a tree depends on.

    Only that of the object itself is required to be readable.
    """
    itself = found.service if isinstance(found, Snapshot) else found.cluster
    resource = RAY_SERVICE if isinstance(found, Snapshot) else RAY_CLUSTER
    namespace, name = itself.metadata.namespace, itself.metadata.name
    made = [WatchTarget(resource=resource, namespace=namespace, fields=f"metadata.name={name}")]
    clusters = found.clusters if isinstance(found, Snapshot) else (found.cluster,)
    pods = (format_selector({labels.CLUSTER: each.metadata.name}) for each in clusters)
    made += [
        WatchTarget(resource=POD, namespace=namespace, selector=each, is_optional=True)
        for each in pods
    ]
    if isinstance(found, ClusterSnapshot):
        return made
    selector = format_selector(owner.marks(name))
    made.append(
        WatchTarget(resource=RAY_CLUSTER, namespace=namespace, selector=selector, is_optional=True)
    )
    if serve_writer.is_incremental(found.service, BETA):
        route = f"metadata.name={weighted_route.name_of(found.service)}"
        made.append(
            WatchTarget(resource=HTTP_ROUTE, namespace=namespace, fields=route, is_optional=True)
        )
    return made


def _shown(found: Snapshot | ClusterSnapshot) -> Iterable[tuple[str, str]]:
    """Yield kind and name of each object in a tree whose Events are shown."""
    clusters = found.clusters if isinstance(found, Snapshot) else (found.cluster,)
    if isinstance(found, Snapshot):
        yield RAY_SERVICE.kind, found.service.metadata.name
    yield from ((RAY_CLUSTER.kind, each.metadata.name) for each in clusters)
    yield from ((POD.kind, each.metadata.name) for each in found.pods)
