"""Whether an upgrade is stalled, since when, and by what: annotation `raybus.io/progress-deadline`.

Progress is a change of a weight or of a capacity, a replica or a pod that becomes ready, and a step of the cluster that is to
grow: durable facts only, so that no restart forgets it (design rule 7). What is no fault of the upgrade does not count against it:
the interval between two steps, a pause, and a clock that is set. A pod that was restarted makes no progress by becoming ready once
more. Neither does an upgrade that gives traffic back for the health of a cluster: once may be chance, and the way forward from there
counts; from the second time on nothing counts that happened after the first, until the new cluster gets more traffic than it ever
had (ADR 11). The cause is named from what is observed now, and stays as it was named first unless a better one is found, so that it
does not flicker.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import UnsetType

from common import durations, labels
from common.api.meta import SKEW
from common.api.opaque import Json
from common.problem import Problem
from common.ray.serve_status import AppState
from common.ray.view import head_is_ready
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import Controls, OnDeadline
from common.upgrade.traffic_record import Record, Upgrade
from service_reconciler import decided, problems
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion import promote
from service_reconciler.reasons import ConditionType, Reason

FLAPPING: Final = 2
"""So many times traffic left a cluster for its health, without progress between, and it counts against the deadline."""
_FAILED: Final = {AppState.DEPLOY_FAILED, AppState.UNHEALTHY}


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
    due = progress_since(observed, growing, now=now) + controls.deadline
    if now < due:
        return Verdict(due=due)
    cause = _cause(observed, growing, now=now)
    if held is not None and cause.code in {held.code, Reason.PROGRESS_DEADLINE_EXCEEDED}:
        return Verdict(stall=held)
    text = f"No progress for {durations.text(controls.deadline)} ({labels.PROGRESS_DEADLINE}): {cause.message}"
    return Verdict(stall=Problem(cause.code, text))


def _can_stall(observed: Observed, *, is_back: bool) -> bool:
    """Return whether something is on its way; a pending cluster that may take over now is about to."""
    pending, active = observed.pending, observed.active
    if not observed.names.pending or active is None or observed.serving == observed.names.pending:
        return False
    if observed.is_incremental or is_back or pending is None:
        return True
    return promote.not_ready(observed, pending) is not None


def progress_since(observed: Observed, growing: ClusterView | None, *, now: datetime) -> datetime:
    """Return when the upgrade last made progress; now, where nothing shows that it is stalled.

    What happened in the future happened before the clock was set back: its time is unknown.
    """
    service = observed.service
    is_upgrading = decided.holds(service, ConditionType.UPGRADE_IN_PROGRESS)
    if not is_upgrading or decided.holds(service, ConditionType.UPGRADE_PAUSED):
        return now
    set_at = [observed.clock_set_at] if observed.clock_set_at is not None else []
    kinds = (ConditionType.UPGRADE_IN_PROGRESS, ConditionType.UPGRADE_PAUSED, ConditionType.ROLLBACK_IN_PROGRESS)
    decisions = [each for kind in kinds if (each := decided.changed_at(service, kind)) is not None]
    interval = upgrade_controls.interval_of(service)
    if (flapping := flaps_since(observed)) is not None:
        return max((*decisions, flapping + interval, *set_at))
    record = observed.record if observed.is_incremental else Record()
    moved = [each.moved_at for each in record.clusters.values() if each.moved_at is not None]
    changed = [record.changed_at] if record.changed_at is not None else []
    moments = [*decisions, *changed, *moved, *_of_cluster(growing)]
    past = [each for each in moments if each <= now + SKEW]
    if len(past) < len(moments) and not set_at:
        return now
    next_steps = (each + interval for each in moved if each <= now + SKEW)
    return max((*past, *next_steps, *set_at))


def flaps_since(observed: Observed) -> datetime | None:
    """Return when a cluster first lost traffic for its health, of several times without progress; None if it did not.

    A rollback begins anew: what was shed before it is why it began.
    """
    upgrade, names = observed.record.upgrade if observed.is_incremental else None, observed.names
    if not (isinstance(upgrade, Upgrade) and (upgrade.old, upgrade.new) == (names.active, names.pending)):
        return None
    since, count = upgrade.shed_at, upgrade.sheds
    if isinstance(since, UnsetType) or isinstance(count, UnsetType) or count < FLAPPING:
        return None
    back = decided.changed_at(observed.service, ConditionType.ROLLBACK_IN_PROGRESS)
    return None if decided.is_rolling_back(observed.service) and back is not None and back >= since else since


def _of_cluster(view: ClusterView | None) -> Iterator[datetime]:
    """Yield when a cluster, its pods and its replicas came about; replicas of applications that fail do not count."""
    if view is None:
        return
    if view.cluster.metadata.creation_timestamp is not None:
        yield view.cluster.metadata.creation_timestamp
    yield from (each.last_transition_time for each in view.cluster.status.conditions if each.status == "True")
    for pod in view.pods:
        is_restarted = any(each.restart_count for each in pod.status.container_statuses)
        ready = pod.condition("Ready")
        if ready is not None and ready.status == "True" and ready.last_transition_time and not is_restarted:
            yield ready.last_transition_time
    details = view.serve.details
    for app in details.applications.values() if details is not None else ():
        if app.status not in _FAILED:
            started = (each.start_time_s for deployment in app.deployments.values() for each in deployment.running)
            yield from (datetime.fromtimestamp(each, UTC) for each in started if each is not None)


def _cause(observed: Observed, growing: ClusterView | None, *, now: datetime) -> Problem[Reason]:
    problem = problems.of_cluster(observed, growing, now=now) or problems.of_gateway(observed, now=now)
    if problem is not None:
        return problem
    if growing is None:
        return _unmoved(f"RayCluster {observed.names.pending} is not there yet")
    if not head_is_ready(growing.cluster):
        return _unmoved(f"the head pod of RayCluster {growing.name} is not ready")
    if (why := promote.not_ready(observed, growing)) is not None:
        return Problem(Reason.APPLICATION_NOT_READY, f"RayCluster {growing.name}: {why}")
    return _traffic_cause(observed, growing, now=now) if observed.is_incremental else _unmoved("nothing changes")


def _traffic_cause(observed: Observed, growing: ClusterView, *, now: datetime) -> Problem[Reason]:
    if (waits := problems.of_parity(observed, is_back=growing is observed.active, now=now)) is not None:
        return waits
    if (since := flaps_since(observed)) is not None:
        text = f"traffic left a cluster for its health repeatedly since {since:%H:%M:%S}"
        return Problem(Reason.APPLICATION_NOT_READY, text)
    if (trouble := problems.route_trouble(observed)) is not None:
        return Problem(Reason.GATEWAY_NOT_READY, trouble.message)
    strategy: Json = observed.service.raw_spec.get("upgradeStrategy") or {}
    options: Json = strategy.get("clusterUpgradeOptions") or {}
    if 0 in {options.get("maxSurgePercent"), options.get("stepSizePercent")}:
        return _unmoved("maxSurgePercent and stepSizePercent must both be greater than 0")
    return _unmoved("the traffic does not move")


def _unmoved(why: str) -> Problem[Reason]:
    return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, why)
