"""The Gateways that a RayService's traffic comes through, read once for a look: ours, and those that a user's route hangs on.

The bus brings ours. Those of users may belong to anybody, so they are looked up, and seldom where nothing moves.
"""

from collections.abc import Iterable
from typing import Final

from common import names
from common.api.gateway import Gateway
from common.api.meta import ObjectMeta
from common.bus.cache import Cache
from common.kube.lookup import Lookup
from common.kube.resources import GATEWAY
from common.weighted_route import Place

FOREIGN: Final = 2.0
"""Seconds that a Gateway may be old that the bus brings to somebody else."""
FOREIGN_AT_REST: Final = 30.0


async def read(
    lookup: Lookup, cache: Cache, service: ObjectMeta, foreign: Iterable[Place], *, is_moving: bool
) -> dict[Place, Gateway | None]:
    """Return our Gateway and some others by namespace and name; None for those that nobody can see."""
    max_age = FOREIGN if is_moving else FOREIGN_AT_REST
    found = {place: await lookup.find(GATEWAY, Gateway, place, max_age=max_age) for place in foreign}
    ours = (service.namespace, names.gateway(service.name))
    return {**found, ours: cache.get(Gateway, *ours)}
