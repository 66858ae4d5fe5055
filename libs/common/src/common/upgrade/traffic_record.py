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
    """UID of the cluster; empty if unknown.

    A cluster that was created again under the same name therefore has no share."""
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
    """Digest of the cluster's Serve config in an upgrade with an UpgradePolicy.

    `common.upgrade.candidate` computes the digest."""
    config_at: datetime | UnsetType = UNSET
    """When the cluster was first observed to run that config."""

    @property
    def same_since(self) -> datetime | None:
        """Return since when the cluster has had this weight and config.

        The hold time and evidence of a step count from then (ADR 40).
        """
        moments = (self.moved_at, self.config_at or None)
        return max((moment for moment in moments if moment is not None), default=None)


class RecordedUpgrade(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
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
    """How often a cluster lost traffic because it was unhealthy.

    The count begins when the new cluster first had `max_weight`."""
    shed_at: datetime | UnsetType = UNSET
    """When a cluster first lost traffic in this way."""
    failed: str | UnsetType = UNSET
    """The gate that failed, with its figures. The upgrade does not recover from a failed gate."""
    mirrored: bool | UnsetType = UNSET
    """Whether requests were mirrored for as long as the policy asks."""
    lacking: str | UnsetType = UNSET
    """The gates that the present weight waits for, if it waits for nothing but gates."""
    gates: gate_record.Current | UnsetType = UNSET
    """Verdicts of the gates at the present weight."""
    steps: tuple[gate_record.StepVerdicts, ...] | UnsetType = UNSET
    """Verdicts of the gates at earlier weights."""


class Overwritten(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The last time that another writer replaced our backends in the route."""

    at: datetime
    """When raybus's backends were written again."""
    by: str
    """The field manager of the tool that replaced the backends."""
    streak: int = 1
    """Number of consecutive overwrites that followed each other quickly."""


class Record(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The traffic record of a RayService; `clusters` has the share of each cluster by its name."""

    version: int = MAJOR
    clusters: dict[str, ClusterTraffic] = {}  # noqa: RUF012 - msgspec copies it
    changed_at: datetime | None = None
    """When any field last changed."""
    upgrade: RecordedUpgrade | UnsetType = UNSET
    overwritten: Overwritten | UnsetType = UNSET


def upgrade_of(record: Record, old: str, new: str) -> RecordedUpgrade | None:
    """Return the recorded progress of the upgrade from `old` to `new`; None for any other."""
    upgrade = record.upgrade or None
    return upgrade if upgrade is not None and (upgrade.old, upgrade.new) == (old, new) else None


def gates_of(upgrade: RecordedUpgrade | None) -> gate_record.Current | None:
    """Return the verdicts at the present weight, fit for display; None if no gate is evaluated."""
    current = upgrade.gates if upgrade is not None else UNSET
    return gate_record.shown(current) if current and current.gates else None


def past_steps(upgrade: RecordedUpgrade | None) -> tuple[gate_record.StepVerdicts, ...]:
    """Return the verdicts at earlier weights, fit for display."""
    return gate_record.bounded(upgrade.steps or ()) if upgrade is not None else ()


def steps_of(upgrade: RecordedUpgrade | None) -> tuple[gate_record.StepVerdicts, ...]:
    """Return the verdicts at all weights, the present one included."""
    current = gates_of(upgrade)
    return (*past_steps(upgrade), *(() if current is None else (gate_record.closed(current),)))


def of_route(route: Route | None) -> Record:
    """Return the record on a route.

    The record is empty if it is missing, unreadable, or of another format version.
    """
    text = route.metadata.annotations.get(ANNOTATION) if route is not None else None
    record = annotation_record.decode(text, Record) if text else None
    return record if record is not None and record.version == MAJOR else Record()


def of_status(service: RayService) -> Record:
    """Return the record in the status of a RayService: capacities, weights and times of moves.

    It is empty if the status has values that raybus cannot have written.
    """
    roles = (
        (service.status.active_service_status, WHOLE),
        (service.status.pending_service_status, 0),
    )
    try:
        return Record(
            clusters={
                role.ray_cluster_name: ClusterTraffic(
                    capacity=role.target_capacity,
                    weight=unset
                    if role.traffic_routed_percent is None
                    else role.traffic_routed_percent,
                    moved_at=role.last_traffic_migrated_time,
                )
                for role, unset in roles
                if role.ray_cluster_name and role.target_capacity is not None
            }
        )
    except ValueError:
        return Record()


def weight_of(route: Route | None, service: Reference) -> int:
    """Return the weight of a Service in a route; 0 if it has none.

    If several rules name the Service, the highest weight counts.
    """
    rules = () if route is None else map(route.backends, route.spec.rules)
    weights = ((backend.weight for backend in rule if backend.target == service) for rule in rules)
    return max(map(sum, weights), default=0)
