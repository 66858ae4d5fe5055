"""The phase of a RayService, from its conditions; a higher row of the table takes precedence.

service-reconciler adds a blocking cause, once it is known, to the message of `Ready` or of `UpgradeInProgress`. With one, a first
start is `Degraded`, and the cause is the reason and the message of the phase.
"""

from enum import StrEnum
from typing import Final

import msgspec

from common import conditions
from common.api.meta import Condition
from common.api.ray_service import RayService
from raybus_cli.show import reasons


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
    DEGRADED = "Degraded"
    """The first cluster cannot start, and the cause is known."""
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


_BAD: Final = {Phase.INVALID, Phase.TIMED_OUT, Phase.STALLED, Phase.ABORTED, Phase.NOT_READY, Phase.DEGRADED}
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
_CAUSED: Final = (
    "RayService is initializing after resuming from suspend: ",
    "RayService is initializing: ",
    "Number of serve endpoints is greater than 0: ",
    "Number of serve endpoints dropped to 0: ",
    "Both active and pending Ray clusters exist: ",
)
"""The messages to which service-reconciler adds a cause."""


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
            return _caused(service, found, phase)
    if ready is None:
        return CurrentPhase(
            phase=Phase.STARTING, message="no service of raybus has reconciled it yet: see 'raybus doctor'"
        )
    return _caused(service, ready, _NOT_READY.get(ready.reason, Phase.NOT_READY))


def _caused(service: RayService, held: Condition, phase: Phase) -> CurrentPhase:
    """Return a phase with the cause that its condition names, else with the condition's own reason."""
    message = reasons.by_field(held.message, service.serve_config)
    cause = next((message.removeprefix(each) for each in _CAUSED if message.startswith(each)), None)
    if cause is None:
        return CurrentPhase(phase=phase, reason=held.reason, message=message)
    reason = reasons.of_text(cause) or held.reason
    return CurrentPhase(phase=Phase.DEGRADED if phase is Phase.STARTING else phase, reason=reason, message=cause)


def order(service: RayService) -> tuple[bool, str, str]:
    """Return the place of a RayService in a list: first those that need an action, then by namespace and name."""
    meta = service.metadata
    return tone(of(service).phase) is not Tone.BAD, meta.namespace, meta.name


def tone(phase: Phase) -> Tone:
    """Return the severity of a phase."""
    if phase is Phase.READY:
        return Tone.GOOD
    return Tone.BAD if phase in _BAD else Tone.BUSY
