"""The Events of what a look finds begun, ended or wrong; those of its writes are `announcements` (spec rayservice §13.4)."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from common import durations
from common.api.event import Event, normal, warning
from common.api.ray_service import RayServiceStatus
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion import pending
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.pending import Decision, Step
from service_reconciler.reasons import ConditionType, EventReason, Reason
from service_reconciler.serve import initializing
from service_reconciler.serve.problems import Problem
from service_reconciler.status import conditions


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a RayService stands once a look's plan is carried out."""

    names: Names
    problem: Problem | None
    status: RayServiceStatus


def of(observed: Observed, decision: Decision, control: Control, outcome: Outcome) -> Iterator[Event]:
    """Tell what differs from the last look, each once."""
    yield from _of_clusters(observed, decision, outcome.names)
    yield from _of_rollback(observed, decision)
    yield from _of_roles(observed, outcome.names)
    if (problem := outcome.problem) is not None and not problem.is_told and _is_new(observed, problem, outcome.status):
        yield warning(problem.reason, "Reconcile", problem.text)
    yield from _of_control(control, observed.service.status, outcome.status)


def timeout(observed: Observed, *, now: datetime) -> Event:
    """Tell that a RayService did not get ready within the limit that its user set."""
    limit = initializing.limit(observed.service.metadata.annotations) or timedelta(0)
    found = conditions.find(observed.service.status.conditions, ConditionType.READY)
    spent = now - found.last_transition_time if found is not None else limit
    note = f"exceeded after {durations.text(spent)} (configured timeout: {durations.text(limit)})"
    return warning(EventReason.TIMED_OUT, "Reconcile", f"RayService initializing timeout {note}")


def _of_clusters(observed: Observed, decision: Decision, names: Names) -> Iterator[Event]:
    before, namespace = observed.names, observed.service.metadata.namespace
    if decision.step is Step.NEW and pending.falls_back(observed):
        why = "the feature gate RayServiceIncrementalUpgrade is off"
        note = f"The upgrade runs as NewCluster, with one switch of all traffic: {why}"
        yield warning(EventReason.INCREMENTAL_UPGRADE_DISABLED, "Upgrade", note)
    if decision.step is Step.NEW and before.active:
        note = f"Preparing RayCluster {namespace}/{names.pending}: {decision.note}"
        yield normal(EventReason.UPGRADE_STARTED, "Upgrade", note)
    if decision.step is Step.DROP:
        note = f"RayCluster {namespace}/{before.pending} is given up: {decision.note}"
        yield normal(EventReason.UPGRADE_CANCELLED, "Upgrade", note)


def _of_rollback(observed: Observed, decision: Decision) -> Iterator[Event]:
    was_on = conditions.is_true(observed.service.status.conditions, ConditionType.ROLLBACK_IN_PROGRESS)
    is_on = decision.rollback is not None
    if was_on == is_on:
        return
    namespace, held = observed.service.metadata.namespace, observed.names
    if is_on:
        reason, note = EventReason.ROLLBACK_STARTED, f"Traffic goes back to {held.active}: {decision.rollback}"
    elif decision.step in {Step.DROP, Step.NEW}:
        reason, note = EventReason.ROLLBACK_COMPLETED, f"All traffic is back on RayCluster {namespace}/{held.active}"
    else:
        reason, note = EventReason.ROLLBACK_CANCELLED, f"Traffic goes on to RayCluster {namespace}/{held.pending}"
    yield normal(reason, "Upgrade", note)


def _of_roles(observed: Observed, names: Names) -> Iterator[Event]:
    active, namespace = observed.names.active, observed.service.metadata.namespace
    if not active:
        return
    if observed.is_incremental and observed.active is None:
        note = f"RayCluster {namespace}/{active} does not exist any more, so there is nothing to roll back to"
        yield warning(EventReason.ROLLBACK_IMPOSSIBLE, "Upgrade", note)
    if names.active != active:
        note = f"RayCluster {namespace}/{names.active} serves in place of {active}"
        yield normal(EventReason.UPGRADE_PROMOTED, "Upgrade", note)


def _is_new(observed: Observed, problem: Problem, status: RayServiceStatus) -> bool:
    def told(status: RayServiceStatus) -> bool:
        return any(problem.text in each.message for each in status.conditions)

    return told(status) and not told(observed.service.status)


def _of_control(control: Control, old: RayServiceStatus, new: RayServiceStatus) -> Iterator[Event]:
    was, now = _said(old), _said(new)
    if control.stall is not None and ConditionType.UPGRADE_STALLED not in was:
        yield warning(EventReason.UPGRADE_STALLED, "Upgrade", f"{control.stall.reason}: {control.stall.message}")
    if control.abort is not None and ConditionType.UPGRADE_ABORTED not in was:
        tell = normal if control.abort.reason is Reason.ABORT_REQUESTED else warning
        yield tell(EventReason.UPGRADE_ABORTED, "Upgrade", control.abort.message)
    if ConditionType.UPGRADE_PAUSED in now and ConditionType.UPGRADE_PAUSED not in was:
        yield normal(EventReason.UPGRADE_PAUSED, "Upgrade", now[ConditionType.UPGRADE_PAUSED])
    is_over = ConditionType.UPGRADE_PAUSED in was and ConditionType.UPGRADE_PAUSED not in now
    if is_over and new.pending_service_status.ray_cluster_name:
        yield normal(EventReason.UPGRADE_RESUMED, "Upgrade", "The upgrade is not paused any more")
    odd = now.get(ConditionType.INVALID_ANNOTATIONS)
    if odd is not None and odd != was.get(ConditionType.INVALID_ANNOTATIONS):
        yield warning(EventReason.INVALID_ANNOTATION, "Validate", odd)


def _said(status: RayServiceStatus) -> dict[str, str]:
    """Return the conditions that hold, and what they say."""
    return {each.type: each.message for each in status.conditions if each.status == "True"}
