"""The traffic record: capacity and weight of each cluster of a RayService, with times (ADR 1).

It is an annotation of the HTTPRoute and is written in the same request as the weights.
traffic-manager writes it; service-reconciler copies it to the status in case the route is deleted.
"""

from datetime import datetime
from typing import Final

import msgspec
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
"""Version of the format (ADR 16). Fields are only ever added."""


class ClusterTraffic(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """Capacity and traffic of one cluster."""

    uid: str = ""
    """UID of the cluster, so that a cluster created again under its name has no share; empty if
    unknown.
    """
    capacity: int
    """`target_capacity` that Serve has accepted, in percent."""
    weight: int
    """Percent of the requests."""
    moved_at: datetime | None = None
    """When the weight last changed."""
    sent: int | UnsetType = UNSET
    """Maximum percent that a Gateway may still send if it has not applied the present route.

    Unset if that equals the weight.
    """
    shed_at: datetime | UnsetType = UNSET
    """When the cluster lost traffic because it was unhealthy (ADR 41); unset when it gains traffic.
    """
    config: str | UnsetType = UNSET
    """Digest of the Serve config that it runs (`common.upgrade.candidate`), under an UpgradePolicy.
    """
    config_at: datetime | UnsetType = UNSET
    """When the cluster was first observed to run that config."""

    @property
    def same_since(self) -> datetime | None:
        """Return since when the cluster has had this weight and config.

        The hold time and evidence of a step count from then (ADR 40).
        """
        held = (self.moved_at, self.config_at or None)
        return max((each for each in held if each is not None), default=None)


class Upgrade(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The progress of the last upgrade in steps; kept until the next one begins."""

    old: str
    """The cluster that was active at the start."""
    new: str
    began_at: datetime
    """When the first of the two clusters got its share."""
    moved_at: datetime | None = None
    """When the first requests moved."""
    max_capacity: int = msgspec.field(name="most")
    """Maximum capacity of both clusters together, in percent."""
    min_capacity: int = msgspec.field(name="least")
    """Minimum capacity of both clusters together, in percent."""
    max_weight: int | UnsetType = msgspec.field(name="best", default=UNSET)
    """Maximum weight that the new cluster has had, in percent."""
    aim: int | UnsetType = UNSET
    """Weight of the policy's step for which traffic last moved; capacity may have allowed less."""
    sheds: int | UnsetType = UNSET
    """How often a cluster lost traffic because it was unhealthy, since the new cluster first had
    `max_weight`.
    """
    shed_at: datetime | UnsetType = UNSET
    """When a cluster first lost traffic in this way."""
    failed: str | UnsetType = UNSET
    """The gate that failed, with its figures. The upgrade does not recover from a failed gate."""
    mirrored: bool | UnsetType = UNSET
    """Whether requests were mirrored for as long as the policy asks."""
    lacking: str | UnsetType = UNSET
    """The gates that the present weight waits for, once nothing else holds it."""
    gates: gate_record.Current | UnsetType = UNSET
    """Verdicts of the gates at the present weight."""
    steps: tuple[gate_record.Step, ...] | UnsetType = UNSET
    """Verdicts of the gates at earlier weights."""


class Overwritten(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The last time that another writer replaced our backends in the route."""

    at: datetime
    """When raybus's backends were written again."""
    by: str
    """The field manager of the other writer."""
    streak: int = 1
    """Number of consecutive overwrites, each soon after the one before."""


class Record(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The traffic record of a RayService; `clusters` has the share of each cluster by its name."""

    version: int = MAJOR
    clusters: dict[str, ClusterTraffic] = {}  # noqa: RUF012 - msgspec copies it
    changed_at: datetime | None = None
    """When any field last changed."""
    upgrade: Upgrade | UnsetType = UNSET
    overwritten: Overwritten | UnsetType = UNSET


def upgrade_of(record: Record, old: str, new: str) -> Upgrade | None:
    """Return the recorded progress of the upgrade from `old` to `new`; None for any other."""
    held = record.upgrade or None
    return held if held is not None and (held.old, held.new) == (old, new) else None


def gates_of(upgrade: Upgrade | None) -> gate_record.Current | None:
    """Return the verdicts at the present weight, fit for display; None if no gate is evaluated."""
    held = upgrade.gates if upgrade is not None else UNSET
    return gate_record.shown(held) if held and held.gates else None


def past_steps(upgrade: Upgrade | None) -> tuple[gate_record.Step, ...]:
    """Return the verdicts at earlier weights, fit for display."""
    return gate_record.bounded(upgrade.steps or ()) if upgrade is not None else ()


def steps_of(upgrade: Upgrade | None) -> tuple[gate_record.Step, ...]:
    """Return the verdicts at all weights, the present one included."""
    current = gates_of(upgrade)
    return (*past_steps(upgrade), *(() if current is None else (gate_record.closed(current),)))


def of_route(route: Route | None) -> Record:
    """Return the record on a route.

    The record is empty if it is missing, unreadable, or of another format version.
    """
    text = route.metadata.annotations.get(ANNOTATION) if route is not None else None
    found = annotation_record.decode(text, Record) if text else None
    return found if found is not None and found.version == MAJOR else Record()


def of_status(service: RayService) -> Record:
    """Return the copy of the record in a status; an empty one if it was overwritten."""
    held = (
        (service.status.active_service_status, WHOLE),
        (service.status.pending_service_status, 0),
    )
    try:
        return Record(
            clusters={
                each.ray_cluster_name: ClusterTraffic(
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
    """Return the weight of a Service in a route, 0 if it has none; of several rules the highest."""
    rules = () if route is None else map(route.backends, route.spec.rules)
    held = ((each.weight for each in rule if each.target == service) for rule in rules)
    return max(map(sum, held), default=0)
