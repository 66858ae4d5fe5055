"""Since when an upgrade has made no progress: from durable facts only, so that no restart forgets it (design rule 7).

Progress is a change of a weight or of a capacity, a replica or a pod that becomes ready, and a step of the cluster that is to
grow. What is no fault of the upgrade does not count against it: the interval between two steps, a pause, and a clock that is set.
A pod that was restarted makes no progress by becoming ready once more. Neither does an upgrade that gives traffic back for the
health of a cluster: once may be chance, and the way forward from there counts; from the second time on nothing counts that
happened after the first, until the new cluster gets more traffic than it ever had (ADR 11).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from msgspec import UNSET, UnsetType

from common.api.core import Pod
from common.api.meta import SKEW
from common.ray.serve_status import AppState
from common.upgrade import controls as upgrade_controls
from service_reconciler import decided
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.reasons import ConditionType

FLAPPING: Final = 2
"""So many times traffic left a cluster for its health, without progress between, and it counts against the deadline."""
_FAILED: Final = {AppState.DEPLOY_FAILED, AppState.UNHEALTHY}


def since(observed: Observed, growing: ClusterView | None, *, now: datetime) -> datetime:
    """Return when the upgrade last made progress; now, where nothing shows that it is stalled.

    What happened in the future happened before the clock was set back: its time is unknown.
    """
    is_upgrading = decided.holds(observed.service, ConditionType.UPGRADE_IN_PROGRESS)
    if not is_upgrading or decided.holds(observed.service, ConditionType.UPGRADE_PAUSED):
        return now
    set_at = observed.clock_set_at
    if (flapping := flaps_since(observed)) is not None:
        moments = [*_of_decisions(observed), flapping + upgrade_controls.interval_of(observed.service)]
        return max(*moments, *([set_at] if set_at is not None else []))
    moments = [*_of_decisions(observed), *_of_traffic(observed), *_of_cluster(growing)]
    past = [each for each in moments if each <= now + SKEW]
    if len(past) < len(moments) and set_at is None:
        return now
    return max((*past, *_next_steps(observed, now=now), *([set_at] if set_at is not None else [])))


def flaps_since(observed: Observed) -> datetime | None:
    """Return when a cluster first lost traffic for its health, of several times without progress; None if it did not.

    A rollback begins anew: what was shed before it is why it began.
    """
    upgrade = observed.record.upgrade if observed.is_incremental else UNSET
    if isinstance(upgrade, UnsetType) or (upgrade.old, upgrade.new) != (observed.names.active, observed.names.pending):
        return None
    since, count = upgrade.shed_at, upgrade.sheds
    if isinstance(since, UnsetType) or isinstance(count, UnsetType) or count < FLAPPING:
        return None
    back = decided.changed_at(observed.service, ConditionType.ROLLBACK_IN_PROGRESS)
    return None if decided.is_rolling_back(observed.service) and back is not None and back >= since else since


def _of_decisions(observed: Observed) -> Iterator[datetime]:
    """Yield when the upgrade began, went on after a pause, and turned back."""
    kinds = (ConditionType.UPGRADE_IN_PROGRESS, ConditionType.UPGRADE_PAUSED, ConditionType.ROLLBACK_IN_PROGRESS)
    yield from (each for kind in kinds if (each := decided.changed_at(observed.service, kind)) is not None)


def _of_traffic(observed: Observed) -> Iterator[datetime]:
    """Yield when the traffic record last changed."""
    if not observed.is_incremental:
        return
    record = observed.record
    moments = (record.changed_at, *(each.moved_at for each in record.clusters.values()))
    yield from (each for each in moments if each is not None)


def _next_steps(observed: Observed, *, now: datetime) -> Iterator[datetime]:
    """Yield when the user wanted the next step at the earliest."""
    if not observed.is_incremental:
        return
    interval = upgrade_controls.interval_of(observed.service)
    moved = (each.moved_at for each in observed.record.clusters.values())
    yield from (each + interval for each in moved if each is not None and each <= now + SKEW)


def _of_cluster(view: ClusterView | None) -> Iterator[datetime]:
    if view is None:
        return
    if view.cluster.metadata.creation_timestamp is not None:
        yield view.cluster.metadata.creation_timestamp
    yield from (each.last_transition_time for each in view.cluster.status.conditions if each.status == "True")
    yield from (moment for pod in view.pods if (moment := _ready_since(pod)) is not None)
    yield from _of_replicas(view)


def _ready_since(pod: Pod) -> datetime | None:
    if any(each.restart_count for each in pod.status.container_statuses):
        return None
    ready = pod.condition("Ready")
    return ready.last_transition_time if ready is not None and ready.status == "True" else None


def _of_replicas(view: ClusterView) -> Iterator[datetime]:
    """Yield when replicas started, of applications that do not fail."""
    details = view.serve.details
    for app in details.applications.values() if details is not None else ():
        if app.status not in _FAILED:
            started = (each.start_time_s for deployment in app.deployments.values() for each in deployment.running)
            yield from (datetime.fromtimestamp(each, UTC) for each in started if each is not None)
