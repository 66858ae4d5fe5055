"""Whether a new cluster is needed, and whether the pending one still has a purpose.

Spec rayservice §6.5, §6.6, §8.10 (G9), §17.6; acceptance 18-28, 36-38.
"""

from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion import rollback
from service_reconciler.promotion.control import Control, is_goal
from service_reconciler.promotion.rollback import Decision, Step, replaces_clusters
from service_reconciler.resources.ray_cluster import Match


def decide(observed: Observed, control: Control) -> Decision:
    """Decide whether a new cluster is prepared, the pending one is dropped, or all stays."""
    active, pending = observed.active, observed.pending
    if pending is not None and observed.is_incremental and active is not None:
        return rollback.decide(observed, active, pending, control)
    step, note = _at_once(observed, pending, control) if pending is not None else _without_pending(observed, control)
    return rollback.decision(observed, step, note)


def _at_once(observed: Observed, pending: ClusterView, control: Control) -> tuple[Step, str]:
    is_wanted = observed.match(pending) is not Match.DIFFERENT
    # the last cluster that gets requests serves whatever the spec asks for by now (design rule 8)
    is_left = bool(observed.names.active) and observed.active is None
    if is_left and not is_wanted and observed.is_incremental and observed.requests_from(pending.name) is not None:
        return Step.PROMOTE, f"RayCluster {observed.names.active} is gone and the pending cluster gets requests"
    if observed.serving == observed.names.pending:
        return Step.KEEP, "the pending cluster serves already"
    if control.abort is not None:
        return Step.DROP, control.abort.message
    if is_wanted:
        return Step.KEEP, "the pending cluster is what the spec asks for"
    if observed.active is not None and observed.match(observed.active) is Match.FULL:
        return Step.DROP, "the spec is the active cluster's again"
    kept = Step.KEEP, "the upgrade strategy allows no further cluster"
    changed = Step.NEW, "the spec changed again before the pending cluster served"
    return changed if replaces_clusters(observed) else kept


def _without_pending(observed: Observed, control: Control) -> tuple[Step, str]:
    names, active = observed.names, observed.active
    if names.pending:
        is_reverted = active is not None and is_goal(observed, active, control)
        dropped = Step.DROP, "the spec was reverted before the pending cluster was created"
        return dropped if is_reverted else (Step.KEEP, "the pending cluster is to be created")
    if active is None:
        return Step.NEW, "there is no cluster" if not names.active else "the active cluster is gone"
    if control.abort is not None:
        return Step.KEEP, control.abort.message
    match observed.match(active):
        case Match.FULL:
            return Step.KEEP, "the active cluster is what the spec asks for"
        case Match.APPENDED:
            return Step.KEEP, "worker groups are added to the active cluster"
        case Match.DIFFERENT:
            kept = Step.KEEP, "the cluster spec changed, but the upgrade strategy is None"
            return (Step.NEW, "the cluster spec changed") if replaces_clusters(observed) else kept
