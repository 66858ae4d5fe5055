"""Rules of the Lease that gives a watcher the right to publish; no I/O.

raybus uses KubeRay's Lease, so that KubeRay and raybus exclude each other during a migration. The
rules are client-go's. A Lease expires when this replica has seen it unchanged for its duration. The
times in the Lease are ignored, because clocks may differ. A leader that cannot renew in time stops
before another may start.

A leader that cannot reach NATS cannot publish, so it yields: it continues to renew the Lease, which
keeps KubeRay waiting, and an annotation permits another watcher to take the Lease at once. A
watcher that cannot reach NATS does not take the Lease.

A leader that shuts down hands over (ADR 39). It announces in an annotation that it leaves, and
continues to publish until another watcher has listed all objects, or no watcher answers. The new
leader then publishes at once, so the hand-over is short however many objects exist.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from common.api.core import LeaseSpec
from common.api.meta import micro_time
from common.api.opaque import Body

LEASE_NAME: Final = "ray-operator-leader"
DURATION_SECONDS: Final = 6
"""Duration of the Lease: time until another watcher may replace a crashed leader.

A container that restarts in its pod has the same identity, so it keeps the Lease.
"""
RENEW_SECONDS: Final = 1.5
"""Interval between renewals by the leader."""
CHECK_SECONDS: Final = 0.5
"""Interval at which a standby watcher reads the Lease, and a leader checks its Lease and NATS."""
DEADLINE_SECONDS: Final = 4.0
"""Seconds without a successful renewal after which a leader stops.

This is less than `DURATION_SECONDS`, so the leader stops before its Lease can expire.
"""
ANSWER_SECONDS: Final = 0.8
"""Time for which a leaving leader waits for another watcher to begin to list all objects."""
PREPARE_SECONDS: Final = 40.0
"""Maximum time for which a leaving leader waits until another watcher has listed all objects.

The list took 9 to 17 s for 5,000 RayClusters on two busy cores. The termination grace period of the
pod must be longer than the maximum.
"""
HAND_OVER_CHECK_SECONDS: Final = 0.1
"""Interval at which the leaving leader and its successor read the Lease during a hand-over."""
ANNOTATION: Final = "raybus.io/watcher"
"""Annotation of the Lease: identity and role of the Lease holder."""
NEXT_ANNOTATION: Final = "raybus.io/next-watcher"
"""Annotation of the Lease of a leaving leader: the watcher that prepares to lead next."""


class LeaderRole(StrEnum):
    """Role of the watcher that holds the Lease."""

    LEADS = "leads"
    YIELDS = "yields"
    """The holder cannot reach NATS, and renews the Lease only so that KubeRay cannot take it.

    Any watcher may take the Lease.
    """
    LEAVES = "leaves"
    """The holder shuts down. It publishes until another watcher is prepared to lead."""
    HANDED_OVER = "handed-over"
    """The former holder has published all changes and released the Lease."""


class Preparation(StrEnum):
    """Progress of the watcher that will lead after the leaving leader."""

    BEGUN = "prepares"
    DONE = "is-prepared"


class Successor(msgspec.Struct, frozen=True):
    """The watcher that will lead after the leaving leader; `str()` gives the annotation's value."""

    identity: str
    progress: Preparation

    def __str__(self) -> str:
        return format_annotation(self.identity, self.progress)


class WatcherLease(msgspec.Struct, frozen=True):
    """A Lease as read from the API server; `metadata` is kept for the next write."""

    metadata: Body
    spec: LeaseSpec = LeaseSpec()

    @property
    def role(self) -> LeaderRole | None:
        """Role of the Lease holder; None if the holder is no watcher.

        An annotation that an earlier holder wrote does not count.
        """
        identity, does = self._annotation(ANNOTATION)
        return (
            LeaderRole(does)
            if identity and identity == self.spec.holder_identity and does in set(LeaderRole)
            else None
        )

    @property
    def successor(self) -> Successor | None:
        """The watcher that prepares to lead; None if there is none or the annotation is invalid."""
        identity, progress = self._annotation(NEXT_ANNOTATION)
        return (
            Successor(identity, Preparation(progress))
            if identity and progress in set(Preparation)
            else None
        )

    @property
    def next_holder(self) -> str:
        """Identity of the watcher to which the last leader handed over; empty if there is none.

        Also empty once a watcher or KubeRay holds the Lease.
        """
        is_handed_over = (
            self._annotation(ANNOTATION)[1] == LeaderRole.HANDED_OVER
            and not self.spec.holder_identity
        )
        return self.successor.identity if is_handed_over and self.successor is not None else ""

    def _annotation(self, name: str) -> tuple[str, str]:
        """Return the two parts of an annotation: the identity, and the role or progress."""
        annotations: dict[str, str] = self.metadata.get("annotations") or {}
        identity, _, does = annotations.get(name, "").rpartition(" ")
        return identity, does


class WatcherObservation(msgspec.Struct, frozen=True):
    """The content of a Lease, and the monotonic time in seconds since which it is unchanged."""

    spec: LeaseSpec
    role: LeaderRole | None
    since: float
    next_holder: str = ""
    """Identity of the watcher that may take the free Lease first; empty if every watcher may."""


def format_annotation(identity: str, does: LeaderRole | Preparation) -> str:
    """Return the value of an annotation: the identity, a space, and the role or progress."""
    return f"{identity} {does}"


def may_prepare(lease: WatcherLease, me: str) -> bool:
    """Return whether this replica, `me`, should prepare to lead.

    It should if the leader leaves and no other replica is preparing.
    """
    is_free = lease.successor is None or lease.successor.identity == me
    return lease.role is LeaderRole.LEAVES and lease.spec.holder_identity != me and is_free


def observe(
    before: WatcherObservation | None, lease: WatcherLease, *, now: float
) -> WatcherObservation:
    """Return the observation after another read of the Lease; `before` if nothing changed."""
    content = (lease.spec, lease.role, lease.next_holder)
    if before is not None and (before.spec, before.role, before.next_holder) == content:
        return before
    return WatcherObservation(lease.spec, lease.role, now, lease.next_holder)


def find_blocking_holder(observation: WatcherObservation, me: str, *, now: float) -> str | None:
    """Return the identity of the holder that this replica, `me`, must wait for.

    None if it may lead. A replica waits for another holder of the Lease, and for the next holder
    after a hand-over. It does not wait for a holder that yields or whose Lease has expired.
    """
    holder = observation.spec.holder_identity or observation.next_holder
    if not holder or holder == me or observation.role is LeaderRole.YIELDS:
        return None
    return (
        holder
        if now < observation.since + (observation.spec.lease_duration_seconds or DURATION_SECONDS)
        else None
    )


def build_taken_spec(spec: LeaseSpec | None, me: str, *, at: datetime) -> LeaseSpec:
    """Return the spec of the Lease after the replica `me` has taken or renewed it at time `at`."""
    stamp = micro_time(at)
    if spec is not None and spec.holder_identity == me:
        acquired, transitions = spec.acquire_time or stamp, spec.lease_transitions or 0
    else:
        acquired, transitions = stamp, (spec.lease_transitions or 0) + 1 if spec is not None else 0
    return LeaseSpec(me, DURATION_SECONDS, acquired, stamp, transitions)


def build_released_spec(spec: LeaseSpec, *, at: datetime) -> LeaseSpec:
    """Return the spec of the Lease after its holder has released it at time `at`."""
    return LeaseSpec("", 1, micro_time(at), micro_time(at), spec.lease_transitions)
