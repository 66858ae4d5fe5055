"""All reads of one look at a RayService, once, into one frozen value.

The cache may be behind right after a start, so the RayService and its route are read from the API server when this replica
meets them for the first time: a capacity, unlike a weight, is not fenced by a resourceVersion.
"""

import asyncio
from datetime import datetime, timedelta

import msgspec

from common import errors, labels, names
from common.api import ray_service
from common.api.core import EndpointSlice, Service
from common.api.gateway import Gateway, HttpRoute
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.bus.cache import Cache
from common.feature_gates import Gates
from common.kube.client import Kube
from common.kube.resources import HTTP_ROUTE, RAY_SERVICE
from common.ray import endpoints
from common.ray.view import head_is_ready
from common.runtime.clock import Clock
from common.runtime.key import Key
from traffic_manager.observed import ClusterView, Observed
from traffic_manager.ports import Revisions, ServeApi
from traffic_manager.status import proof

FRESH = 0.2
"""Seconds that an answer may be old while traffic moves."""
STEADY = 4.5
REMEMBERED = 8192
ABSENT = 30.0
"""Seconds until a kind that the API server does not know is asked for again."""


class Observer:
    """Reads what a plan may know."""

    def __init__(
        self, cache: Cache, kube: Kube, serve: ServeApi, revisions: Revisions, *, gates: Gates, clock: Clock
    ) -> None:
        self._cache = cache
        self._kube = kube
        self._serve = serve
        self._revisions = revisions
        self._gates = gates
        self._clock = clock
        self._met: set[Key] = set()
        self._absent_since: float | None = None
        self._silent_since: dict[str, datetime] = {}
        """Clusters, by uid, that cannot serve; forgotten with the process, which costs a moment of patience."""

    async def observe(self, key: Key, *, now: datetime) -> Observed | None:
        """Return what is known of a RayService; None when it is gone or somebody else's."""
        service = await self._service(key)
        if service is None or service.raw_spec.get("managedBy", labels.MANAGED_BY_US) != labels.MANAGED_BY_US:
            return None
        active, pending = await self._views(service, now=now)
        return Observed(
            service=service,
            gates=self._gates,
            active=active,
            pending=pending,
            gateway=self._cache.get(Gateway, key.namespace, names.gateway(key.name)),
            route=self._cache.get(HttpRoute, key.namespace, names.http_route(key.name)),
            gateway_api_is_missing=self._is_absent(),
        )

    def note_absence(self) -> None:
        """Remember that the API server knows no Gateways."""
        self._absent_since = self._clock.monotonic()

    def dashboard_service(self, cluster: RayCluster) -> Service | None:
        """Return the Service through which a cluster's dashboard is reached."""
        name = cluster.status.head.service_name or names.head_service(cluster.metadata.name)
        return self._cache.get(Service, cluster.metadata.namespace, name)

    def _is_absent(self) -> bool:
        since = self._absent_since
        return since is not None and self._clock.monotonic() - since < ABSENT

    async def _service(self, key: Key) -> RayService | None:
        service = self._cache.get(RayService, key.namespace, key.name)
        if service is None:
            self._met.discard(key)
            return None
        if key in self._met:
            return service
        try:
            service = ray_service.decode(await self._kube.get(RAY_SERVICE, key.namespace, key.name))
        except errors.NotFound:
            return None
        self._cache.put(service)
        await self._meet_route(key)
        self._met.add(key)
        return service

    async def _meet_route(self, key: Key) -> None:
        try:
            body = await self._kube.get(HTTP_ROUTE, key.namespace, names.http_route(key.name))
        except errors.NotFound:
            return
        self._cache.put(msgspec.json.decode(body, type=HttpRoute))

    async def _views(self, service: RayService, *, now: datetime) -> tuple[ClusterView | None, ClusterView | None]:
        status = service.status
        active = status.active_service_status.ray_cluster_name
        pending = status.pending_service_status.ray_cluster_name
        max_age = FRESH if pending else STEADY
        namespace = service.metadata.namespace
        async with asyncio.TaskGroup() as group:
            first = group.create_task(self._view(namespace, active, max_age=max_age, now=now))
            second = group.create_task(self._view(namespace, pending, max_age=max_age, now=now))
        return self._timed(first.result(), now=now), self._timed(second.result(), now=now)

    def _timed(self, view: ClusterView | None, *, now: datetime) -> ClusterView | None:
        """Return a view that knows since when its cluster cannot serve."""
        if view is None:
            return None
        uid = view.cluster.metadata.uid
        if proof.is_alive(view) and view.endpoints > 0:
            self._silent_since.pop(uid, None)
            return view
        while len(self._silent_since) > REMEMBERED:
            del self._silent_since[next(iter(self._silent_since))]
        return msgspec.structs.replace(view, silent_since=self._silent_since.setdefault(uid, now))

    async def _view(self, namespace: str, name: str, *, max_age: float, now: datetime) -> ClusterView | None:
        cluster = self._cache.get(RayCluster, namespace, name) if name else None
        if cluster is None:
            return None
        backend = names.serve_service(name)
        slices = self._cache.list(EndpointSlice, namespace, {labels.SERVICE_NAME: backend})
        view = ClusterView(
            cluster=cluster,
            serve_service=self._cache.get(Service, namespace, backend),
            endpoints=endpoints.count(slices),
        )
        if not head_is_ready(cluster):
            return view
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._serve.look(cluster, self.dashboard_service(cluster), max_age=max_age))
            record = group.create_task(self._revisions.given(cluster))
        given, put_ago = record.result(), self._serve.put_at(cluster)
        return msgspec.structs.replace(
            view,
            serve=reading.result(),
            given=None if given is None else given.serve_config,
            strategy={} if given is None else given.upgrade_strategy,
            refused=self._serve.refused(cluster),
            put_at=None if put_ago is None else now - timedelta(seconds=put_ago),
        )
