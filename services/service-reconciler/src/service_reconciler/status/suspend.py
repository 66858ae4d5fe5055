"""Suspend and resume: `spec.suspend` deletes everything; a resume starts the service anew.

The state is stored as the conditions Suspending and Suspended, which only this module writes. The
request is durable before anything is deleted, and the deletion always runs to completion. Spec
rayservice §14; acceptance 79-82, 84.
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


class SuspendState(StrEnum):
    """States of a RayService from suspend to resume.

    The value of a state is the text by which the plan describes itself in that state.
    """

    AWAKE = "the service is not suspended"
    REQUESTED = "suspend is requested"
    """The request to suspend is not in the status yet, and nothing is deleted yet."""
    SUSPENDING = "everything is being deleted"
    COMPLETE = "everything is deleted"
    SUSPENDED = "the service is suspended"
    RESUMED = "the service starts anew"


def decide_state(observed: Observed) -> SuspendState:
    """Return the suspend state from the conditions, the spec and the existing objects."""
    before, wanted = observed.service.status.conditions, observed.service.is_to_be_suspended
    if conditions.is_true(before, ConditionType.SUSPENDING):
        exists = bool(observed.clusters or observed.services or pending_deletions(observed))
        return SuspendState.SUSPENDING if exists else SuspendState.COMPLETE
    if conditions.is_true(before, ConditionType.SUSPENDED):
        return SuspendState.SUSPENDED if wanted else SuspendState.RESUMED
    return SuspendState.REQUESTED if wanted else SuspendState.AWAKE


def pending_deletions(observed: Observed) -> tuple[Gateway | Route, ...]:
    """Return the Gateway and routes that must be deleted before the RayService is suspended."""
    meta, side = observed.service.metadata, observed.side_routes.existing
    return (
        *(
            routing_object
            for routing_object in _list_routing_objects(observed)
            if owner.owns(meta, routing_object.metadata)
        ),
        *side,
    )


def list_kept_objects(observed: Observed) -> Iterator[Problem[RoutingCode]]:
    """Yield a problem for each Gateway or route that a suspension keeps, as it has another owner.

    These objects have names that raybus uses.
    """
    for have in _list_routing_objects(observed):
        problem = weighted_route.not_ours(observed.service.metadata, have.metadata)
        if problem is not None:
            yield problem.at(f"{_get_kind(have)} {have.metadata.namespaced_name}")


def _list_routing_objects(observed: Observed) -> Iterator[Gateway | Route]:
    """Yield the Gateway and the routes under names that raybus uses, whoever owns them."""
    candidates = (observed.gateway, observed.our_route, observed.grpc_route)
    return (candidate for candidate in candidates if candidate is not None)


def _get_kind(have: Gateway | Route) -> str:
    if isinstance(have, Gateway):
        return GATEWAY.kind
    return GRPC_ROUTE.kind if isinstance(have, GrpcRoute) else HTTP_ROUTE.kind


def build_status(observed: Observed, state: SuspendState, *, now: datetime) -> RayServiceStatus:
    """Return the status for a suspend state.

    A resume resets the conditions and the initializing timeout.
    """
    kind, old = ConditionType, observed.service.status
    kept_conditions, is_turn = (
        old.conditions,
        state in {SuspendState.REQUESTED, SuspendState.RESUMED},
    )
    generation = observed.service.metadata.generation if is_turn else old.observed_generation
    match state:
        case SuspendState.REQUESTED:
            text = (
                "Spec.Suspend is true; will delete all Kubernetes resources owned by this "
                "RayService."
            )
            updates = [
                ConditionUpdate(kind.SUSPENDING, "True", Reason.SUSPEND_REQUESTED, text),
                *_build_down_updates(Reason.SUSPEND_IN_PROGRESS, "RayService is suspending."),
            ]
            kept_conditions = conditions.without(kept_conditions, *CONTROLS)
        case SuspendState.COMPLETE:
            reason, text = Reason.SUSPEND_COMPLETE, "All owned resources have been deleted."
            updates = [
                ConditionUpdate(kind.SUSPENDING, "False", reason, text),
                ConditionUpdate(kind.SUSPENDED, "True", reason, text),
                *_build_down_updates(reason, "RayService is suspended."),
            ]
        case SuspendState.RESUMED:
            text = "Spec.Suspend is false; RayService has resumed."
            awake = ConditionUpdate(kind.SUSPENDED, "False", Reason.RESUMED, text)
            kept = conditions.updated(kept_conditions, awake, generation=generation, now=now)
            kept_conditions = conditions.without(kept, kind.READY, kind.UPGRADE_IN_PROGRESS)
            updates = [
                ConditionUpdate(kind.READY, "False", Reason.INITIALIZING, INITIALIZING_AGAIN),
                ConditionUpdate(
                    kind.UPGRADE_IN_PROGRESS, "False", Reason.INITIALIZING, RAY_SERVICE_INITIALIZING
                ),
            ]
        case _:
            text = "Waiting for all Kubernetes resources owned by this RayService to be deleted."
            updates = [ConditionUpdate(kind.SUSPENDING, "True", Reason.SUSPEND_IN_PROGRESS, text)]
    kept_conditions = conditions.updated(kept_conditions, *updates, generation=generation, now=now)
    base = RayServiceStatus() if state is SuspendState.REQUESTED else old
    new = msgspec.structs.replace(base, conditions=kept_conditions, observed_generation=generation)
    return compute.stored_or_new(old, new, now=now)


def _build_down_updates(reason: Reason, text: str) -> list[ConditionUpdate]:
    return [
        ConditionUpdate(ConditionType.READY, "False", reason, text),
        ConditionUpdate(
            ConditionType.UPGRADE_IN_PROGRESS, "False", reason, "No upgrade in progress."
        ),
        ConditionUpdate(
            ConditionType.ROLLBACK_IN_PROGRESS, "False", reason, "No rollback in progress."
        ),
    ]
