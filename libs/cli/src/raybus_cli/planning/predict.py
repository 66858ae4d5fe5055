"""What service-reconciler would do with another spec: its own decisions, asked with the objects that are there.

The order is that of `service_reconciler.plan`: validation, suspend and the time limit first, then clusters, then Serve.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from common.api.ray_service import RayService
from common.ray import serve_config
from raybus_cli.reading import observing
from raybus_cli.reading.look import Look
from service_reconciler.config import Config
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion import control, pending
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.pending import Decision, Step
from service_reconciler.resources import ray_cluster
from service_reconciler.resources.ray_cluster import Match
from service_reconciler.status import ready, suspend
from service_reconciler.status.suspend import State


class Outcome(StrEnum):
    """What happens to the running service."""

    CREATED = "created"
    NOTHING = "nothing"
    IN_PLACE = "in place"
    NEW_CLUSTER = "new cluster"
    ROLLED_BACK = "rolled back"
    """The service goes back to its active cluster."""
    SUSPENDED = "suspended"
    REFUSED = "refused"


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What happens, and why."""

    outcome: Outcome
    notes: tuple[str, ...]


def predict(look: Look, goal: RayService, config: Config, *, now: datetime) -> Prediction:
    """Return what the spec of `goal` does to the RayService of a look."""
    observed = observing.observe(look, config, service=goal)
    if observed.violation is not None:
        return Prediction(outcome=Outcome.REFUSED, notes=(observed.violation.text,))
    match suspend.state(observed):
        case State.REQUESTED:
            return Prediction(outcome=Outcome.SUSPENDED, notes=("all clusters and Services are deleted",))
        case State.SUSPENDING | State.COMPLETE:
            return Prediction(
                outcome=Outcome.SUSPENDED, notes=("the service is being suspended, whatever the spec says",)
            )
        case State.SUSPENDED:
            return Prediction(outcome=Outcome.NOTHING, notes=("the service is suspended",))
        case State.RESUMED:
            return Prediction(outcome=Outcome.CREATED, notes=("the suspended service starts anew",))
        case State.AWAKE:
            return _awake(look, observed, now=now)


def _awake(look: Look, observed: Observed, *, now: datetime) -> Prediction:
    if ready.is_timed_out(observed.service.status.conditions):
        note = "the service did not become ready in time; only suspending and resuming it starts it again"
        return Prediction(outcome=Outcome.NOTHING, notes=(note,))
    held = control.decide(observed, now=now)
    decision = pending.decide(observed, held)
    if decision.step is Step.NEW:
        is_first = not decision.names.active
        outcome = Outcome.CREATED if is_first else Outcome.NEW_CLUSTER
        given_up = (
            f"RayCluster {observed.names.pending} is given up" if observed.names.pending and not is_first else None
        )
        return Prediction(outcome=outcome, notes=tuple(each for each in (decision.note, given_up) if each))
    if decision.step is Step.DROP or decision.rollback is not None:
        return Prediction(outcome=Outcome.ROLLED_BACK, notes=(decision.note,))
    return _kept(look, observed, decision, held)


def _kept(look: Look, observed: Observed, decision: Decision, held: Control) -> Prediction:
    """Return what happens to the cluster that is there, or on its way."""
    view = observed.pending or observed.active
    if view is None:
        return Prediction(outcome=Outcome.NOTHING, notes=(decision.note,))
    changes = [*_grown(observed, view, held), *_served(look, observed, view, held)]
    if changes:
        return Prediction(outcome=Outcome.IN_PLACE, notes=tuple(changes))
    return Prediction(outcome=Outcome.NOTHING, notes=(decision.note,))


def _grown(observed: Observed, view: ClusterView, held: Control) -> list[str]:
    found = ray_cluster.match(view.cluster, observed.service, version=observed.config.version)
    if found is not Match.APPENDED or held.abort is not None:
        return []
    return [f"worker groups are added to RayCluster {view.name}; no running pod is touched"]


def _served(look: Look, observed: Observed, view: ClusterView, held: Control) -> list[str]:
    goal = observed.service.raw_spec.get("serveConfigV2", "")
    was = view.given if view.given is not None else look.service.raw_spec.get("serveConfigV2", "")
    if held.abort is not None or goal == was or serve_config.is_empty(goal):
        return []
    return [f"the Serve config is sent to RayCluster {view.name}; Serve replaces what changed in it"]
