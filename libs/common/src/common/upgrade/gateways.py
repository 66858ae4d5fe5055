"""Read the objects that route a RayService's requests: Gateways, the weighted route, side routes.

NATS delivers raybus's own objects. A user's route and its Gateways may have any owner, so they are
read from the API server, less often while no traffic moves. The same holds for objects of another
owner that have a name which raybus needs.
"""

from collections.abc import Iterable
from typing import Final

from common import names
from common.api.gateway import Gateway, GatewayClass, GrpcRoute, HttpRoute
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.resources import GATEWAY, GATEWAY_CLASS, GRPC_ROUTE, HTTP_ROUTE
from common.names import SideRole
from common.ray import owner, ports
from common.upgrade import side_routes, weighted_route
from common.upgrade.policy import UpgradePolicy
from common.upgrade.side_routes import SideRoutes
from common.upgrade.sources import Sources
from common.upgrade.weighted_route import Place

MAX_FOREIGN_AGE: Final = 2.0
"""Maximum age in seconds of the cached copy of another owner's Gateway, while traffic moves."""
MAX_FOREIGN_AGE_AT_REST: Final = 30.0
"""Maximum age in seconds of the cached copy of another owner's object, while no traffic moves."""


async def read(
    sources: Sources, service: ObjectMeta, wanted: Iterable[Place], *, is_moving: bool
) -> dict[Place, Gateway | None]:
    """Return raybus's own Gateway and those in `wanted`, by namespace and name.

    `wanted` are the parents of the RayService's route. A Gateway that cannot be read is None. The
    state of a Gateway of another owner is at most `MAX_FOREIGN_AGE` seconds old if traffic moves
    (`is_moving`), and otherwise at most `MAX_FOREIGN_AGE_AT_REST` seconds.
    """
    ours = (service.namespace, names.gateway(service.name))
    max_age = MAX_FOREIGN_AGE if is_moving else MAX_FOREIGN_AGE_AT_REST
    ages = {place: MAX_FOREIGN_AGE_AT_REST if place == ours else max_age for place in wanted}
    gateways = {
        place: await sources.lookup.find(GATEWAY, Gateway, place, max_age=age)
        for place, age in ages.items()
    }
    return {ours: sources.cache.get(Gateway, *ours), **gateways}


async def weighted(
    sources: Sources, service: RayService, *, is_wanted: bool, max_age: float
) -> HttpRoute | None:
    """Return the HTTPRoute that carries the traffic of a RayService; None if it does not exist.

    The state of a user's route is at most `max_age` seconds old. `is_wanted` means that raybus
    needs its own route; then the route with that name is returned even if it has another owner.
    """
    meta = service.metadata
    place = (meta.namespace, weighted_route.name_of(service))
    if weighted_route.is_users(service):
        return await sources.lookup.find(HTTP_ROUTE, HttpRoute, place, max_age=max_age)
    if not is_wanted:
        return sources.cache.get(HttpRoute, *place)
    return await sources.lookup.find(HTTP_ROUTE, HttpRoute, place, max_age=MAX_FOREIGN_AGE_AT_REST)


async def grpc(
    sources: Sources, service: RayService, clusters: Iterable[RayCluster]
) -> GrpcRoute | None:
    """Return the GRPCRoute with the name that raybus uses, whoever owns the route.

    It is read from the API server only if one of the `clusters` takes gRPC calls.
    """
    place = (service.metadata.namespace, names.grpc_route(service.metadata.name))
    takes_calls = any(ports.of_grpc(cluster.raw_spec) is not None for cluster in clusters)
    if not takes_calls or weighted_route.is_users(service):
        return sources.cache.get(GrpcRoute, *place)
    return await sources.lookup.find(GRPC_ROUTE, GrpcRoute, place, max_age=MAX_FOREIGN_AGE_AT_REST)


async def read_class(sources: Sources, gateway: Gateway | None) -> GatewayClass | None:
    """Return the class of a Gateway; None if it does not exist or may not be read."""
    name = "" if gateway is None else gateway.spec.gateway_class_name
    if not name:
        return None
    return await sources.lookup.find(
        GATEWAY_CLASS, GatewayClass, ("", name), max_age=MAX_FOREIGN_AGE_AT_REST
    )


async def beside(sources: Sources, service: RayService, policy: UpgradePolicy | None) -> SideRoutes:
    """Return the side routes of a RayService.

    `policy` is the policy of the RayService's upgrade in steps; None without one. NATS delivers
    only raybus's own routes, so a route that is needed but missing is read from the API server: a
    route of another owner may have its name.
    """
    meta, wanted = service.metadata, side_routes.wanted(service, policy)
    held: dict[str, HttpRoute | None] = {}
    foreign: list[HttpRoute] = []
    for role in SideRole:
        place = (meta.namespace, names.side_route(meta.name, role))
        former = (meta.namespace, names.former_side_route(meta.name, role))
        routes = (sources.cache.get(HttpRoute, *route_place) for route_place in (former, place))
        own = (route for route in routes if route is not None and owner.owns(meta, route.metadata))
        held[role] = next(own, None)
        if held[role] is None and role in wanted:
            other = await sources.lookup.find(
                HTTP_ROUTE, HttpRoute, place, max_age=MAX_FOREIGN_AGE_AT_REST
            )
            if other is not None and not owner.owns(meta, other.metadata):
                foreign.append(other)
    return SideRoutes(**held, foreign=tuple(foreign))
