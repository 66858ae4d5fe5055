"""The suspend machine: `spec.suspend` deletes everything; a resume starts the service anew.

The state of the machine is the pair of conditions Suspending and Suspended, which only this module
writes. The request is durable before anything is deleted, and the deletion always runs to
completion. Spec rayservice §14; acceptance 79-82, 84.
"""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

import msgspec

from common import conditions
from common.api.gateway import Gateway, GrpcRoute, Route, RoutingCode
from common.api.ray_service import RayServiceStatus
from common.conditions import ConditionUpdate
from common.errors import Problem
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE
from common.ray import owner
from common.upgrade import weighted_route
from common.upgrade.service_conditions import ConditionType, Reason
from service_reconciler.observed import Observed
from service_reconciler.reasons import RAY_SERVICE_INITIALIZING
from service_reconciler.status import compute
from service_reconciler.status.conditions import CONTROLS, INITIALIZING_AGAIN


class State(StrEnum):
    """States of the machine; the values are the notes of plans."""

    AWAKE = "the service is not suspended"
    REQUESTED = "suspend is requested"
    """The request is to be written to the status; nothing is deleted yet."""
    SUSPENDING = "everything is being deleted"
    COMPLETE = "everything is deleted"
    SUSPENDED = "the service is suspended"
    RESUMED = "the service starts anew"


def state(observed: Observed) -> State:
    """Return the state from the conditions, the spec and the existing objects."""
    held, wanted = observed.service.status.conditions, observed.service.is_to_be_suspended
    if conditions.is_true(held, ConditionType.SUSPENDING):
        exists = bool(observed.clusters or observed.services or pending_deletions(observed))
        return State.SUSPENDING if exists else State.COMPLETE
    if conditions.is_true(held, ConditionType.SUSPENDED):
        return State.SUSPENDED if wanted else State.RESUMED
    return State.REQUESTED if wanted else State.AWAKE


def pending_deletions(observed: Observed) -> tuple[Gateway | Route, ...]:
    """Return the Gateway and routes that must be deleted before the RayService is suspended."""
    meta, side = observed.service.metadata, observed.side_routes.existing
    return (*(each for each in _named(observed) if owner.owns(meta, each.metadata)), *side)


def kept(observed: Observed) -> Iterator[Problem[RoutingCode]]:
    """Yield objects of other owners under names that raybus uses.

    A suspension does not delete them.
    """
    for have in _named(observed):
        problem = weighted_route.not_ours(observed.service.metadata, have.metadata)
        if problem is not None:
            yield problem.at(f"{_kind(have)} {have.metadata.namespaced_name}")


def _named(observed: Observed) -> Iterator[Gateway | Route]:
    """Yield the Gateway and the weighted routes under names that raybus uses, whoever owns them."""
    found = (observed.gateway, observed.our_route, observed.grpc_route)
    return (each for each in found if each is not None)


def _kind(have: Gateway | Route) -> str:
    if isinstance(have, Gateway):
        return GATEWAY.kind
    return GRPC_ROUTE.kind if isinstance(have, GrpcRoute) else HTTP_ROUTE.kind


def status(observed: Observed, state: State, *, now: datetime) -> RayServiceStatus:
    """Return the status for a state; a resume resets conditions and initializing timeout."""
    kind, old = ConditionType, observed.service.status
    held, is_turn = old.conditions, state in {State.REQUESTED, State.RESUMED}
    generation = observed.service.metadata.generation if is_turn else old.observed_generation
    match state:
        case State.REQUESTED:
            text = (
                "Spec.Suspend is true; will delete all Kubernetes resources owned by this "
                "RayService."
            )
            updates = [
                ConditionUpdate(kind.SUSPENDING, "True", Reason.SUSPEND_REQUESTED, text),
                *_down(Reason.SUSPEND_IN_PROGRESS, "RayService is suspending."),
            ]
            held = conditions.without(held, *CONTROLS)
        case State.COMPLETE:
            reason, text = Reason.SUSPEND_COMPLETE, "All owned resources have been deleted."
            updates = [
                ConditionUpdate(kind.SUSPENDING, "False", reason, text),
                ConditionUpdate(kind.SUSPENDED, "True", reason, text),
                *_down(reason, "RayService is suspended."),
            ]
        case State.RESUMED:
            text = "Spec.Suspend is false; RayService has resumed."
            awake = ConditionUpdate(kind.SUSPENDED, "False", Reason.RESUMED, text)
            kept = conditions.updated(held, awake, generation=generation, now=now)
            held = conditions.without(kept, kind.READY, kind.UPGRADE_IN_PROGRESS)
            updates = [
                ConditionUpdate(kind.READY, "False", Reason.INITIALIZING, INITIALIZING_AGAIN),
                ConditionUpdate(
                    kind.UPGRADE_IN_PROGRESS, "False", Reason.INITIALIZING, RAY_SERVICE_INITIALIZING
                ),
            ]
        case _:
            text = "Waiting for all Kubernetes resources owned by this RayService to be deleted."
            updates = [ConditionUpdate(kind.SUSPENDING, "True", Reason.SUSPEND_IN_PROGRESS, text)]
    held = conditions.updated(held, *updates, generation=generation, now=now)
    base = RayServiceStatus() if state is State.REQUESTED else old
    new = msgspec.structs.replace(base, conditions=held, observed_generation=generation)
    return compute.stored_or_new(old, new, now=now)


def _down(reason: Reason, text: str) -> list[ConditionUpdate]:
    return [
        ConditionUpdate(ConditionType.READY, "False", reason, text),
        ConditionUpdate(
            ConditionType.UPGRADE_IN_PROGRESS, "False", reason, "No upgrade in progress."
        ),
        ConditionUpdate(
            ConditionType.ROLLBACK_IN_PROGRESS, "False", reason, "No rollback in progress."
        ),
    ]
