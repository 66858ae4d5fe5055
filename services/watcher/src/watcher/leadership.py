"""Who may publish: pure. The Lease is KubeRay's own, so that KubeRay and raybus exclude each other in a migration.

The rules are client-go's: a Lease is judged by how long *we* have seen it unchanged, never by the times written in it, so
clocks may differ; who cannot renew in time stops before the others may begin.
"""

from datetime import datetime
from typing import Final

import msgspec

LEASE_NAME: Final = "ray-operator-leader"
DURATION_SECONDS: Final = 8
"""A crashed leader's place is free after this long; a container that restarts in its pod keeps its place."""
RENEW_SECONDS: Final = 2.0
DEADLINE_SECONDS: Final = 5.0
"""A leader that could not renew for this long stops; well before its Lease can expire."""
MICRO: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a Lease says."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Sighting(msgspec.Struct, frozen=True):
    """What the Lease said, and since when we have seen it say just that (monotonic seconds)."""

    spec: LeaseSpec
    since: float


def see(before: Sighting | None, spec: LeaseSpec, *, now: float) -> Sighting:
    """Return the sighting of a Lease after one more look."""
    return before if before is not None and before.spec == spec else Sighting(spec, now)


def holder_to_wait_for(seen: Sighting, me: str, *, now: float) -> str | None:
    """Return who holds the Lease if that is somebody else whose time is not up."""
    holder = seen.spec.holder_identity
    if not holder or holder == me:
        return None
    return holder if now < seen.since + (seen.spec.lease_duration_seconds or DURATION_SECONDS) else None


def taken(spec: LeaseSpec | None, me: str, *, at: datetime) -> LeaseSpec:
    """Return what the Lease says once we hold it, or hold it for longer."""
    stamp = at.strftime(MICRO)
    mine = spec is not None and spec.holder_identity == me
    before = (spec.lease_transitions or 0) if spec is not None else -1
    return LeaseSpec(
        holder_identity=me,
        lease_duration_seconds=DURATION_SECONDS,
        acquire_time=(spec.acquire_time or stamp) if mine and spec is not None else stamp,
        renew_time=stamp,
        lease_transitions=before if mine else before + 1,
    )


def released(spec: LeaseSpec, *, at: datetime) -> LeaseSpec:
    """Return what the Lease says once we have let go."""
    stamp = at.strftime(MICRO)
    return LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time=stamp,
        renew_time=stamp,
        lease_transitions=spec.lease_transitions,
    )
