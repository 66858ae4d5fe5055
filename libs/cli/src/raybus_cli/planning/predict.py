"""What service-reconciler would do with another spec: its own decisions on the existing objects.

The order is that of `service_reconciler.plan`: validation, suspend and the time limit first, then clusters, then Serve.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from common.api.ray_service import RayService
from common.ray import serve_config
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from service_reconciler.config import Config
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion import control, pending
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.pending import Decision, Step
from service_reconciler.resources import ray_cluster
from service_reconciler.resources.ray_cluster import Match
from service_reconciler.status import suspend
from service_reconciler.status.conditions import is_timed_out
from service_reconciler.status.suspend import State


class PlanOutcome(StrEnum):
    """The effect on the running service."""

    CREATED = "created"
    NOTHING = "nothing"
    IN_PLACE = "in place"
    NEW_CLUSTER = "new cluster"
    ROLLED_BACK = "rolled back"
    """The service rolls back to its active cluster."""
    SUSPENDED = "suspended"
    REFUSED = "refused"


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The effect, and its reasons."""

    outcome: PlanOutcome
    notes: tuple[str, ...]


def predict(snapshot: Snapshot, goal: RayService, config: Config, *, now: datetime) -> Prediction:
    """Return the effect of the spec of `goal` on the RayService of a snapshot."""
    observed = observing.observe(snapshot, config, service=goal)
    if observed.violation is not None:
        return Prediction(outcome=PlanOutcome.REFUSED, notes=(observed.violation.text,))
    match suspend.state(observed):
        case State.REQUESTED:
            return Prediction(outcome=PlanOutcome.SUSPENDED, notes=("all clusters and Services are deleted",))
        case State.SUSPENDING | State.COMPLETE:
            return Prediction(outcome=PlanOutcome.SUSPENDED, notes=("the service is being suspended, with any spec",))
        case State.SUSPENDED:
            return Prediction(outcome=PlanOutcome.NOTHING, notes=("the service is suspended",))
        case State.RESUMED:
            return Prediction(outcome=PlanOutcome.CREATED, notes=("the suspended service is resumed",))
        case State.AWAKE:
            return _awake(snapshot, observed, now=now)


def _awake(snapshot: Snapshot, observed: Observed, *, now: datetime) -> Prediction:
    if is_timed_out(observed.service.status.conditions):
        note = "the service did not become ready in time; only suspending and resuming it starts it again"
        return Prediction(outcome=PlanOutcome.NOTHING, notes=(note,))
    held = control.decide(observed, now=now)
    decision = pending.decide(observed, held)
    if decision.step is Step.NEW:
        is_first = not decision.names.active
        outcome = PlanOutcome.CREATED if is_first else PlanOutcome.NEW_CLUSTER
        abandoned = (
            f"RayCluster {observed.names.pending} is abandoned" if observed.names.pending and not is_first else None
        )
        return Prediction(outcome=outcome, notes=tuple(each for each in (decision.note, abandoned) if each))
    if decision.step is Step.DROP or decision.rollback is not None:
        return Prediction(outcome=PlanOutcome.ROLLED_BACK, notes=(decision.note,))
    return _kept(snapshot, observed, decision, held)


def _kept(snapshot: Snapshot, observed: Observed, decision: Decision, held: Control) -> Prediction:
    """Return the effect on the existing cluster."""
    view = observed.pending or observed.active
    if view is None:
        return Prediction(outcome=PlanOutcome.NOTHING, notes=(decision.note,))
    changes = [*_grown(observed, view, held), *_served(snapshot, observed, view, held)]
    if changes:
        return Prediction(outcome=PlanOutcome.IN_PLACE, notes=tuple(changes))
    return Prediction(outcome=PlanOutcome.NOTHING, notes=(decision.note,))


def _grown(observed: Observed, view: ClusterView, held: Control) -> list[str]:
    found = ray_cluster.match(view.cluster, observed.service, version=observed.config.version)
    if found is not Match.APPENDED or held.abort is not None:
        return []
    return [f"worker groups are added to RayCluster {view.name}; no running pod is changed"]


def _served(snapshot: Snapshot, observed: Observed, view: ClusterView, held: Control) -> list[str]:
    goal = observed.service.raw_spec.get("serveConfigV2", "")
    was = view.given if view.given is not None else snapshot.service.raw_spec.get("serveConfigV2", "")
    if held.abort is not None or goal == was or serve_config.is_empty(goal):
        return []
    return [f"the Serve config is sent to RayCluster {view.name}; Serve replaces the changed applications"]
