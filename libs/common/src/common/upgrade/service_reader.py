"""Reads RayServices, and the Gateways and routes of their traffic, once for each reconcile; both services read them in the same way.

The cache may be behind right after a start, so a RayService is read from the API server when this replica reconciles it for the first
time. The bus brings our Gateway and routes. Those of users may have any owner, so they are looked up, and seldom where nothing moves.
So are objects of another owner under the name of ours.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from common import names
from common.api.gateway import Gateway, GrpcRoute, HttpRoute
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from common.ray import owner
from common.runtime.cache import Cache, Objects
from common.runtime.key import Key
from common.runtime.lookup import Lookup
from common.upgrade import weighted_route
from common.upgrade.service_view import ServiceView
from common.upgrade.weighted_route import Place

View = TypeVar("View", bound=ServiceView)
FOREIGN: Final = 2.0
"""Seconds that a Gateway may be old that the bus does not deliver to us."""
FOREIGN_AT_REST: Final = 30.0


class ServiceReader:
    """Reads RayServices, and fills their views with Gateways and routes.

    `unmarked`: seconds that a user's route may be old before it is labelled with its RayService, so that the bus brings it.
    """

    def __init__(self, cache: Cache, lookup: Lookup, *, unmarked: float) -> None:
        self._cache = cache
        self._lookup = lookup
        self._unmarked = unmarked
        self._fetched: set[Key] = set()

    def forget(self, objects: Objects) -> None:
        """Drop what is remembered of RayServices that another replica reconciles from now on."""
        for each in objects:
            if isinstance(each, RayService):
                self.read_again(each.metadata)

    def read_again(self, service: ObjectMeta) -> None:
        """Read a RayService from the API server at the next reconcile."""
        self._fetched.discard(Key(service.namespace, service.name))

    async def service(
        self, key: Key, *, at_first: Callable[[RayService], Awaitable[None]] | None = None
    ) -> RayService | None:
        """Return a RayService, None when it is gone; `at_first` reads what else must not be stale at the first reconcile."""
        service = self._cache.get(RayService, key.namespace, key.name)
        if service is None:
            self._fetched.discard(key)
            return None
        if key in self._fetched:
            return service
        service = await self.read_live(key)
        if service is None:
            return None
        if at_first is not None:
            await at_first(service)
        self._fetched.add(key)
        return service

    async def read_live(self, key: Key) -> RayService | None:
        """Return a RayService as the API server has it now."""
        return await self._lookup.read(RAY_SERVICE, RayService, (key.namespace, key.name))

    async def foreign_clusters(self, service: RayService) -> frozenset[str]:
        """Return the names in the status that are of clusters which the RayService may not control."""
        meta, found = service.metadata, set[str]()
        for role in (service.status.active_service_status, service.status.pending_service_status):
            name = role.ray_cluster_name
            cluster = await self._lookup.known(RAY_CLUSTER, RayCluster, (meta.namespace, name)) if name else None
            if cluster is not None and not owner.may_control(meta, cluster.metadata):
                found.add(name)
        return frozenset(found)

    async def with_routes(self, view: View, *, is_incremental: bool, reads_parents: bool, is_moving: bool) -> View:
        """Return a view with routes and Gateways; those that the route hangs on are read only if asked for."""
        service, meta = view.service, view.service.metadata
        ours, marks = (meta.namespace, names.http_route(meta.name)), owner.marks(meta.name)
        route = await self._route(service, is_incremental=is_incremental)
        parents = weighted_route.parents_of(service, route) if reads_parents else ()
        return msgspec.structs.replace(
            view,
            gateways=await self._gateways(meta, parents, is_moving=is_moving),
            route=route,
            our_route=self._cache.get(HttpRoute, *ours),
            users_routes=tuple(
                each for each in self._cache.list(HttpRoute, meta.namespace, marks) if each.metadata.name != ours[1]
            ),
            grpc_route=self._cache.get(GrpcRoute, meta.namespace, names.grpc_route(meta.name)),
        )

    async def _route(self, service: RayService, *, is_incremental: bool) -> HttpRoute | None:
        """Return the route of the traffic; under the name of ours also one of another owner, where a route is wanted."""
        place = (service.metadata.namespace, weighted_route.name_of(service))
        if weighted_route.is_users(service):
            return await self._lookup.find(HTTP_ROUTE, HttpRoute, place, max_age=self._unmarked)
        if not is_incremental:
            return self._cache.get(HttpRoute, *place)
        return await self._lookup.find(HTTP_ROUTE, HttpRoute, place, max_age=FOREIGN_AT_REST)

    async def _gateways(
        self, service: ObjectMeta, wanted: tuple[Place, ...], *, is_moving: bool
    ) -> dict[Place, Gateway | None]:
        """Return our Gateway and those that are wanted by namespace and name; None for those that cannot be read."""
        ours = (service.namespace, names.gateway(service.name))
        max_age = FOREIGN if is_moving else FOREIGN_AT_REST
        ages = {place: FOREIGN_AT_REST if place == ours else max_age for place in wanted}
        found = {place: await self._lookup.find(GATEWAY, Gateway, place, max_age=age) for place, age in ages.items()}
        return {ours: self._cache.get(Gateway, *ours), **found}
