"""Predicts what service-reconciler does with a changed spec.

The service's own planner runs on the existing objects.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from common.api.meta import Condition
from common.api.ray_service import RayService, RayServiceStatus
from common.conditions import is_true
from common.feature_gates import Gates
from common.kube.resources import RAY_CLUSTER
from common.ray import serve_config, serve_writer
from common.ray.submit import Submit
from common.ray.view import head_is_ready
from common.runtime.actions import Action, Patch, Plan
from common.upgrade.service_conditions import ConditionType
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from service_reconciler import plan as planning
from service_reconciler.actions import UpdateServiceStatus
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.promotion import control, rollback
from service_reconciler.status.conditions import is_timed_out

TIMED_OUT: Final = (
    "the service did not become ready in time; only suspending and resuming it starts it again"
)


class PlanOutcome(StrEnum):
    """The effect of a change on the running service."""

    CREATED = "created"
    NOTHING = "nothing"
    IN_PLACE = "in place"
    NEW_CLUSTER = "new cluster"
    ROLLED_BACK = "rolled back"
    """The service returns to its active cluster."""
    RECREATED = "recreated"
    """All pods of a RayCluster are deleted, and new pods are created."""
    SUSPENDED = "suspended"
    REFUSED = "refused"


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted outcome and its reasons."""

    outcome: PlanOutcome
    notes: tuple[str, ...]


def predict(snapshot: Snapshot, goal: RayService, gates: Gates, *, now: datetime) -> Prediction:
    """Predict the effect of the spec of `goal` on the RayService of a snapshot."""
    return _predict(observing.observe(snapshot, gates, service=goal), snapshot.service, now=now)


def _predict(observed: Observed, present: RayService, *, now: datetime) -> Prediction:
    plan = planning.make_plan(observed, now=now)
    status = _find_status(observed, plan)
    if observed.service.metadata.deletion_timestamp is not None:
        return _build_prediction(PlanOutcome.NOTHING, plan.note)
    if observed.violation is not None:
        return _build_prediction(PlanOutcome.REFUSED, observed.violation.message)
    if is_timed_out(status.conditions):
        return _build_prediction(PlanOutcome.NOTHING, TIMED_OUT)
    suspension = _predict_suspension(observed.service.status.conditions, status.conditions)
    return suspension or _predict_clusters(observed, present, plan, status, now=now)


def _predict_suspension(old: list[Condition], new: list[Condition]) -> Prediction | None:
    """Return the effect of a plan that suspends or resumes the service; None for any other plan.

    `old` are the conditions before the plan; `new` are the conditions that the plan writes.
    """
    if is_true(old, ConditionType.SUSPENDING):
        return _build_prediction(
            PlanOutcome.SUSPENDED, "the service is being suspended, with any spec"
        )
    if is_true(new, ConditionType.SUSPENDING):
        return _build_prediction(PlanOutcome.SUSPENDED, "all clusters and Services are deleted")
    if is_true(new, ConditionType.SUSPENDED):
        return _build_prediction(PlanOutcome.NOTHING, "the service is suspended")
    resumed = _build_prediction(PlanOutcome.CREATED, "the suspended service is resumed")
    return resumed if is_true(old, ConditionType.SUSPENDED) else None


def _predict_clusters(
    observed: Observed,
    present: RayService,
    plan: Plan[Action],
    status: RayServiceStatus,
    *,
    now: datetime,
) -> Prediction:
    """Return the effect of a plan that neither suspends the service nor rejects its spec.

    `present` is the stored RayService. `status` is the status that the plan writes.
    """
    old, why = observed.names, rollback.decide(observed, control.decide(observed, now=now)).note
    new = Names.from_status(status)
    if new.pending not in {"", old.pending}:
        if not new.active:
            return _build_prediction(PlanOutcome.CREATED, why)
        abandoned = (f"RayCluster {old.pending} is abandoned",) if old.pending else ()
        return _build_prediction(PlanOutcome.NEW_CLUSTER, why, *abandoned)
    if old.pending and new == Names(active=old.pending):
        prediction = _predict(_simulate_promotion(observed, status), present, now=now)
        return (
            prediction
            if prediction.outcome is not PlanOutcome.NOTHING
            else _build_prediction(PlanOutcome.NOTHING, why)
        )
    is_dropped = bool(old.pending and not new.pending)
    if is_dropped or is_true(status.conditions, ConditionType.ROLLBACK_IN_PROGRESS):
        return _build_prediction(PlanOutcome.ROLLED_BACK, why)
    view = observed.pending if new.pending else observed.active
    changes = [*_describe_growth(plan), *_describe_config_change(observed, present, plan, view)]
    return (
        _build_prediction(PlanOutcome.IN_PLACE, *changes)
        if changes
        else _build_prediction(PlanOutcome.NOTHING, why)
    )


def _build_prediction(outcome: PlanOutcome, *notes: str) -> Prediction:
    return Prediction(outcome=outcome, notes=notes)


def _find_status(observed: Observed, plan: Plan[Action]) -> RayServiceStatus:
    """Return the status that the plan writes, or the present status if it writes none."""
    written = (action.status for action in plan.actions if isinstance(action, UpdateServiceStatus))
    return next(written, observed.service.status)


def _simulate_promotion(observed: Observed, status: RayServiceStatus) -> Observed:
    """Return what service-reconciler observes in its first reconcile after a promotion."""
    service = msgspec.structs.replace(observed.service, status=status)
    names = Names(active=observed.names.pending)
    return msgspec.structs.replace(
        observed, service=service, names=names, active=observed.pending, pending=None
    )


def _describe_growth(plan: Plan[Action]) -> list[str]:
    grown = (
        action
        for action in plan.actions
        if isinstance(action, Patch) and action.resource is RAY_CLUSTER
    )
    return [
        f"worker groups are added to RayCluster {action.name}; no running pod is changed"
        for action in grown
        if "spec" in action.patch
    ]


def _describe_config_change(
    observed: Observed, present: RayService, plan: Plan[Action], view: ClusterView | None
) -> list[str]:
    """Return a note if the plan changes the Serve config of the cluster in `view`.

    `present` is the stored RayService. The note also covers a config that is sent after the plan,
    because the dashboard does not answer yet or because traffic-manager sends the config.
    """
    if view is None:
        return []
    service, was = observed.service, present.serve_config if view.given is None else view.given
    configs = {
        action.given.serve_config
        for action in plan.actions
        if isinstance(action, Submit) and action.cluster == view.cluster
    }
    is_now = head_is_ready(view.cluster) and view.serve.details is not None
    if not is_now or serve_writer.is_recorded(service):
        configs = _find_later_fields(service.serve_config, _find_status(observed, plan))
    if not configs - {was}:
        return []
    return [
        f"the Serve config is sent to RayCluster {view.name}; Serve replaces the changed "
        "applications"
    ]


def _find_later_fields(goal: str, status: RayServiceStatus) -> set[str]:
    is_aborted = is_true(status.conditions, ConditionType.UPGRADE_ABORTED)
    return (
        set()
        if is_aborted or serve_config.is_empty(goal) or serve_config.parse(goal).problem
        else {goal}
    )
