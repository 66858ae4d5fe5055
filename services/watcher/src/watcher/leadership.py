"""The right to publish: pure. The Lease is KubeRay's own, so that KubeRay and raybus exclude each other in a migration.

The rules are client-go's: a Lease expires when *this replica* has seen it unchanged for its duration, whatever times are
written in it, so clocks may differ; a leader that cannot renew in time stops before another may begin.

A leader that cannot reach NATS is of no use, so it yields: it goes on renewing, which keeps KubeRay waiting, and allows
another watcher in an annotation to take the Lease at once. A watcher without NATS does not take it.

A leader that ends hands over (ADR 39): it announces that it leaves, and goes on publishing until another watcher has
prepared, or none answers. Between the two nothing is listed, so it takes a moment however many objects there are.
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
"""A crashed leader's place is free after this long; a container that restarts in its pod keeps its place."""
RENEW_SECONDS: Final = 1.5
CHECK_SECONDS: Final = 0.5
"""How often a replica that stands by reads the Lease, and a leader checks NATS."""
DEADLINE_SECONDS: Final = 4.0
"""A leader that could not renew for this long stops; well before its Lease can expire."""
ANSWER_SECONDS: Final = 0.8
"""A leader that leaves waits so long for another watcher to begin its preparation…"""
PREPARE_SECONDS: Final = 40.0
"""… and so long for it to be prepared: 9 to 17 s for 5,000 RayClusters on two busy cores. A pod must have more to end."""
HAND_OVER_CHECK_SECONDS: Final = 0.1
"""How often both read the Lease meanwhile."""
ANNOTATION: Final = "raybus.io/watcher"
"""On the Lease: which watcher does what with it."""
NEXT_ANNOTATION: Final = "raybus.io/next-watcher"
"""On the Lease of a leader that leaves: which watcher prepares to follow it."""


class Role(StrEnum):
    """What the holder of the Lease does with it, if it is a watcher."""

    LEADS = "leads"
    YIELDS = "yields"
    """Holds it against KubeRay only; any watcher may take it."""
    LEAVES = "leaves"
    """Leads until another watcher has prepared."""
    HANDED_OVER = "handed-over"
    """Has released it, with all published that the API server had reported."""


class Preparation(StrEnum):
    """How far the watcher is that follows a leader which leaves."""

    BEGUN = "prepares"
    DONE = "is-prepared"


class Successor(msgspec.Struct, frozen=True):
    """The watcher that is to follow a leader which leaves; as text the annotation's value."""

    identity: str
    progress: Preparation

    def __str__(self) -> str:
        return annotation_of(self.identity, self.progress)


class Lease(msgspec.Struct, frozen=True):
    """A Lease as it was read; `metadata` is written back unchanged."""

    metadata: Body
    spec: LeaseSpec = LeaseSpec()

    @property
    def role(self) -> Role | None:
        """Return what its holder does with it; None when that is no watcher, and when the annotation is of an earlier holder."""
        identity, does = self._annotation(ANNOTATION)
        return (
            Role(does)
            if identity and identity == self.spec.holder_identity and does in set(Role)
            else None
        )

    @property
    def successor(self) -> Successor | None:
        """Return which watcher prepares; None where none does, or the text is not ours."""
        identity, progress = self._annotation(NEXT_ANNOTATION)
        return (
            Successor(identity, Preparation(progress))
            if identity and progress in set(Preparation)
            else None
        )

    @property
    def next_holder(self) -> str:
        """Return the watcher to which a leader with a complete stream has released it; empty when there is none, or somebody holds it."""
        is_handed_over = (
            self._annotation(ANNOTATION)[1] == Role.HANDED_OVER and not self.spec.holder_identity
        )
        return self.successor.identity if is_handed_over and self.successor is not None else ""

    def _annotation(self, name: str) -> tuple[str, str]:
        """Read what `annotation_of` wrote: a watcher, and what it does."""
        annotations: dict[str, str] = self.metadata.get("annotations") or {}
        identity, _, does = annotations.get(name, "").rpartition(" ")
        return identity, does


class LeaseObservation(msgspec.Struct, frozen=True):
    """What a Lease held when it was read, and since when it has been unchanged (monotonic seconds)."""

    spec: LeaseSpec
    role: Role | None
    since: float
    next_holder: str = ""
    """It has the first try."""


def annotation_of(identity: str, does: Role | Preparation) -> str:
    """Return an annotation's value."""
    return f"{identity} {does}"


def may_prepare(lease: Lease, me: str) -> bool:
    """Return whether this replica is to prepare: the leader leaves, and no other replica prepares already."""
    is_free = lease.successor is None or lease.successor.identity == me
    return lease.role is Role.LEAVES and lease.spec.holder_identity != me and is_free


def observe(before: LeaseObservation | None, lease: Lease, *, now: float) -> LeaseObservation:
    """Return the observation of a Lease after one more read."""
    found = (lease.spec, lease.role, lease.next_holder)
    if before is not None and (before.spec, before.role, before.next_holder) == found:
        return before
    return LeaseObservation(lease.spec, lease.role, now, lease.next_holder)


def holder_to_wait_for(seen: LeaseObservation, me: str, *, now: float) -> str | None:
    """Return another holder of the Lease that has not expired and does not yield, or is about to be one; None when there is none."""
    holder = seen.spec.holder_identity or seen.next_holder
    if not holder or holder == me or seen.role is Role.YIELDS:
        return None
    return (
        holder
        if now < seen.since + (seen.spec.lease_duration_seconds or DURATION_SECONDS)
        else None
    )


def taken(spec: LeaseSpec | None, me: str, *, at: datetime) -> LeaseSpec:
    """Return the spec of the Lease once this replica holds it, or has renewed it."""
    stamp = micro_time(at)
    if spec is not None and spec.holder_identity == me:
        acquired, transitions = spec.acquire_time or stamp, spec.lease_transitions or 0
    else:
        acquired, transitions = stamp, (spec.lease_transitions or 0) + 1 if spec is not None else 0
    return LeaseSpec(me, DURATION_SECONDS, acquired, stamp, transitions)


def released(spec: LeaseSpec, *, at: datetime) -> LeaseSpec:
    """Return the spec of the Lease once this replica has released it."""
    return LeaseSpec("", 1, micro_time(at), micro_time(at), spec.lease_transitions)
