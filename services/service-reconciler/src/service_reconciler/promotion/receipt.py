"""The receipt of an upgrade: what it came to, for whoever asks afterwards.

It is made when the cluster goes that the upgrade leaves behind, from what is durable: the clusters' ages, the traffic record on
the route, and what was written on the leaving cluster when it became unneeded. An upgrade that is given up has one too.
"""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from common import labels
from common.api.meta import whole_seconds
from common.api.ray_cluster import RayCluster
from common.traffic_record import WHOLE, Upgrade
from common.upgrade_receipt import Outcome, Receipt, Seconds, span
from service_reconciler.observed import Leaving, Observed
from service_reconciler.reasons import ConditionType
from service_reconciler.status import conditions

SO_FAR: Final = "raybus.io/upgrade-so-far"
"""On a cluster that is left behind: what is known of its upgrade when the traffic is off it."""
BOTH: Final = 200
"""Percent of capacity that an upgrade without steps has while both clusters run."""


class SoFar(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An upgrade whose traffic is where it stays; percentages are None when nobody knows them any more."""

    old: str
    new: str
    outcome: Outcome
    started: datetime
    moved: datetime | None = None
    """When the first requests moved to the new cluster."""
    settled: datetime
    most: int | None = None
    least: int | None = None


def so_far(observed: Observed, leaving: RayCluster, *, now: datetime) -> str | None:
    """Return what is written on a cluster that becomes unneeded; None when it was part of no upgrade."""
    active = observed.active.cluster if observed.active is not None else leaving
    born, born_before = active.metadata.creation_timestamp, leaving.metadata.creation_timestamp
    if active is leaving or born is None or born_before is None:
        return None
    is_promoted = born_before <= born
    old, new = (leaving, active) if is_promoted else (active, leaving)
    found = _stats(observed, old, new)
    settled = whole_seconds(now)
    moved = found.moved_at if found is not None else None
    story = SoFar(
        old=old.metadata.name,
        new=new.metadata.name,
        outcome=Outcome.PROMOTED if is_promoted else _failure(observed, moved),
        started=max(born, born_before),
        moved=whole_seconds(moved) if moved is not None else (settled if is_promoted else None),
        settled=settled,
        most=found.most if found is not None else (None if observed.routes else BOTH),
        least=found.least if found is not None else (None if observed.routes else WHOLE),
    )
    return msgspec.json.encode(story).decode()


def finished(cluster: RayCluster, leaving: Leaving | None, *, now: datetime) -> Receipt | None:
    """Return the receipt of the upgrade that leaves a cluster behind, which goes now."""
    try:
        held = msgspec.json.decode(cluster.metadata.annotations.get(SO_FAR, ""), type=SoFar)
    except msgspec.DecodeError:
        return None
    end = whole_seconds(now)
    moved = held.moved or held.settled
    return Receipt(
        old=held.old,
        new=held.new,
        outcome=held.outcome,
        started=held.started,
        finished=end,
        seconds=Seconds(
            preparing=span(held.started, moved),
            shifting=span(moved, held.settled),
            draining=span(held.settled, end),
        ),
        peak_surge_percent=None if held.most is None else max(0, held.most - WHOLE),
        lowest_capacity_percent=held.least,
        requests_cut=leaving.ongoing if leaving is not None else None,
    )


def is_written(observed: Observed, receipt: Receipt) -> bool:
    """Tell whether the RayService has this upgrade's receipt already."""
    text = observed.service.metadata.annotations.get(labels.UPGRADE_RECEIPT, "")
    try:
        held = msgspec.json.decode(text, type=Receipt)
    except msgspec.DecodeError:
        return False
    return (held.old, held.new) == (receipt.old, receipt.new)


def _stats(observed: Observed, old: RayCluster, new: RayCluster) -> Upgrade | None:
    held: Upgrade | UnsetType = observed.record.upgrade
    if held is UNSET or (held.old, held.new) != (old.metadata.name, new.metadata.name):
        return None
    return held


def _failure(observed: Observed, moved: datetime | None) -> Outcome:
    if conditions.is_true(observed.service.status.conditions, ConditionType.UPGRADE_ABORTED):
        return Outcome.ABORTED
    return Outcome.CANCELLED if moved is None else Outcome.ROLLED_BACK
