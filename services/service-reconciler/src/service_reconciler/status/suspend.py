"""The suspend machine: `spec.suspend` takes everything down, once and completely, and starts anew afterwards.

Its state is the pair of conditions Suspending and Suspended; nothing else writes them. The request is made durable before
anything is deleted, and from then on only the end stops it. Spec rayservice §14; acceptance 79-82, 84.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from common import conditions
from common.api.ray_service import ClusterServiceStatus, RayServiceStatus
from common.conditions import ConditionUpdate
from service_reconciler.observed import Observed
from service_reconciler.reasons import RAY_SERVICE_INITIALIZING, ConditionType, Reason
from service_reconciler.status.conditions import CONTROLS, INITIALIZING_AGAIN

_DELETED = "All owned resources have been deleted."


class State(StrEnum):
    """Where the machine is."""

    AWAKE = "awake"
    REQUESTED = "requested"
    """Now: write it down, delete nothing yet."""
    SUSPENDING = "suspending"
    """Delete what is there."""
    COMPLETE = "complete"
    """Now: nothing is there any more."""
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    """Now: start as a new service."""


def state(observed: Observed) -> State:
    """Return where the machine is, from its conditions, the spec and what exists."""
    held = observed.service.status.conditions
    wanted = observed.service.spec.suspend
    if conditions.is_true(held, ConditionType.SUSPENDING):
        objects = (observed.gateway, observed.our_route, observed.grpc_route)
        exists = bool(observed.clusters or observed.services or any(objects))
        return State.SUSPENDING if exists else State.COMPLETE
    if conditions.is_true(held, ConditionType.SUSPENDED):
        return State.SUSPENDED if wanted else State.RESUMED
    return State.REQUESTED if wanted else State.AWAKE


def requested(observed: Observed, *, now: datetime) -> RayServiceStatus:
    """Return the status that makes the request durable."""
    service = observed.service
    generation = service.metadata.generation
    updates = [
        ConditionUpdate(
            ConditionType.SUSPENDING,
            "True",
            Reason.SUSPEND_REQUESTED,
            "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService.",
        ),
        *_down(Reason.SUSPEND_IN_PROGRESS, "RayService is suspending."),
    ]
    kept = conditions.without(service.status.conditions, *CONTROLS)
    return RayServiceStatus(
        conditions=conditions.updated(kept, *updates, generation=generation, now=now),
        last_update_time=service.status.last_update_time,
        active_service_status=ClusterServiceStatus(),
        pending_service_status=ClusterServiceStatus(),
        observed_generation=generation,
    )


def suspending(observed: Observed, *, now: datetime) -> RayServiceStatus:
    """Return the status while things are being deleted."""
    text = "Waiting for all Kubernetes resources owned by this RayService to be deleted."
    return _replaced(
        observed, [ConditionUpdate(ConditionType.SUSPENDING, "True", Reason.SUSPEND_IN_PROGRESS, text)], now=now
    )


def complete(observed: Observed, *, now: datetime) -> RayServiceStatus:
    """Return the status once nothing is left."""
    updates = [
        ConditionUpdate(ConditionType.SUSPENDING, "False", Reason.SUSPEND_COMPLETE, _DELETED),
        ConditionUpdate(ConditionType.SUSPENDED, "True", Reason.SUSPEND_COMPLETE, _DELETED),
        *_down(Reason.SUSPEND_COMPLETE, "RayService is suspended."),
    ]
    return _replaced(observed, updates, now=now)


def resumed(observed: Observed, *, now: datetime) -> RayServiceStatus:
    """Return the status with which the service starts anew; its conditions are fresh, and so is its time limit."""
    service = observed.service
    generation = service.metadata.generation
    text = "Spec.Suspend is false; RayService has resumed."
    awake = [ConditionUpdate(ConditionType.SUSPENDED, "False", Reason.RESUMED, text)]
    kept = conditions.updated(service.status.conditions, *awake, generation=generation, now=now)
    fresh = conditions.without(kept, ConditionType.READY, ConditionType.UPGRADE_IN_PROGRESS)
    updates = [
        ConditionUpdate(ConditionType.READY, "False", Reason.INITIALIZING, INITIALIZING_AGAIN),
        ConditionUpdate(ConditionType.UPGRADE_IN_PROGRESS, "False", Reason.INITIALIZING, RAY_SERVICE_INITIALIZING),
    ]
    return msgspec.structs.replace(
        service.status,
        conditions=conditions.updated(fresh, *updates, generation=generation, now=now),
        observed_generation=generation,
    )


def _down(reason: Reason, text: str) -> list[ConditionUpdate]:
    return [
        ConditionUpdate(ConditionType.READY, "False", reason, text),
        ConditionUpdate(ConditionType.UPGRADE_IN_PROGRESS, "False", reason, "No upgrade in progress."),
        ConditionUpdate(ConditionType.ROLLBACK_IN_PROGRESS, "False", reason, "No rollback in progress."),
    ]


def _replaced(observed: Observed, updates: list[ConditionUpdate], *, now: datetime) -> RayServiceStatus:
    old = observed.service.status
    changed = conditions.updated(old.conditions, *updates, generation=old.observed_generation, now=now)
    return msgspec.structs.replace(old, conditions=changed)
