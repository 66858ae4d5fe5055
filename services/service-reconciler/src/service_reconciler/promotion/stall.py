"""Whether an upgrade is stalled, and by what: annotation `raybus.io/progress-deadline`.

The cause is named from what is observed now, and stays as it was named first unless a better one is found, so that it does
not flicker.
"""

from datetime import datetime

import msgspec

from common import durations, labels
from common.api.opaque import Json
from common.problem import Problem
from common.ray.view import head_is_ready
from common.upgrade.controls import Controls, OnDeadline
from service_reconciler import decided
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion import progress, promote
from service_reconciler.reasons import ConditionType, Reason
from service_reconciler.serve import capacity_parity, gateway_problems, problems


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an upgrade is stalled, and when it would be."""

    stall: Problem[Reason] | None = None
    due: datetime | None = None


def decide(observed: Observed, controls: Controls, *, is_back: bool, now: datetime) -> Verdict:
    """Judge the upgrade that is on, if there is one; `is_back` is whether it is being rolled back."""
    if not _can_stall(observed, is_back=is_back):
        return Verdict()
    growing = observed.active if is_back else observed.pending
    is_kept = controls.on_deadline is OnDeadline.PAUSE and not controls.promotes and not is_back
    held = decided.problem_of(observed.service, ConditionType.UPGRADE_STALLED)
    if held is not None and is_kept:
        return Verdict(stall=held)
    due = progress.since(observed, growing, now=now) + controls.deadline
    if now < due:
        return Verdict(due=due)
    found = _found(observed, growing, controls, now=now)
    is_better = held is None or found.code not in {held.code, Reason.PROGRESS_DEADLINE_EXCEEDED}
    return Verdict(stall=found if is_better else held)


def _can_stall(observed: Observed, *, is_back: bool) -> bool:
    """Return whether something is on its way; a pending cluster that may take over now is about to."""
    pending, active = observed.pending, observed.active
    if not observed.names.pending or active is None or observed.serving == observed.names.pending:
        return False
    if observed.is_incremental or is_back or pending is None:
        return True
    return promote.not_ready(observed, pending) is not None


def _found(observed: Observed, growing: ClusterView | None, controls: Controls, *, now: datetime) -> Problem[Reason]:
    cause, length = _cause(observed, growing, now=now), durations.text(controls.deadline)
    text = f"No progress for {length} ({labels.PROGRESS_DEADLINE}): {cause.message}"
    return Problem(cause.code, text)


def _cause(observed: Observed, growing: ClusterView | None, *, now: datetime) -> Problem[Reason]:
    problem = problems.find(observed, growing, now=now) or gateway_problems.find(observed, now=now)
    if problem is not None:
        return problem
    if growing is None:
        return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, f"RayCluster {observed.names.pending} is not there yet")
    if not head_is_ready(growing.cluster):
        return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, f"the head pod of RayCluster {growing.name} is not ready")
    if (why := promote.not_ready(observed, growing)) is not None:
        return Problem(Reason.APPLICATION_NOT_READY, f"RayCluster {growing.name}: {why}")
    if observed.is_incremental:
        return _traffic_cause(observed, growing, now=now)
    return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, "nothing changes")


def _traffic_cause(observed: Observed, growing: ClusterView, *, now: datetime) -> Problem[Reason]:
    waits = capacity_parity.find(observed, is_back=growing is observed.active, now=now)
    if waits is not None:
        return waits
    if (since := progress.flaps_since(observed)) is not None:
        return Problem(
            Reason.APPLICATION_NOT_READY, f"traffic left a cluster for its health repeatedly since {since:%H:%M:%S}"
        )
    trouble = gateway_problems.route_trouble(observed)
    if trouble is not None:
        return Problem(Reason.GATEWAY_NOT_READY, trouble.message)
    strategy: Json = observed.service.raw_spec.get("upgradeStrategy") or {}
    options: Json = strategy.get("clusterUpgradeOptions") or {}
    if 0 in {options.get("maxSurgePercent"), options.get("stepSizePercent")}:
        return Problem(
            Reason.PROGRESS_DEADLINE_EXCEEDED, "maxSurgePercent and stepSizePercent must both be greater than 0"
        )
    return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, "the traffic does not move")
