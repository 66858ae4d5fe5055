"""Upgrade events for external consumers, as CloudEvents 1.0 in structured JSON.

Each kind of event is a struct; `KINDS` lists all of them, and the JSON schemas and the table in
docs/events are generated from it. Only service-reconciler publishes, so the events of a RayService
are in order in the stream. Delivery is at least once; a redelivered event has the same id. New
fields have defaults, and readers ignore unknown fields and kinds.
"""

import hashlib
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec
import re2
from msgspec import UNSET, Meta, UnsetType

from common.bus import subjects
from common.upgrade.receipt import Outcome, Receipt

CONTENT_TYPE: Final = "application/cloudevents+json"
TYPE_PREFIX: Final = "io.raybus.upgrade."
TYPE_SUFFIX: Final = ".v1"

Percent = Annotated[int, Meta(ge=0, le=100)]


class Upgrade(msgspec.Struct, frozen=True, kw_only=True, rename={"old": "from", "new": "to"}):
    """The upgrade that an event belongs to."""

    id: Annotated[str, Meta(description="The same in all events of one upgrade, and in no other.")]
    old: Annotated[str, Meta(description="The active RayCluster at the start; empty without one.")]
    new: Annotated[str, Meta(description="The RayCluster that replaces it.")]


class Share(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Capacity and traffic of one cluster."""

    capacity_percent: Annotated[Percent, Meta(description="Serve's target_capacity.")]
    traffic_percent: Annotated[Percent, Meta(description="The weight in the route.")]


class Split(msgspec.Struct, frozen=True, kw_only=True, rename={"old": "from", "new": "to"}):
    """Capacity and traffic of both clusters."""

    old: Share
    new: Share


class Direction(StrEnum):
    """Direction in which traffic moves."""

    FORWARD = "forward"
    BACK = "back"


class Cause(StrEnum):
    """Cause of an upgrade."""

    SPEC_CHANGED = "SpecChanged"
    ACTIVE_CLUSTER_GONE = "ActiveClusterGone"


class Data(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of all events; also used to decode an event of an unknown kind."""

    upgrade: Upgrade

    @property
    def kind(self) -> str:
        """Return the kind, such as `cluster-created` for the struct `ClusterCreated`."""
        return _kind_of(type(self))


@cache
def _kind_of(struct: type[Data]) -> str:
    return re2.sub("(.)([A-Z])", r"\1-\2", struct.__name__).lower()


class Started(Data, frozen=True, kw_only=True):
    """An upgrade began: the status names a second cluster, which is about to be created."""

    reason: Cause
    strategy: Annotated[
        str, Meta(description="The effective spec.upgradeStrategy.type; `NewCluster` when absent.")
    ]
    generation: Annotated[int, Meta(description="metadata.generation of the upgrade.")]


class ClusterCreated(Data, frozen=True, kw_only=True):
    """The new RayCluster exists; repeated if the cluster was deleted and created again."""

    cluster: Annotated[str, Meta(description="Name of the cluster.")]
    uid: Annotated[str, Meta(description="Uid of the cluster.")]


class _Moved(Data, frozen=True, kw_only=True):
    direction: Annotated[Direction, Meta(description="`back` during a rollback.")]
    before: Split
    after: Split


class CapacityChanged(_Moved, frozen=True, kw_only=True):
    """Serve accepted a new target_capacity on one or both clusters (only upgrades in steps)."""


class TrafficShifted(_Moved, frozen=True, kw_only=True):
    """The route has new weights for the two clusters (only upgrades in steps)."""


class GateEvaluated(Data, frozen=True, kw_only=True):
    """A gate of the UpgradePolicy passed, failed, or is waited for (only upgrades in steps)."""

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


class Paused(Data, frozen=True, kw_only=True):
    """The user or the deadline paused the upgrade."""

    reason: Annotated[str, Meta(description="As in the condition UpgradePaused.")]
    message: str


class Resumed(Data, frozen=True, kw_only=True):
    """The upgrade is no longer paused."""


class Stalled(Data, frozen=True, kw_only=True):
    """No progress within `raybus.io/progress-deadline`; the upgrade continues when it can."""

    reason: Annotated[str, Meta(description="The cause, as in the condition UpgradeStalled.")]
    message: str


class DrainStarted(Data, frozen=True, kw_only=True):
    """The old cluster gets no new requests and completes those in flight."""

    cluster: Annotated[str, Meta(description="The old cluster.")]
    deletion_delay_seconds: Annotated[int, Meta(description="Minimum time until its deletion.")]
    drain_timeout_seconds: Annotated[
        int, Meta(description="Additional time for requests in flight.")
    ]


class Promoted(Data, frozen=True, kw_only=True):
    """The new cluster is the active one and receives all traffic."""


class Completed(Data, frozen=True, kw_only=True):
    """The upgrade is complete: the new cluster serves, and the old one is deleted."""

    receipt: Annotated[Receipt, Meta(description="As in the annotation raybus.io/upgrade-receipt.")]


class Aborted(Data, frozen=True, kw_only=True):
    """The user or a deadline ended the upgrade; `rolled-back` follows unless `over`."""

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


class RolledBack(Data, frozen=True, kw_only=True):
    """The rollback is complete: the old cluster has all traffic, and the new one is deleted."""

    outcome: Annotated[Outcome, Meta(description="`Cancelled` if no request had moved.")]


class Failed(Data, frozen=True, kw_only=True):
    """The new cluster, or the service's first cluster, did not become ready in time.

    The upgrade is over. `from` is empty for the service's first cluster.
    """

    reason: Annotated[str, Meta(description="As in the condition Ready.")]
    message: str


KINDS: Final[dict[str, type[Data]]] = {
    _kind_of(each): each
    for each in (
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
}
"""All kinds of events, roughly in the order in which an upgrade emits them."""

What = TypeVar("What")


class CloudEvent(msgspec.Struct, Generic[What], frozen=True, kw_only=True):
    """An event in its JSON form: the attributes of CloudEvents 1.0, and the data."""

    specversion: Literal["1.0"] = "1.0"
    id: Annotated[
        str,
        Meta(min_length=1, description="The same when an event is repeated; unique in its source."),
    ]
    source: Annotated[
        str,
        Meta(
            min_length=1,
            description="The RayService: "
            "/apis/ray.io/v1/namespaces/<namespace>/rayservices/<name>.",
        ),
    ]
    type: Annotated[str, Meta(min_length=1)]
    subject: Annotated[str, Meta(min_length=1, description="The RayService's name.")]
    time: Annotated[
        datetime, Meta(tz=True, description="When it happened; order is the stream's, not this.")
    ]
    datacontenttype: Literal["application/json"] = "application/json"
    traceparent: (
        Annotated[str, Meta(description="W3C trace context of the change that led here.")]
        | UnsetType
    ) = UNSET
    data: What


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a RayService's upgrade, before it is encoded."""

    namespace: str
    name: str
    id: str
    time: datetime
    data: Data


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a NATS message."""

    subject: str
    headers: dict[str, str]
    payload: bytes


def upgrade(uid: str, old: str, new: str) -> Upgrade:
    """Return the upgrade of a RayService from cluster `old` to cluster `new`, with its id.

    The id is a digest of the RayService's `uid` and both names.
    """
    return Upgrade(id=_digest(uid, old, new)[:16], old=old, new=new)


def identity(data: Data, *facts: object) -> str:
    """Return an event's id, which is the same when the event is published again.

    `facts` are durable values that distinguish the event from others of its kind in the same
    upgrade.
    """
    name = f"{data.upgrade.id}-{data.kind}"
    return f"{name}-{_digest(*facts)[:12]}" if facts else name


def type_of(kind: str) -> str:
    """Return the CloudEvents type of a kind."""
    return f"{TYPE_PREFIX}{kind}{TYPE_SUFFIX}"


def kind_of(event_type: str) -> str:
    """Return the kind of a CloudEvents type; a type without our prefix is returned unchanged."""
    return event_type.removeprefix(TYPE_PREFIX).removesuffix(TYPE_SUFFIX)


def encode(event: Event, *, trace: str | None = None) -> Wire:
    """Encode an event as a NATS message; `trace` is a W3C traceparent."""
    written = CloudEvent[Data](
        id=event.id,
        source=f"/apis/ray.io/v1/namespaces/{event.namespace}/rayservices/{event.name}",
        type=type_of(event.data.kind),
        subject=event.name,
        time=event.time,
        traceparent=UNSET if trace is None else trace,
        data=event.data,
    )
    subject = subjects.build_event_subject(event.namespace, event.name, event.data.kind)
    headers = {"Content-Type": CONTENT_TYPE} | ({} if trace is None else {"traceparent": trace})
    return Wire(subject=subject, headers=headers, payload=msgspec.json.encode(written))


def decode(payload: bytes) -> CloudEvent[Data]:
    """Decode an event.

    An event of an unknown kind is decoded to the common fields only. Raises `msgspec.DecodeError`
    if the payload is not an upgrade event.
    """
    found = msgspec.json.decode(payload, type=CloudEvent[Data])
    kind = KINDS.get(kind_of(found.type))
    return found if kind is None else msgspec.json.decode(payload, type=CloudEvent[kind])


def _digest(*facts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()
