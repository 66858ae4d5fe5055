"""The traffic record: what was given to each cluster of a RayService and when that last changed (ADR 1).

It is an annotation on the HTTPRoute, written in the same request as the weights. traffic-manager writes it,
service-reconciler mirrors it into the status, which is its second copy in case the route is deleted.
"""

from datetime import datetime
from typing import Final

from msgspec import UNSET, UnsetType

from common import annotation_record
from common.annotation_record import AnnotationRecord
from common.api.gateway import Route
from common.api.ray_service import RayService
from common.api.reference import Reference
from common.upgrade import gate_record

ANNOTATION: Final = "raybus.io/traffic-record"
WHOLE: Final = 100
MAJOR: Final = 1
"""Form of the record (ADR 16): fields are only ever added to it."""


class Share(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """One cluster's part."""

    uid: str = ""
    """The cluster's, so that one which is made again under its name is known to have nothing yet; empty if unknown."""
    capacity: int
    """`target_capacity` that Serve has accepted, in percent."""
    weight: int
    """Percent of the requests."""
    moved_at: datetime | None = None
    """When the weight last changed."""
    sent: int | UnsetType = UNSET
    """The most that a Gateway may still send it which does not follow the route as it is now; unset for the weight."""
    shed_at: datetime | UnsetType = UNSET
    """When it lost traffic for its health (ADR 11); unset once it got more again."""
    config: str | UnsetType = UNSET
    """Digest of the Serve config that it runs (`common.upgrade.candidate`), where an UpgradePolicy is followed."""
    config_at: datetime | UnsetType = UNSET
    """When it was first observed to run that."""

    @property
    def same_since(self) -> datetime | None:
        """Return since when it has had this weight and run this config: what a step waits for counts from then (ADR 40)."""
        held = (self.moved_at, self.config_at or None)
        return max((each for each in held if each is not None), default=None)


class Upgrade(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """What the last upgrade in steps came to so far; stays until the next one begins."""

    old: str
    """The cluster that was active when it began."""
    new: str
    began_at: datetime
    """When the first of both got its part."""
    moved_at: datetime | None = None
    """When the first requests moved."""
    most: int
    """The most capacity, in percent, that both had together."""
    least: int
    best: int | UnsetType = UNSET
    """The most traffic, in percent, that the new cluster ever got."""
    aim: int | UnsetType = UNSET
    """The step of its UpgradePolicy that the last move of traffic was for; capacity may have allowed less."""
    sheds: int | UnsetType = UNSET
    """How often a cluster lost traffic for its health since the new one got as much for the first time."""
    shed_at: datetime | UnsetType = UNSET
    """The first time of those."""
    failed: str | UnsetType = UNSET
    """The gate of its UpgradePolicy that failed, with the figures; an upgrade does not recover from that."""
    mirrored: bool | UnsetType = UNSET
    """Whether requests were mirrored for as long as its UpgradePolicy asks for."""
    lacking: str | UnsetType = UNSET
    """The gates that the present weight waits for: nothing else holds it any more."""
    gates: gate_record.Current | UnsetType = UNSET
    """What its gates come to at the present weight."""
    steps: tuple[gate_record.Step, ...] | UnsetType = UNSET
    """What they came to at earlier ones."""


class Overwritten(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The last time that another writer replaced the backends beside the record."""

    at: datetime
    """When ours were written again."""
    by: str
    """The field manager that did it."""
    streak: int = 1
    """How many times in a row, each soon after the one before."""


class Record(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """All clusters of a RayService by name."""

    version: int = MAJOR
    clusters: dict[str, Share] = {}  # noqa: RUF012 - msgspec copies it
    changed_at: datetime | None = None
    """When anything last changed."""
    upgrade: Upgrade | UnsetType = UNSET
    overwritten: Overwritten | UnsetType = UNSET


def upgrade_of(record: Record, old: str, new: str) -> Upgrade | None:
    """Return what is recorded of the upgrade between two clusters, None for another one."""
    held = record.upgrade or None
    return held if held is not None and (held.old, held.new) == (old, new) else None


def gates_of(upgrade: Upgrade | None) -> gate_record.Current | None:
    """Return what the gates of an upgrade come to now, with texts that may be shown; None where none is evaluated."""
    held = upgrade.gates if upgrade is not None else UNSET
    return gate_record.shown(held) if held and held.gates else None


def past_steps(upgrade: Upgrade | None) -> tuple[gate_record.Step, ...]:
    """Return what the gates of an upgrade came to at earlier weights, with texts that may be shown."""
    return gate_record.bounded(upgrade.steps or ()) if upgrade is not None else ()


def steps_of(upgrade: Upgrade | None) -> tuple[gate_record.Step, ...]:
    """Return what they came to at each weight, the present one included."""
    current = gates_of(upgrade)
    return (*past_steps(upgrade), *(() if current is None else (gate_record.closed(current),)))


def of_route(route: Route | None) -> Record:
    """Return the record on a route; an empty one when there is none that can be read, as one of another major cannot."""
    text = route.metadata.annotations.get(ANNOTATION) if route is not None else None
    found = annotation_record.decode(text, Record) if text else None
    return found if found is not None and found.version == MAJOR else Record()


def of_status(service: RayService) -> Record:
    """Return the mirror of the record in a status; an empty one where it was overwritten."""
    held = (
        (service.status.active_service_status, WHOLE),
        (service.status.pending_service_status, 0),
    )
    try:
        return Record(
            clusters={
                each.ray_cluster_name: Share(
                    capacity=each.target_capacity,
                    weight=unset
                    if each.traffic_routed_percent is None
                    else each.traffic_routed_percent,
                    moved_at=each.last_traffic_migrated_time,
                )
                for each, unset in held
                if each.ray_cluster_name and each.target_capacity is not None
            }
        )
    except ValueError:
        return Record()


def weight_of(route: Route | None, service: Reference) -> int:
    """Return the weight that a route gives to a Service, 0 when it has none; of several rules the highest."""
    rules = () if route is None else map(route.backends, route.spec.rules)
    held = ((each.weight for each in rule if each.target == service) for rule in rules)
    return max(map(sum, held), default=0)
