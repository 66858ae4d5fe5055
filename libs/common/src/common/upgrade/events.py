"""Upgrade events for external consumers.

Each kind of event is a struct. `KINDS` lists all kinds; the JSON schemas and the table in
docs/events are generated from this list. Only service-reconciler publishes the events.
"""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from common.bus.cloud_events import EventData, EventFamily, digest, name_kinds
from common.upgrade.receipt import Receipt, UpgradeOutcome

Percent = Annotated[int, Meta(ge=0, le=100)]


class UpgradeReference(
    msgspec.Struct, frozen=True, kw_only=True, rename={"old": "from", "new": "to"}
):
    """The upgrade that an event is about."""

    id: Annotated[str, Meta(description="The same in all events of one upgrade, and in no other.")]
    old: Annotated[str, Meta(description="The active RayCluster at the start; empty without one.")]
    new: Annotated[str, Meta(description="The RayCluster that replaces it.")]


class Share(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Capacity and traffic of one cluster."""

    capacity_percent: Annotated[Percent, Meta(description="Serve's target_capacity.")]
    traffic_percent: Annotated[Percent, Meta(description="The weight in the route.")]


class ReportedSplit(msgspec.Struct, frozen=True, kw_only=True, rename={"old": "from", "new": "to"}):
    """Capacity and traffic of both clusters."""

    old: Share
    new: Share


class Direction(StrEnum):
    """Direction in which traffic moves."""

    FORWARD = "forward"
    """Traffic moves to the pending cluster."""
    BACK = "back"
    """Traffic moves to the active cluster, because the upgrade is rolled back."""


class Cause(StrEnum):
    """Cause of an upgrade."""

    SPEC_CHANGED = "SpecChanged"
    ACTIVE_CLUSTER_GONE = "ActiveClusterGone"


class UpgradeEventData(EventData, frozen=True, kw_only=True, rename="camel"):
    """The fields that all events have; also used to decode an event of an unknown kind."""

    upgrade: UpgradeReference

    @property
    def series(self) -> str:
        """Return the ID of the upgrade, which all its events have in common."""
        return self.upgrade.id


class Started(UpgradeEventData, frozen=True, kw_only=True):
    """An upgrade began: the status names a second cluster, which is about to be created."""

    reason: Cause
    strategy: Annotated[
        str, Meta(description="The effective spec.upgradeStrategy.type; `NewCluster` when absent.")
    ]
    generation: Annotated[int, Meta(description="metadata.generation of the upgrade.")]


class ClusterCreated(UpgradeEventData, frozen=True, kw_only=True):
    """The new RayCluster exists; repeated if the cluster was deleted and created again."""

    cluster: Annotated[str, Meta(description="Name of the cluster.")]
    uid: Annotated[str, Meta(description="Uid of the cluster.")]


class _Moved(UpgradeEventData, frozen=True, kw_only=True):
    direction: Annotated[Direction, Meta(description="`back` during a rollback.")]
    before: ReportedSplit
    after: ReportedSplit


class CapacityChanged(_Moved, frozen=True, kw_only=True):
    """Serve accepted a new target_capacity on one or both clusters (only upgrades in steps)."""


class TrafficShifted(_Moved, frozen=True, kw_only=True):
    """The route has new weights for the two clusters (only upgrades in steps)."""


class GateEvaluated(UpgradeEventData, frozen=True, kw_only=True):
    """A gate of the UpgradePolicy passed or failed, or a step waits for it (upgrades in steps)."""

    traffic_percent: Annotated[Percent, Meta(description="The new cluster's weight.")]
    gate: Annotated[str, Meta(description="Such as `errorRate` or `latencyP95`.")]
    outcome: Annotated[
        str,
        Meta(
            description="`Pass`, `Fail`, or `Inconclusive`: there is no data for either, and the "
            "step waits."
        ),
    ]
    requests: Annotated[int, Meta(ge=0, description="Requests of the new cluster at this weight.")]
    value: Annotated[
        float | None,
        Meta(
            description="A fraction of the requests, seconds, or the value of a query; null where "
            "there is none."
        ),
    ]
    limit: float | None
    message: str


class Paused(UpgradeEventData, frozen=True, kw_only=True):
    """The user or the deadline paused the upgrade."""

    reason: Annotated[str, Meta(description="As in the condition UpgradePaused.")]
    message: str


class Resumed(UpgradeEventData, frozen=True, kw_only=True):
    """The upgrade is no longer paused."""


class Stalled(UpgradeEventData, frozen=True, kw_only=True):
    """The upgrade made no progress within `raybus.io/progress-deadline`; it continues if it can."""

    reason: Annotated[str, Meta(description="The cause, as in the condition UpgradeStalled.")]
    message: str


class DrainStarted(UpgradeEventData, frozen=True, kw_only=True):
    """The old cluster gets no new requests any more, and completes the requests in flight."""

    cluster: Annotated[str, Meta(description="The old cluster.")]
    deletion_delay_seconds: Annotated[int, Meta(description="Minimum time until its deletion.")]
    drain_timeout_seconds: Annotated[
        int, Meta(description="Additional time for requests in flight.")
    ]


class Promoted(UpgradeEventData, frozen=True, kw_only=True):
    """The new cluster is the active one and receives all traffic."""


class Completed(UpgradeEventData, frozen=True, kw_only=True):
    """The upgrade is complete: the new cluster serves, and the old one is deleted."""

    receipt: Annotated[Receipt, Meta(description="As in the annotation raybus.io/upgrade-receipt.")]


class Aborted(UpgradeEventData, frozen=True, kw_only=True):
    """The user or a deadline ended the upgrade; `rolled-back` follows unless `over` is true."""

    reason: Annotated[
        str,
        Meta(
            description="As in the condition UpgradeAborted; ServiceSuspended or ServiceDeleted if "
            "that is the cause."
        ),
    ]
    message: str
    over: Annotated[
        bool,
        Meta(
            description="Whether this is the last event: the service is deleted, and there is no "
            "rollback."
        ),
    ]


class RolledBack(UpgradeEventData, frozen=True, kw_only=True):
    """The rollback is complete: the old cluster has all traffic, and the new one is deleted."""

    outcome: Annotated[UpgradeOutcome, Meta(description="`Cancelled` if no request had moved.")]


class Failed(UpgradeEventData, frozen=True, kw_only=True):
    """The new cluster, or the service's first cluster, did not become ready in time.

    The upgrade is over. `from` is empty for the service's first cluster.
    """

    reason: Annotated[str, Meta(description="As in the condition Ready.")]
    message: str


KINDS: Final[dict[str, type[UpgradeEventData]]] = name_kinds(
    *(
        Started,
        ClusterCreated,
        CapacityChanged,
        TrafficShifted,
        GateEvaluated,
        Paused,
        Resumed,
        Stalled,
    ),
    *(Promoted, DrainStarted, Completed, Aborted, RolledBack, Failed),
)
"""All kinds of events, roughly in the order in which an upgrade emits them."""

FAMILY: Final = EventFamily[UpgradeEventData](
    resource="rayservices", type_prefix="io.raybus.upgrade.", base=UpgradeEventData, kinds=KINDS
)
type_of, kind_of = FAMILY.type_of, FAMILY.kind_of
encode, decode = FAMILY.encode, FAMILY.decode


def upgrade(uid: str, old: str, new: str) -> UpgradeReference:
    """Return a reference to the upgrade of a RayService from cluster `old` to cluster `new`.

    The ID of the upgrade is a digest of the RayService's `uid` and both names.
    """
    return UpgradeReference(id=digest(uid, old, new)[:16], old=old, new=new)
