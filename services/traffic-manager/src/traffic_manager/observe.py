"""All reads of one reconcile of a RayService, once, into one frozen value.

The cache may be behind right after a start, so the RayService and its route are read from the API server when this replica
reconciles them for the first time: a capacity, unlike a weight, is not fenced by a resourceVersion. And again once something was
made for it: below a RayService that was deleted, with the deletion not yet on the bus, the garbage collector removes
whatever is made.
"""

from collections import OrderedDict
from datetime import datetime

import msgspec

from common import errors, labels, names
from common.api.core import EndpointSlice, EndpointSlices, Service
from common.api.gateway import GrpcRoute, HttpRoute
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import ClusterServiceStatus, RayService
from common.clock import Clock
from common.kube import managers
from common.kube.client import Kube
from common.kube.resources import ENDPOINT_SLICE, GATEWAY, GRPC_ROUTE, HTTP_ROUTE, RAY_CLUSTER, Resource
from common.ray import endpoints, owner, poll_interval
from common.ray.revisions import Revisions
from common.ray.serve_api import ServeApi
from common.ray.serve_reader import ServeReader
from common.ray.view import head_is_ready
from common.runtime.cache import Cache, Object, Objects
from common.runtime.key import Key
from common.runtime.lookup import Lookup
from common.upgrade import weighted_route
from common.upgrade.service_reader import ServiceReader
from common.upgrade.traffic_record import WHOLE, Record
from traffic_manager.observed import Baseline, ClusterView, Observed
from traffic_manager.status import health

FRESH = 0.2
"""Seconds that an answer may be old while traffic moves."""
STEADY = 4.5
UNMARKED = 0.5
"""Seconds that a user's route may be old before it is labelled with its RayService, so that the bus brings it."""
REMEMBERED = 8192
ABSENT = 30.0
"""Seconds until a kind that the API server does not know is asked for again."""


class _Memory(msgspec.Struct):
    """What was observed of one cluster's health; forgotten with the process, which costs a moment of grace."""

    unhealthy_since: datetime | None = None
    healthy_since: datetime | None = None
    baseline: Baseline | None = None
    whole: Baseline | None = None


class Observer:
    """Reads what a plan may know."""

    def __init__(self, cache: Cache, kube: Kube, serve: ServeApi, revisions: Revisions, *, clock: Clock) -> None:
        self._cache = cache
        self._kube = kube
        self._clock = clock
        self._lookup = Lookup(kube, cache, clock)
        self.service_reader = ServiceReader(cache, self._lookup, unmarked=UNMARKED)
        self.serve_reader = ServeReader(cache, serve, revisions)
        self._absent_since: OrderedDict[tuple[str, str], float] = OrderedDict()
        """Services by uid, with kinds that the API server did not know when they were asked for."""
        self._memories: OrderedDict[str, _Memory] = OrderedDict()
        """By the clusters' uids."""

    def forget(self, objects: Objects) -> None:
        """Drop what is remembered of objects that another replica reconciles from now on."""
        self.service_reader.forget(objects)
        for each in objects:
            self._memories.pop(each.metadata.uid, None)
            if isinstance(each, RayService):
                for kind in (GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind):
                    self._absent_since.pop((each.metadata.uid, kind), None)

    async def observe(self, key: Key, *, now: datetime) -> Observed | None:
        """Return what is known of a RayService; None when it is gone or another operator's."""
        service = await self.service_reader.service(key, at_first=self._read_route)
        if service is None or service.manager != labels.MANAGED_BY_US:
            return None
        service = await self._with_own_clusters(service)
        active, pending = await self._views(service, now=now)
        clusters = self._cache.list(RayCluster, key.namespace, owner.marks(key.name))
        observed = Observed(
            service=service,
            active=active,
            pending=pending,
            clusters=frozenset(
                each.metadata.name for each in clusters if owner.other(each.metadata, service.metadata) is None
            ),
            unknown_kinds=self._unknown_kinds(service.metadata.uid),
            rest=poll_interval.at_rest(self._cache.count(RayService)),
        )
        in_steps, is_moving = observed.is_incremental, pending is not None
        reads_parents = in_steps or weighted_route.is_users(service)
        observed = await self.service_reader.with_routes(
            observed, is_incremental=in_steps, reads_parents=reads_parents, is_moving=is_moving
        )
        record, held = observed.record, {view.name for view in (active, pending) if view is not None}
        named = {name: self._own_cluster(service.metadata, name) for name in record.clusters if name not in held}
        return msgspec.structs.replace(
            observed,
            overwriter=await self._overwriter(observed),
            active=self._remembered(active, record, now=now),
            pending=self._remembered(pending, record, now=now),
            others=tuple(ClusterView(cluster=each) for each in named.values() if each is not None),
            gone=frozenset(name for name, each in named.items() if each is None),
        )

    async def observe_directly(self, key: Key, *, now: datetime) -> Observed | None:
        """Read an upgrade from the API server, whatever the cache holds; None where no upgrade is on. Without the bus nothing else changes the cache."""
        known = self._cache.get(RayService, key.namespace, key.name)
        if known is None or not known.status.pending_service_status.ray_cluster_name:
            return None
        self.service_reader.read_again(known.metadata)
        service = await self.service_reader.service(key, at_first=self._read_route)
        if service is None:
            return None
        for role in (service.status.active_service_status, service.status.pending_service_status):
            if role.ray_cluster_name:
                await self._refresh(RAY_CLUSTER, RayCluster, (key.namespace, role.ray_cluster_name))
                await self._refresh_endpoints(key.namespace, names.serve_service(role.ray_cluster_name))
        await self._refresh(GRPC_ROUTE, GrpcRoute, (key.namespace, names.grpc_route(key.name)))
        return await self.observe(key, now=now)

    async def _refresh(self, resource: Resource, view: type[Object], place: tuple[str, str]) -> None:
        """Have the cache hold an object as the API server has it; one that it does not hold is left to `observe`."""
        known = self._cache.get(view, *place)
        if known is not None and await self._lookup.read(resource, view, place) is None:
            self._cache.forget([known])

    async def _refresh_endpoints(self, namespace: str, backend: str) -> None:
        """Have the cache hold the EndpointSlices of a Service as the API server has them."""
        marks = {labels.SERVICE_NAME: backend}
        selector = f"{labels.SERVICE_NAME}={backend}"
        body = await self._kube.list(ENDPOINT_SLICE, namespace, label_selector=selector)
        found = msgspec.json.decode(body, type=EndpointSlices).items
        held = {each.metadata.name for each in found}
        self._cache.forget(
            each for each in self._cache.list(EndpointSlice, namespace, marks) if each.metadata.name not in held
        )
        for each in found:
            self._cache.put(each)

    def note_absence(self, service: ObjectMeta, kind: str) -> bool:
        """Remember that the API server does not know a kind that a service needs; return whether that was unknown so far."""
        key = (service.uid, kind)
        is_new = key not in self._absent_since
        self._absent_since[key] = self._clock.monotonic()
        if len(self._absent_since) > REMEMBERED:
            self._absent_since.popitem(last=False)
        return is_new

    def note_presence(self, service: ObjectMeta, kind: str) -> None:
        """Remember that the API server knows a kind."""
        self._absent_since.pop((service.uid, kind), None)

    def _unknown_kinds(self, uid: str) -> frozenset[str]:
        now = self._clock.monotonic()
        kinds = (GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind)
        return frozenset(kind for kind in kinds if now - self._absent_since.get((uid, kind), now - ABSENT) < ABSENT)

    async def _overwriter(self, observed: Observed) -> str | None:
        """Return the field manager that replaced our backends; the bus does not bring the managed fields."""
        service, route = observed.service, observed.route
        if route is None or weighted_route.refusal(service, route) is not None:
            return None
        if not weighted_route.is_overwritten(route, weighted_route.own_backends(service, observed.clusters, (route,))):
            return None
        try:
            return managers.of_rules(await self._kube.get(HTTP_ROUTE, route.metadata.namespace, route.metadata.name))
        except errors.NotFound:
            return None

    async def _read_route(self, service: RayService) -> None:
        """Take the route in as it is now; one that nobody marked yet would not be kept up to date."""
        meta, name = service.metadata, weighted_route.name_of(service)
        try:
            body = await self._kube.get(HTTP_ROUTE, meta.namespace, name)
        except errors.NotFound:
            return
        route = msgspec.json.decode(body, type=HttpRoute)
        if name == names.http_route(meta.name) or route.metadata.labels.get(labels.ORIGIN_NAME) == meta.name:
            self._cache.put(route)

    async def _with_own_clusters(self, service: RayService) -> RayService:
        """Return a RayService without the roles of clusters that it may not control; service-reconciler corrects the status."""
        status, foreign = service.status, await self.service_reader.foreign_clusters(service)
        roles = {
            "active_service_status": status.active_service_status,
            "pending_service_status": status.pending_service_status,
        }
        gone = {field: ClusterServiceStatus() for field, role in roles.items() if role.ray_cluster_name in foreign}
        return msgspec.structs.replace(service, status=msgspec.structs.replace(status, **gone)) if gone else service

    def _own_cluster(self, service: ObjectMeta, name: str) -> RayCluster | None:
        """Return a cluster that a record names; None when there is none that the RayService may control."""
        cluster = self._cache.get(RayCluster, service.namespace, name)
        return cluster if cluster is not None and owner.may_control(service, cluster.metadata) else None

    async def _views(self, service: RayService, *, now: datetime) -> tuple[ClusterView | None, ClusterView | None]:
        status = service.status
        active = status.active_service_status.ray_cluster_name
        pending = status.pending_service_status.ray_cluster_name
        max_age = FRESH if pending else STEADY
        namespace = service.metadata.namespace
        return await self.serve_reader.pair(
            service,
            self._view(namespace, active, max_age=max_age, now=now),
            self._view(namespace, pending, max_age=max_age, now=now),
        )

    def _remembered(self, view: ClusterView | None, record: Record, *, now: datetime) -> ClusterView | None:
        """Return a view that knows since when its cluster is well or not, and what carried its traffic before."""
        if view is None:
            return None
        memory = self._memories.setdefault(view.cluster.metadata.uid, _Memory())
        self._memories.move_to_end(view.cluster.metadata.uid)
        if len(self._memories) > REMEMBERED:
            self._memories.popitem(last=False)
        view = msgspec.structs.replace(view, baseline=memory.baseline)
        if health.is_healthy(view):
            memory.unhealthy_since, memory.healthy_since = None, _since(memory.healthy_since, now=now)
            share = record.clusters.get(view.name)
            memory.baseline = health.baseline(view, 0 if share is None else share.weight)
            memory.whole = memory.baseline if share is not None and share.weight == WHOLE else memory.whole
        else:
            memory.unhealthy_since, memory.healthy_since = _since(memory.unhealthy_since, now=now), None
        return msgspec.structs.replace(
            view, unhealthy_since=memory.unhealthy_since, healthy_since=memory.healthy_since, whole=memory.whole
        )

    async def _view(self, namespace: str, name: str, *, max_age: float, now: datetime) -> ClusterView | None:
        if not name:
            return None
        cluster = await self._lookup.known(RAY_CLUSTER, RayCluster, (namespace, name))
        if cluster is None:
            return None
        backend = names.serve_service(name)
        slices = self._cache.list(EndpointSlice, namespace, {labels.SERVICE_NAME: backend})
        view = ClusterView(
            cluster=cluster,
            serve_service=self._cache.get(Service, namespace, backend),
            endpoints=endpoints.count(slices),
            addresses=endpoints.addresses(slices),
        )
        return await self.serve_reader.read(view, max_age=max_age, now=now) if head_is_ready(cluster) else view


def _since(moment: datetime | None, *, now: datetime) -> datetime:
    """Return when something began; a moment of the future stems from a clock that was set back since."""
    return now if moment is None or moment > now else moment
