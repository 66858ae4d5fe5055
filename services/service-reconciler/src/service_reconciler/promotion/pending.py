"""Whether a new cluster is needed, and whether the pending one still has a purpose.

Spec rayservice §6.5, §6.6, §8.10 (G9), §17.6; acceptance 18-28, 36-38.
"""

from enum import StrEnum

import msgspec

from common.api.ray_service import ServiceUpgradeStrategy
from common.ray import serve_writer
from service_reconciler.config import Config
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.promotion import rollback
from service_reconciler.promotion.control import NONE, Control, is_goal
from service_reconciler.promotion.rollback import Course
from service_reconciler.resources.ray_cluster import Match


class Step(StrEnum):
    """What happens to the pending name."""

    KEEP = "keep"
    NEW = "new"
    DROP = "drop"
    PROMOTE = "promote"
    """The pending cluster becomes the active one."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the pending name, the names that hold from now on, and why."""

    step: Step
    names: Names
    note: str
    rollback: str | None = None
    """The message of the condition RollbackInProgress; None while nothing is rolled back."""


def decide(observed: Observed, control: Control = NONE) -> Decision:
    """Decide whether a new cluster is prepared, the pending one is dropped, or all stays."""
    if observed.pending is None:
        return _without_pending(observed, control)
    if observed.is_incremental and observed.active is not None:
        return _in_steps(observed, observed.active, observed.pending, control)
    if _is_left_alone(observed, observed.pending):
        note = f"RayCluster {observed.names.active} is gone and the pending cluster gets requests"
        return Decision(step=Step.PROMOTE, names=Names(active=observed.pending.name), note=note)
    return _at_once(observed, observed.pending, control)


def replaces_clusters(observed: Observed) -> bool:
    """Return whether a changed spec may have a new cluster; the strategy None has its first cluster only."""
    return _is_enabled(observed.service.spec.upgrade_strategy, observed.config)


def falls_back(observed: Observed) -> bool:
    """Return whether the RayService asks for traffic in steps and the gate is off: it gets a NewCluster upgrade."""
    return serve_writer.asks_for_steps(observed.service) and not observed.is_incremental


def _is_left_alone(observed: Observed, held: ClusterView) -> bool:
    """Return whether only the pending cluster is left to serve, whatever the spec asks for by now (design rule 8)."""
    is_wanted = observed.match(held) is not Match.DIFFERENT
    has_lost = bool(observed.names.active) and observed.active is None
    return has_lost and not is_wanted and observed.is_incremental and observed.requests_from(held.name) is not None


def _at_once(observed: Observed, held: ClusterView, control: Control) -> Decision:
    if observed.serving == observed.names.pending:
        return _keep(observed, "the pending cluster serves already")
    if control.abort is not None:
        return _drop(observed, control.abort.message)
    if observed.match(held) is not Match.DIFFERENT:
        return _keep(observed, "the pending cluster is what the spec asks for")
    if observed.active is not None and observed.match(observed.active) is Match.FULL:
        return _drop(observed, "the spec is the active cluster's again")
    if not replaces_clusters(observed):
        return _keep(observed, "the upgrade strategy allows no further cluster")
    return _new(observed, "the spec changed again before the pending cluster served")


def _in_steps(observed: Observed, active: ClusterView, held: ClusterView, control: Control) -> Decision:
    verdict = rollback.decide(observed, active, held, control)
    match verdict.course:
        case Course.FORWARD:
            return _keep(observed, verdict.note)
        case Course.BACK:
            return Decision(step=Step.KEEP, names=observed.names, note=verdict.note, rollback=verdict.note)
        case Course.PROMOTED:
            return Decision(step=Step.PROMOTE, names=Names(active=held.name), note=verdict.note)
        case Course.DROPPED:
            is_wanted = observed.match(active) is Match.DIFFERENT and replaces_clusters(observed)
            is_new = is_wanted and control.abort is None
            return _new(observed, verdict.note) if is_new else _drop(observed, verdict.note)


def _without_pending(observed: Observed, control: Control) -> Decision:
    names, active = observed.names, observed.active
    if names.pending:
        if active is not None and is_goal(observed, active, control):
            return _drop(observed, "the spec was reverted before the pending cluster was created")
        return _keep(observed, "the pending cluster is to be created")
    if active is None:
        return _new(observed, "there is no cluster" if not names.active else "the active cluster is gone")
    if control.abort is not None:
        return _keep(observed, control.abort.message)
    return _with_active_alone(observed, observed.match(active))


def _with_active_alone(observed: Observed, found: Match) -> Decision:
    match found:
        case Match.FULL:
            return _keep(observed, "the active cluster is what the spec asks for")
        case Match.APPENDED:
            return _keep(observed, "worker groups are added to the active cluster")
        case Match.DIFFERENT if replaces_clusters(observed):
            return _new(observed, "the cluster spec changed")
        case Match.DIFFERENT:
            return _keep(observed, "the cluster spec changed, but the upgrade strategy is None")


def _is_enabled(strategy: ServiceUpgradeStrategy | None, config: Config) -> bool:
    kind = strategy.type if strategy is not None else None
    return config.zero_downtime if kind is None else kind in {"NewCluster", serve_writer.INCREMENTAL}


def _keep(observed: Observed, note: str) -> Decision:
    return Decision(step=Step.KEEP, names=observed.names, note=note)


def _drop(observed: Observed, note: str) -> Decision:
    return Decision(step=Step.DROP, names=Names(active=observed.names.active), note=note)


def _new(observed: Observed, note: str) -> Decision:
    names = Names(active=observed.names.active, pending=observed.fresh_name)
    return Decision(step=Step.NEW, names=names, note=note)
