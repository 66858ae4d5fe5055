"""The record as it should be: what each cluster has, and when that last changed (ADR 1)."""

from datetime import datetime

import msgspec

from common.api.meta import ObjectMeta
from common.traffic_record import Record, Share


def share(record: Record, cluster: ObjectMeta, default: Share) -> Share:
    """Return a cluster's part as recorded; one that was made again under its name has nothing of what it had."""
    found = record.clusters.get(cluster.name, default)
    part = found if found.uid in {"", cluster.uid} else default
    return msgspec.structs.replace(part, uid=cluster.uid)


def weighed(old: Share, weight: int, *, now: datetime) -> Share:
    """Return a part with a weight; the time of its last move changes only with it."""
    if old.weight == weight and old.moved_at is not None:
        return old
    return msgspec.structs.replace(old, weight=weight, moved_at=now)


def of(old: Record, clusters: dict[str, Share], *, now: datetime) -> Record:
    """Return the record of these clusters and no others."""
    numbers = {name: (each.capacity, each.weight) for name, each in clusters.items()}
    before = {name: (each.capacity, each.weight) for name, each in old.clusters.items()}
    changed_at = old.changed_at if numbers == before else now
    return Record(clusters=clusters, changed_at=changed_at)
