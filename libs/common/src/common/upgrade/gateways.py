"""The Gateways of a RayService's traffic, read once for each reconcile: ours, and those of a user's route.

The bus brings ours. Those of users may have any owner, so they are looked up, and seldom where nothing moves. So are objects of
another owner under the name of ours.
"""

from collections.abc import Iterable
from typing import Final

from common import names
from common.api.gateway import Gateway, HttpRoute
from common.api.meta import ObjectMeta
from common.kube.resources import GATEWAY, HTTP_ROUTE
from common.runtime.cache import Cache
from common.runtime.lookup import Lookup
from common.upgrade.weighted_route import Place

FOREIGN: Final = 2.0
"""Seconds that a Gateway may be old that the bus does not deliver to us."""
FOREIGN_AT_REST: Final = 30.0


async def read(
    lookup: Lookup, cache: Cache, service: ObjectMeta, wanted: Iterable[Place], *, is_moving: bool
) -> dict[Place, Gateway | None]:
    """Return our Gateway and those that are wanted by namespace and name; None for those that cannot be read."""
    ours = (service.namespace, names.gateway(service.name))
    max_age = FOREIGN if is_moving else FOREIGN_AT_REST
    ages = {place: FOREIGN_AT_REST if place == ours else max_age for place in wanted}
    found = {place: await lookup.find(GATEWAY, Gateway, place, max_age=age) for place, age in ages.items()}
    return {ours: cache.get(Gateway, *ours), **found}


async def own_route(lookup: Lookup, cache: Cache, service: ObjectMeta, *, is_wanted: bool) -> HttpRoute | None:
    """Return the HTTPRoute of the name of ours; where it is wanted, also one of another owner."""
    place = (service.namespace, names.http_route(service.name))
    if not is_wanted:
        return cache.get(HttpRoute, *place)
    return await lookup.find(HTTP_ROUTE, HttpRoute, place, max_age=FOREIGN_AT_REST)
