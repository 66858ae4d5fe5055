"""The traffic record: capacity and weight of each cluster of a RayService, with times (ADR 1).

It is an annotation of the HTTPRoute. traffic-manager writes it in the same request as the weights;
service-reconciler copies it to the RayService's status in case the route is deleted.
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
"""Version of the record's format (ADR 16). With the same version, fields are only added."""


class ClusterTraffic(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The share of one cluster: its capacity and traffic."""

    uid: str = ""
    """UID of the cluster; empty if unknown.

    It ensures that a cluster created again under the same name does not inherit this share."""
    capacity: int
    """The `target_capacity` that Serve has accepted, in percent."""
    weight: int
    """Percent of the traffic."""
    moved_at: datetime | None = None
    """When the weight last changed."""
    sent: int | UnsetType = UNSET
    """Maximum percent of the traffic that a Gateway may send if it still applies an earlier route.

    Unset if this equals the weight.
    """
    shed_at: datetime | UnsetType = UNSET
    """When the cluster lost traffic because it was unhealthy (ADR 41).

    Unset again when it gains traffic."""
    config: str | UnsetType = UNSET
    """Digest of the cluster's Serve config, from `common.upgrade.candidate`.

    Set only in an upgrade with an UpgradePolicy."""
    config_at: datetime | UnsetType = UNSET
    """When the cluster was first observed to run the config with the digest `config`."""

    @property
    def same_since(self) -> datetime | None:
        """Return since when the cluster has had its present weight and Serve config.

        The hold time and the evidence of a step count from this time (ADR 40).
        """
        moments = (self.moved_at, self.config_at or None)
        return max((moment for moment in moments if moment is not None), default=None)


class RecordedUpgrade(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The progress of the last upgrade in steps. It is kept until the next upgrade begins."""

    old: str
    """Name of the cluster that was active at the start."""
    new: str
    began_at: datetime
    """When the traffic record first had an entry for each of the two clusters."""
    moved_at: datetime | None = None
    """When the first traffic moved."""
    max_capacity: int = msgspec.field(name="most")
    """Maximum capacity that both clusters together have had, in percent."""
    min_capacity: int = msgspec.field(name="least")
    """Minimum capacity that both clusters together have had, in percent."""
    max_weight: int | UnsetType = msgspec.field(name="best", default=UNSET)
    """Maximum weight that the new cluster has had, in percent."""
    aim: int | UnsetType = UNSET
    """Weight of the policy's step for which traffic last moved, even if only a part has moved."""
    sheds: int | UnsetType = UNSET
    """How often a cluster lost traffic because it was unhealthy.

    Counted since the new cluster first had `max_weight`."""
    shed_at: datetime | UnsetType = UNSET
    """When a cluster first lost traffic because it was unhealthy."""
    failed: str | UnsetType = UNSET
    """The gate that failed, with its figures. A failed gate is final for the upgrade."""
    mirrored: bool | UnsetType = UNSET
    """Whether requests were mirrored for as long as the policy requires."""
    lacking: str | UnsetType = UNSET
    """The gates that hold the traffic at the present weight; unset if anything else holds it."""
    gates: gate_record.Current | UnsetType = UNSET
    """Outcomes of the gates at the present weight."""
    steps: tuple[gate_record.StepVerdicts, ...] | UnsetType = UNSET
    """Outcomes of the gates at earlier weights."""


class Overwritten(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The last case in which another writer replaced raybus's backends in the route."""

    at: datetime
    """When raybus wrote its backends to the route again."""
    by: str
    """Field manager of the tool that replaced the backends."""
    streak: int = 1
    """Number of overwrites in a row, each soon after the one before it."""


class Record(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The traffic record of a RayService; `clusters` has each cluster's share by cluster name."""

    version: int = MAJOR
    clusters: dict[str, ClusterTraffic] = {}  # noqa: RUF012 - msgspec copies it
    changed_at: datetime | None = None
    """When the record last changed."""
    upgrade: RecordedUpgrade | UnsetType = UNSET
    overwritten: Overwritten | UnsetType = UNSET


def upgrade_of(record: Record, old: str, new: str) -> RecordedUpgrade | None:
    """Return the recorded upgrade if it is the one from `old` to `new`, or else None."""
    upgrade = record.upgrade or None
    return upgrade if upgrade is not None and (upgrade.old, upgrade.new) == (old, new) else None


def gates_of(upgrade: RecordedUpgrade | None) -> gate_record.Current | None:
    """Return the gates' outcomes at the present weight, fit for display; None if there are none."""
    current = upgrade.gates if upgrade is not None else UNSET
    return gate_record.shown(current) if current and current.gates else None


def past_steps(upgrade: RecordedUpgrade | None) -> tuple[gate_record.StepVerdicts, ...]:
    """Return the gates' outcomes at earlier weights, fit for display."""
    return gate_record.bounded(upgrade.steps or ()) if upgrade is not None else ()


def steps_of(upgrade: RecordedUpgrade | None) -> tuple[gate_record.StepVerdicts, ...]:
    """Return the gates' outcomes at all weights, including the present one, fit for display."""
    current = gates_of(upgrade)
    return (*past_steps(upgrade), *(() if current is None else (gate_record.closed(current),)))


def of_route(route: Route | None) -> Record:
    """Return the traffic record on a route.

    It is empty if the route has no readable record of this format version.
    """
    text = route.metadata.annotations.get(ANNOTATION) if route is not None else None
    record = annotation_record.decode(text, Record) if text else None
    return record if record is not None and record.version == MAJOR else Record()


def of_status(service: RayService) -> Record:
    """Build a traffic record from a RayService's status: capacities, weights and times of moves.

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
    """Return the weight of a Service in a route; 0 if the route does not contain the Service.

    If several rules contain the Service, return the highest weight.
    """
    rules = () if route is None else map(route.backends, route.spec.rules)
    weights = ((backend.weight for backend in rule if backend.target == service) for rule in rules)
    return max(map(sum, weights), default=0)
