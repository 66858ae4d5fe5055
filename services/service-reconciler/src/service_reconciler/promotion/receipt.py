"""The receipt of an upgrade: its result, kept for later reads.

It is made when the upgrade's unneeded cluster is deleted, from durable state: the clusters' ages, the traffic record on
the route, and the annotation that the unneeded cluster got when it became that. An aborted upgrade has one too.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from common import annotation_record, conditions
from common.annotation_record import AnnotationRecord
from common.api.meta import whole_seconds
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService, RayServiceStatus
from common.upgrade import gate_record, traffic_record
from common.upgrade import policy as upgrade_policy
from common.upgrade.receipt import Outcome, Receipt, Seconds, receipt_of, span
from common.upgrade.traffic_record import WHOLE
from service_reconciler.observed import Names, Observed
from service_reconciler.reasons import ConditionType

SO_FAR: Final = "raybus.io/upgrade-so-far"
"""On an unneeded cluster: what is known of its upgrade when the traffic is off it."""
BOTH: Final = 200
"""Percent of capacity that an upgrade without steps has while both clusters run."""


class SoFar(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """An upgrade with traffic at its final place; percentages are None when they are not known any more."""

    old: str
    new: str
    outcome: Outcome
    started: datetime
    moved: datetime | None = None
    """When the first requests moved to the new cluster."""
    completed: datetime = msgspec.field(name="settled")
    most: int | None = None
    least: int | None = None
    steps: tuple[gate_record.Step, ...] | UnsetType = UNSET
    """The weights at which gates were evaluated."""


def origin_of(names: Names, active: RayCluster | None, left: RayCluster) -> Names | None:
    """Return the upgrade that left a cluster behind, None when there was none with the active one, which may be gone.

    The old cluster of the upgrade is its active one, and the new one its pending one: promoted if that is the active one now.
    A cluster names its predecessor until its upgrade is over; where neither does, as KubeRay's do not, their ages decide.
    """
    name = left.metadata.name
    aborted, replaced = (
        Names(active=names.active, pending=name),
        Names(active=name, pending=names.active),
    )
    if not names.active:
        return None
    if upgrade_policy.upgraded_from(left) == names.active:
        return aborted
    if active is None or upgrade_policy.upgraded_from(active) == name:
        return replaced
    born, born_before = active.metadata.creation_timestamp, left.metadata.creation_timestamp
    is_named = upgrade_policy.upgraded_from(active) or upgrade_policy.upgraded_from(left)
    if is_named or born is None or born_before is None:
        return None
    return replaced if born_before <= born else aborted


def so_far(observed: Observed, unneeded: RayCluster, *, now: datetime) -> str | None:
    """Return what is written on a cluster that becomes unneeded; None when it was part of no upgrade."""
    active = observed.active.cluster if observed.active is not None else None
    pair = origin_of(observed.names, active, unneeded)
    if pair is None:
        return None
    outcome, new = Outcome.PROMOTED, active
    if pair.active == observed.names.active:
        outcome, new = failure(observed, observed.service.status, pair), unneeded
    return msgspec.json.encode(
        _so_far(observed, pair, new, outcome, completed=whole_seconds(now))
    ).decode()


def failure(observed: Observed, status: RayServiceStatus, pair: Names) -> Outcome:
    """Return the outcome of an upgrade without promotion, from a status."""
    if conditions.is_true(status.conditions, ConditionType.UPGRADE_ABORTED):
        return Outcome.ABORTED
    found = traffic_record.upgrade_of(observed.record, pair.active, pair.pending)
    return Outcome.CANCELLED if found is None or found.moved_at is None else Outcome.ROLLED_BACK


def begun(annotations: Mapping[str, str]) -> SoFar | None:
    """Return what is written of an upgrade on its unneeded cluster."""
    return annotation_record.decode(annotations.get(SO_FAR, ""), SoFar)


def finished(
    service: RayService, cluster: RayCluster, ongoing: int | None, *, now: datetime
) -> Receipt | None:
    """Return the receipt of the upgrade that leaves a cluster behind, which goes now with requests in flight; None where it is written."""
    held, last = begun(cluster.metadata.annotations), receipt_of(service)
    if held is None or (last is not None and (last.old, last.new) == (held.old, held.new)):
        return None
    return _closed(held, ongoing, now=now)


def returned(observed: Observed, active: RayCluster, old: RayCluster, *, now: datetime) -> Receipt:
    """Return the receipt of a promoted upgrade with an old cluster that is needed again.

    Nothing was deleted, so no request was cut.
    """
    held, last = begun(old.metadata.annotations), receipt_of(observed.service)
    pair = (old.metadata.name, active.metadata.name)
    if held is None or (held.old, held.new) != pair or (last and (last.old, last.new) == pair):
        return lost(observed, active, old.metadata.name, ongoing=0, now=now)
    return _closed(held, 0, now=now)


def lost(
    observed: Observed,
    active: RayCluster,
    old: str,
    *,
    ongoing: int | None = None,
    now: datetime,
) -> Receipt:
    """Return the receipt of an upgrade without its old cluster: the written one, else what is known without it."""
    if (held := receipt_of(observed.service)) is not None and (held.old, held.new) == (
        old,
        active.metadata.name,
    ):
        return held
    moved = conditions.find(observed.service.status.conditions, ConditionType.UPGRADE_IN_PROGRESS)
    completed = (
        moved.last_transition_time
        if moved is not None and moved.status == "False"
        else whole_seconds(now)
    )
    pair = Names(active=old, pending=active.metadata.name)
    return _closed(
        _so_far(observed, pair, active, Outcome.PROMOTED, completed=completed), ongoing, now=now
    )


def _so_far(
    observed: Observed,
    pair: Names,
    new: RayCluster | None,
    outcome: Outcome,
    *,
    completed: datetime,
) -> SoFar:
    found = traffic_record.upgrade_of(observed.record, pair.active, pair.pending)
    moved = found.moved_at if found is not None else None
    return SoFar(
        old=pair.active,
        new=pair.pending,
        outcome=outcome,
        started=(new.metadata.creation_timestamp if new is not None else None) or completed,
        moved=whole_seconds(moved)
        if moved is not None
        else (completed if outcome is Outcome.PROMOTED else None),
        completed=completed,
        most=found.most if found is not None else (None if observed.all_routes else BOTH),
        least=found.least if found is not None else (None if observed.all_routes else WHOLE),
        steps=traffic_record.steps_of(found) or UNSET,
    )


def _closed(held: SoFar, ongoing: int | None, *, now: datetime) -> Receipt:
    end, moved = whole_seconds(now), held.moved or held.completed
    return Receipt(
        old=held.old,
        new=held.new,
        outcome=held.outcome,
        started=held.started,
        finished=end,
        seconds=Seconds(
            preparing=span(held.started, moved),
            shifting=span(moved, held.completed),
            draining=span(held.completed, end),
        ),
        peak_surge_percent=None if held.most is None else max(0, held.most - WHOLE),
        lowest_capacity_percent=held.least,
        requests_cut=None if ongoing is None else min(ongoing, annotation_record.LARGEST),
        steps=held.steps,
    )
