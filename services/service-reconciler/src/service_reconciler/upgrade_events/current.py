"""The upgrade events of a written status, with the clusters that are there: each process publishes them once.

An unneeded cluster shows the upgrade's end until it has a deadline. Repetitions are the same to the byte,
since a condition brings its reason, its text and the moment of its transition.
"""

from collections.abc import Iterator
from datetime import datetime

from common import conditions, labels
from common.api.meta import Condition
from common.api.ray_service import RayServiceStatus
from common.ray import serve_writer
from common.upgrade.events import (
    Aborted,
    Cause,
    ClusterCreated,
    Data,
    Event,
    Paused,
    Promoted,
    Resumed,
    RolledBack,
    Stalled,
    Started,
    Upgrade,
)
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion import origin, receipt
from service_reconciler.reasons import ConditionType
from service_reconciler.upgrade_events import build


def events(observed: Observed, names: Names, status: RayServiceStatus, *, now: datetime) -> Iterator[Event]:
    """Yield the events of a status with these names, in the order in which they came about."""
    written = status.last_update_time or now
    yield from _of_the_left(observed, names, status, at=written)
    if names.active and names.pending:
        yield from _of_the_pending(observed, names, status, at=written)


def _of_the_left(observed: Observed, names: Names, status: RayServiceStatus, *, at: datetime) -> Iterator[Event]:
    """Yield the ends of upgrades with an unneeded cluster that has no deadline yet, or is gone already."""
    there = {each.metadata.name: each for each in observed.clusters}
    active = there.get(names.active)
    lost = origin.from_of(active) if active is not None else ""
    if lost and lost not in there:
        upgrade = build.upgrade(observed, Names(active=lost, pending=names.active))
        yield build.event(observed, Promoted(upgrade=upgrade), at=at)
    for cluster in observed.clusters:
        is_needed = cluster.metadata.name in {names.active, names.pending}
        if is_needed or labels.DELETE_AFTER in cluster.metadata.annotations:
            continue
        found = origin.of(names, active, cluster)
        if found is None:
            continue
        upgrade = build.upgrade(observed, found.pair)
        if found.is_promoted:
            yield build.event(observed, Promoted(upgrade=upgrade), at=at)
        else:
            yield from _of_the_abort(observed, upgrade, status)
            yield rolled_back(observed, found.pair, status, at=at)


def rolled_back(observed: Observed, pair: Names, status: RayServiceStatus, *, at: datetime) -> Event:
    """Return that an upgrade is over and the service stays where it was."""
    outcome = receipt.failure(observed, status, pair)
    return build.event(observed, RolledBack(upgrade=build.upgrade(observed, pair), outcome=outcome), at=at)


def _of_the_pending(observed: Observed, names: Names, status: RayServiceStatus, *, at: datetime) -> Iterator[Event]:
    """Yield the events of the upgrade that is on."""
    upgrade = build.upgrade(observed, names)
    there = {each.metadata.name: each for each in observed.clusters}
    pending = there.get(names.pending)
    if pending is None:
        yield build.event(observed, _started(observed, upgrade, status, is_lost=names.active not in there), at=at)
    else:
        meta = pending.metadata
        data = ClusterCreated(upgrade=upgrade, cluster=meta.name, uid=meta.uid)
        yield build.event(observed, data, meta.uid, at=meta.creation_timestamp or at)
    yield from _of_conditions(observed, upgrade, status)


def _started(observed: Observed, upgrade: Upgrade, status: RayServiceStatus, *, is_lost: bool) -> Started:
    return Started(
        upgrade=upgrade,
        reason=Cause.ACTIVE_CLUSTER_GONE if is_lost else Cause.SPEC_CHANGED,
        strategy=serve_writer.INCREMENTAL if observed.is_incremental else "NewCluster",
        generation=status.observed_generation,
    )


def _of_conditions(observed: Observed, upgrade: Upgrade, status: RayServiceStatus) -> Iterator[Event]:
    if (stall := _true(status, ConditionType.UPGRADE_STALLED)) is not None:
        yield _of_condition(observed, stall, Stalled(upgrade=upgrade, reason=stall.reason, message=stall.message))
    pause = conditions.find(status.conditions, ConditionType.UPGRADE_PAUSED)
    if pause is not None and pause.status == "True":
        yield _of_condition(observed, pause, Paused(upgrade=upgrade, reason=pause.reason, message=pause.message))
    elif pause is not None:
        yield _of_condition(observed, pause, Resumed(upgrade=upgrade))
    yield from _of_the_abort(observed, upgrade, status)


def _of_the_abort(observed: Observed, upgrade: Upgrade, status: RayServiceStatus) -> Iterator[Event]:
    if (abort := _true(status, ConditionType.UPGRADE_ABORTED)) is not None:
        data = Aborted(upgrade=upgrade, reason=abort.reason, message=abort.message, over=False)
        yield _of_condition(observed, abort, data)


def _of_condition(observed: Observed, condition: Condition, data: Data) -> Event:
    when = condition.last_transition_time
    return build.event(observed, data, when, condition.reason, condition.message, at=when)


def _true(status: RayServiceStatus, kind: ConditionType) -> Condition | None:
    found = conditions.find(status.conditions, kind)
    return found if found is not None and found.status == "True" else None
