"""Derives the phase of a RayService, and the reason of a blocking issue, from its conditions.

If several conditions are true, the first one in `_BY_CONDITION` decides. Each reason has a section
of that name in docs/troubleshooting.md. The message of the condition may end with a cause found by
service-reconciler. Then the cause becomes the reason and the message of the phase, and a first
start has the phase `Degraded`.
"""

from enum import StrEnum
from typing import Final

import msgspec

from common import conditions
from common.api.meta import Condition
from common.api.ray_service import RayService
from common.upgrade.service_conditions import ConditionType, Reason
from raybus_cli.show import cause_texts


class ServicePhase(StrEnum):
    """The most important state of a RayService for its user."""

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
    """The phase of a RayService, with its reason and message."""

    phase: ServicePhase
    reason: str = ""
    message: str = ""


_BAD: Final = {
    ServicePhase.INVALID,
    ServicePhase.TIMED_OUT,
    ServicePhase.STALLED,
    ServicePhase.ABORTED,
    ServicePhase.NOT_READY,
    ServicePhase.DEGRADED,
}
_BY_CONDITION: Final = (
    (ConditionType.SUSPENDED, ServicePhase.SUSPENDED),
    (ConditionType.SUSPENDING, ServicePhase.SUSPENDING),
    (ConditionType.UPGRADE_STALLED, ServicePhase.STALLED),
    (ConditionType.ROLLBACK_IN_PROGRESS, ServicePhase.ROLLING_BACK),
    (ConditionType.UPGRADE_ABORTED, ServicePhase.ABORTED),
    (ConditionType.UPGRADE_PAUSED, ServicePhase.PAUSED),
    (ConditionType.UPGRADE_IN_PROGRESS, ServicePhase.UPGRADING),
    (ConditionType.READY, ServicePhase.READY),
)
"""The phase for each condition, in order of precedence if several conditions are true."""
_NOT_READY: Final[dict[str, ServicePhase]] = {
    Reason.VALIDATION_FAILED: ServicePhase.INVALID,
    Reason.INITIALIZING_TIMEOUT: ServicePhase.TIMED_OUT,
    Reason.INITIALIZING: ServicePhase.STARTING,
}
_EARLIER_GATE: Final = Reason.EARLIER_GATE_FAILED
"""Reason of UpgradeAborted while a version that failed a gate is rolled back, before the upgrade to
the present spec.
"""
_NEVER_SERVES: Final[frozenset[str]] = frozenset(
    {Reason.VALIDATION_FAILED, Reason.INITIALIZING_TIMEOUT}
)


def is_aborted(service: RayService) -> bool:
    """Return whether the upgrade to the present spec was aborted."""
    aborted = conditions.find(service.status.conditions, ConditionType.UPGRADE_ABORTED)
    return aborted is not None and aborted.status == "True" and aborted.reason != _EARLIER_GATE


def derive_phase(service: RayService, *, is_brief: bool = False) -> CurrentPhase:
    """Return the phase of a RayService.

    If `is_brief`, Ray's response to a Serve config is shown unchanged, and the config is not
    parsed.
    """
    config = "" if is_brief else service.serve_config
    status_conditions = service.status.conditions
    if service.metadata.deletion_timestamp is not None:
        return CurrentPhase(phase=ServicePhase.DELETING, message="its clusters are deleted first")
    ready = conditions.find(status_conditions, ConditionType.READY)
    if ready is not None and ready.status != "True" and ready.reason in _NEVER_SERVES:
        return CurrentPhase(
            phase=_NOT_READY[ready.reason], reason=ready.reason, message=ready.message
        )
    for kind, phase in _BY_CONDITION:
        condition = conditions.find(status_conditions, kind)
        if condition is not None and condition.status == "True":
            return _apply_cause(
                config,
                condition,
                ServicePhase.ROLLING_BACK if condition.reason == _EARLIER_GATE else phase,
            )
    if ready is None:
        return CurrentPhase(
            phase=ServicePhase.STARTING,
            message="no service of raybus has reconciled it yet: see 'raybus doctor'",
        )
    return _apply_cause(config, ready, _NOT_READY.get(ready.reason, ServicePhase.NOT_READY))


def _apply_cause(config: str, condition: Condition, phase: ServicePhase) -> CurrentPhase:
    """Return the phase with the cause at the end of the condition's message.

    Without a cause, the phase has the reason and the message of the condition.
    """
    message = cause_texts.summarize_refusal(condition.message, config)
    cause = cause_texts.split_cause(message)
    if cause is None:
        return CurrentPhase(phase=phase, reason=condition.reason, message=message)
    reason = cause_texts.find_code(cause) or condition.reason
    return CurrentPhase(
        phase=ServicePhase.DEGRADED if phase is ServicePhase.STARTING else phase,
        reason=reason,
        message=cause,
    )


def sort_key(service: RayService) -> tuple[bool, str, str]:
    """Return a sort key: RayServices that need an action first, then by namespace and name."""
    meta = service.metadata
    return get_tone(derive_phase(service).phase) is not Tone.BAD, meta.namespace, meta.name


def get_tone(phase: ServicePhase) -> Tone:
    """Return the severity of a phase."""
    if phase is ServicePhase.READY:
        return Tone.GOOD
    return Tone.BAD if phase in _BAD else Tone.BUSY
