"""What one look at a RayService leads to.

Weighted routes are not built in this release: service-reconciler gives the incremental type one switch of all traffic. Users
of that type are told so, once for each generation of their object, and nothing else is touched.
"""

from typing import Final

import msgspec

from common import labels
from common.api.event import WARNING, Event
from common.api.opaque import Json
from traffic_manager.actions import Action, Tell
from traffic_manager.observed import Observed
from traffic_manager.reasons import EventReason

INCREMENTAL: Final = "NewClusterWithIncrementalUpgrade"
NOTE: Final = (
    "upgradeStrategy.type NewClusterWithIncrementalUpgrade: this release has no weighted routes; "
    "no Gateway or route is made, and upgrades run as NewCluster (generation {generation})"
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and why."""

    actions: tuple[Action, ...] = ()
    note: str = ""


def make_plan(observed: Observed) -> Plan:
    """Decide what one observation leads to; the same observation gives the same plan."""
    service = observed.service
    if not wants_weighted_routes(observed):
        return Plan(note="its traffic needs no weighted route")
    if observed.told_generation == service.metadata.generation:
        return Plan(note="its users were told that weighted routes are not supported")
    event = Event(
        type=WARNING,
        reason=EventReason.WEIGHTED_ROUTES_NOT_SUPPORTED.value,
        action="Reconcile",
        note=NOTE.format(generation=service.metadata.generation),
    )
    return Plan(actions=(Tell(event=event),), note="weighted routes are not supported")


def wants_weighted_routes(observed: Observed) -> bool:
    """Tell whether this RayService is ours and asks for traffic in steps."""
    spec = observed.service.raw_spec
    if spec.get("managedBy", labels.MANAGED_BY_US) != labels.MANAGED_BY_US:
        return False
    strategy: Json = spec.get("upgradeStrategy") or {}
    return strategy.get("type") == INCREMENTAL
