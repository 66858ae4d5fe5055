"""Build the receipt of an upgrade, which records the result of the upgrade.

The receipt is built when the cluster that the upgrade leaves behind is deleted: the old cluster
after a promotion, the new cluster after an abort. The sources are durable: the ages of both
clusters, the traffic record on the route, and the annotation `SO_FAR`, which a cluster gets when it
becomes unneeded.
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
from common.upgrade.receipt import Receipt, Seconds, UpgradeOutcome, receipt_of, span
from common.upgrade.service_conditions import ConditionType
from common.upgrade.traffic_record import WHOLE
from service_reconciler.observed import Names, Observed

SO_FAR: Final = "raybus.io/upgrade-so-far"
"""Annotation with the facts about an upgrade that are known when its traffic has moved.

A cluster gets it when it becomes unneeded.
"""
TWO_CLUSTERS_CAPACITY: Final = 200
"""Total capacity in percent while both clusters of a NewCluster upgrade run."""


class PartialReceipt(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """Facts about an upgrade whose traffic has moved for good; the value of annotation `SO_FAR`.

    Percentages are None if they are unknown.
    """

    old: str
    new: str
    outcome: UpgradeOutcome
    started: datetime
    moved: datetime | None = None
    """When the new cluster first got traffic."""
    completed: datetime = msgspec.field(name="settled")
    max_capacity: int | None = msgspec.field(name="most", default=None)
    min_capacity: int | None = msgspec.field(name="least", default=None)
    steps: tuple[gate_record.StepVerdicts, ...] | UnsetType = UNSET
    """The weights at which gates were evaluated, with their results."""


def origin_of(names: Names, active: RayCluster | None, left: RayCluster) -> Names | None:
    """Return the two clusters of the upgrade after which the cluster `left` became unneeded.

    In the result, `active` is the old and `pending` the new cluster of that upgrade. The upgrade
    was promoted if the new cluster is the active one now. None if `left` was in no upgrade with the
    active cluster. `active` is None if that cluster is deleted.

    Until an upgrade ends, an annotation of the new cluster names the cluster that it replaces. If
    neither cluster names the other, as with clusters of KubeRay, the older cluster is the old one.
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


def build_record(observed: Observed, unneeded: RayCluster, *, now: datetime) -> str | None:
    """Return the annotation `SO_FAR` of a cluster that becomes unneeded; None without upgrade."""
    active = observed.active.cluster if observed.active is not None else None
    pair = origin_of(observed.names, active, unneeded)
    if pair is None:
        return None
    outcome, new = UpgradeOutcome.PROMOTED, active
    if pair.active == observed.names.active:
        outcome, new = get_failed_outcome(observed, observed.service.status, pair), unneeded
    return msgspec.json.encode(
        _build_partial(observed, pair, new, outcome, completed=whole_seconds(now))
    ).decode()


def get_failed_outcome(observed: Observed, status: RayServiceStatus, pair: Names) -> UpgradeOutcome:
    """Return the outcome of an upgrade without promotion: aborted, cancelled or rolled back."""
    if conditions.is_true(status.conditions, ConditionType.UPGRADE_ABORTED):
        return UpgradeOutcome.ABORTED
    upgrade = traffic_record.upgrade_of(observed.record, pair.active, pair.pending)
    return (
        UpgradeOutcome.CANCELLED
        if upgrade is None or upgrade.moved_at is None
        else UpgradeOutcome.ROLLED_BACK
    )


def parse_record(annotations: Mapping[str, str]) -> PartialReceipt | None:
    """Return the content of the annotation `SO_FAR`; None if it is missing or unreadable."""
    return annotation_record.decode(annotations.get(SO_FAR, ""), PartialReceipt)


def build_finished(
    service: RayService, cluster: RayCluster, ongoing: int | None, *, now: datetime
) -> Receipt | None:
    """Return the receipt of the upgrade whose unneeded cluster is deleted now.

    `ongoing` is the number of requests in flight, None if unknown. The result is None if the
    receipt is written already or if the cluster has no record of an upgrade.
    """
    partial, last = parse_record(cluster.metadata.annotations), receipt_of(service)
    if partial is None or (last is not None and (last.old, last.new) == (partial.old, partial.new)):
        return None
    return _complete(partial, ongoing, now=now)


def build_returned(
    observed: Observed, active: RayCluster, old: RayCluster, *, now: datetime
) -> Receipt:
    """Return the receipt of a promoted upgrade whose old cluster is needed again.

    No cluster was deleted, so no request was cut.
    """
    partial, last = parse_record(old.metadata.annotations), receipt_of(observed.service)
    pair = (old.metadata.name, active.metadata.name)
    if (
        partial is None
        or (partial.old, partial.new) != pair
        or (last and (last.old, last.new) == pair)
    ):
        return build_after_loss(observed, active, old.metadata.name, ongoing=0, now=now)
    return _complete(partial, 0, now=now)


def build_after_loss(
    observed: Observed,
    active: RayCluster,
    old: str,
    *,
    ongoing: int | None = None,
    now: datetime,
) -> Receipt:
    """Return the receipt of an upgrade whose old cluster does not exist any more.

    This is the receipt on the RayService, else a receipt with the facts that are still known.
    `ongoing` is the number of requests that were cut, None if unknown.
    """
    if (receipt := receipt_of(observed.service)) is not None and (receipt.old, receipt.new) == (
        old,
        active.metadata.name,
    ):
        return receipt
    moved = conditions.find(observed.service.status.conditions, ConditionType.UPGRADE_IN_PROGRESS)
    completed = (
        moved.last_transition_time
        if moved is not None and moved.status == "False"
        else whole_seconds(now)
    )
    pair = Names(active=old, pending=active.metadata.name)
    return _complete(
        _build_partial(observed, pair, active, UpgradeOutcome.PROMOTED, completed=completed),
        ongoing,
        now=now,
    )


def _build_partial(
    observed: Observed,
    pair: Names,
    new: RayCluster | None,
    outcome: UpgradeOutcome,
    *,
    completed: datetime,
) -> PartialReceipt:
    upgrade = traffic_record.upgrade_of(observed.record, pair.active, pair.pending)
    moved = upgrade.moved_at if upgrade is not None else None
    return PartialReceipt(
        old=pair.active,
        new=pair.pending,
        outcome=outcome,
        started=(new.metadata.creation_timestamp if new is not None else None) or completed,
        moved=whole_seconds(moved)
        if moved is not None
        else (completed if outcome is UpgradeOutcome.PROMOTED else None),
        completed=completed,
        max_capacity=upgrade.max_capacity
        if upgrade is not None
        else (None if observed.all_routes else TWO_CLUSTERS_CAPACITY),
        min_capacity=upgrade.min_capacity
        if upgrade is not None
        else (None if observed.all_routes else WHOLE),
        steps=traffic_record.steps_of(upgrade) or UNSET,
    )


def _complete(partial: PartialReceipt, ongoing: int | None, *, now: datetime) -> Receipt:
    end, moved = whole_seconds(now), partial.moved or partial.completed
    return Receipt(
        old=partial.old,
        new=partial.new,
        outcome=partial.outcome,
        started=partial.started,
        finished=end,
        seconds=Seconds(
            preparing=span(partial.started, moved),
            shifting=span(moved, partial.completed),
            draining=span(partial.completed, end),
        ),
        peak_surge_percent=None
        if partial.max_capacity is None
        else max(0, partial.max_capacity - WHOLE),
        lowest_capacity_percent=partial.min_capacity,
        requests_cut=None if ongoing is None else min(ongoing, annotation_record.MAX_NUMBER),
        steps=partial.steps,
    )
