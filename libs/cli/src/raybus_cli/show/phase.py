"""One word for how a RayService is doing, and why, from its conditions; what stands higher in the table matters more."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from common.api.meta import Condition
from common.api.ray_service import RayService


class Phase(StrEnum):
    """What a user wants to know first."""

    DELETING = "Deleting"
    INVALID = "Invalid"
    TIMED_OUT = "TimedOut"
    SUSPENDED = "Suspended"
    SUSPENDING = "Suspending"
    ABORTED = "Aborted"
    STALLED = "Stalled"
    ROLLING_BACK = "RollingBack"
    PAUSED = "Paused"
    UPGRADING = "Upgrading"
    READY = "Ready"
    STARTING = "Starting"
    NOT_READY = "NotReady"


class Tone(StrEnum):
    """How a phase is to be taken."""

    GOOD = "good"
    BUSY = "busy"
    BAD = "bad"


class Doing(msgspec.Struct, frozen=True, kw_only=True):
    """How a RayService is doing."""

    phase: Phase
    reason: str = ""
    message: str = ""


_BAD: Final = {Phase.INVALID, Phase.TIMED_OUT, Phase.STALLED, Phase.ABORTED, Phase.NOT_READY}
_BY_CONDITION: Final = (
    ("Suspended", Phase.SUSPENDED),
    ("Suspending", Phase.SUSPENDING),
    ("UpgradeStalled", Phase.STALLED),
    ("RollbackInProgress", Phase.ROLLING_BACK),
    ("UpgradeAborted", Phase.ABORTED),
    ("UpgradePaused", Phase.PAUSED),
    ("UpgradeInProgress", Phase.UPGRADING),
    ("Ready", Phase.READY),
)
"""True conditions, the telling one first."""
_NOT_READY: Final = {
    "ValidationFailed": Phase.INVALID,
    "InitializingTimeout": Phase.TIMED_OUT,
    "Initializing": Phase.STARTING,
}
_NEVER_SERVES: Final = {"ValidationFailed", "InitializingTimeout"}


def of(service: RayService) -> Doing:
    """Return how a RayService is doing."""
    held = service.status.conditions
    if service.metadata.deletion_timestamp is not None:
        return Doing(phase=Phase.DELETING, message="its clusters go first")
    ready = find(held, "Ready")
    if ready is not None and ready.status != "True" and ready.reason in _NEVER_SERVES:
        return Doing(phase=_NOT_READY[ready.reason], reason=ready.reason, message=ready.message)
    for kind, phase in _BY_CONDITION:
        found = find(held, kind)
        if found is not None and found.status == "True":
            return Doing(phase=phase, reason=found.reason, message=found.message)
    if ready is None:
        return Doing(phase=Phase.STARTING, message="no service of raybus has looked at it yet: see 'raybus doctor'")
    return Doing(phase=_NOT_READY.get(ready.reason, Phase.NOT_READY), reason=ready.reason, message=ready.message)


def tone(phase: Phase) -> Tone:
    """Return how a phase is to be taken."""
    if phase is Phase.READY:
        return Tone.GOOD
    return Tone.BAD if phase in _BAD else Tone.BUSY


def find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """Return the condition of a type."""
    return next((each for each in conditions if each.type == kind), None)


def is_true(service: RayService, kind: str) -> bool:
    """Tell whether a condition of a RayService is True."""
    found = find(service.status.conditions, kind)
    return found is not None and found.status == "True"
