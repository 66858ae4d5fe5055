"""The phase of a RayService, from its conditions; a higher row of the table takes precedence."""

from enum import StrEnum
from typing import Final

import msgspec

from common import conditions
from common.api.ray_service import RayService


class Phase(StrEnum):
    """The state that matters most to a user."""

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
    """The severity of a phase."""

    GOOD = "good"
    BUSY = "busy"
    BAD = "bad"


class CurrentPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The phase of a RayService, with its reason."""

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
"""True conditions, in the order of precedence."""
_NOT_READY: Final = {
    "ValidationFailed": Phase.INVALID,
    "InitializingTimeout": Phase.TIMED_OUT,
    "Initializing": Phase.STARTING,
}
_NEVER_SERVES: Final = {"ValidationFailed", "InitializingTimeout"}


def of(service: RayService) -> CurrentPhase:
    """Return the phase of a RayService."""
    held = service.status.conditions
    if service.metadata.deletion_timestamp is not None:
        return CurrentPhase(phase=Phase.DELETING, message="its clusters are deleted first")
    ready = conditions.find(held, "Ready")
    if ready is not None and ready.status != "True" and ready.reason in _NEVER_SERVES:
        return CurrentPhase(phase=_NOT_READY[ready.reason], reason=ready.reason, message=ready.message)
    for kind, phase in _BY_CONDITION:
        found = conditions.find(held, kind)
        if found is not None and found.status == "True":
            return CurrentPhase(phase=phase, reason=found.reason, message=found.message)
    if ready is None:
        return CurrentPhase(
            phase=Phase.STARTING, message="no service of raybus has reconciled it yet: see 'raybus doctor'"
        )
    return CurrentPhase(phase=_NOT_READY.get(ready.reason, Phase.NOT_READY), reason=ready.reason, message=ready.message)


def tone(phase: Phase) -> Tone:
    """Return the severity of a phase."""
    if phase is Phase.READY:
        return Tone.GOOD
    return Tone.BAD if phase in _BAD else Tone.BUSY
