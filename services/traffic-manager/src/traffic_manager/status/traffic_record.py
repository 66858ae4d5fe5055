"""The desired traffic record: capacity and weight of each cluster, with times (ADR 1)."""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import UNSET

from common.api.meta import SKEW, ObjectMeta
from common.upgrade import gate_record
from common.upgrade.candidate import Candidate
from common.upgrade.traffic_record import ClusterTraffic, Record, RecordedUpgrade
from traffic_manager.migration.progression import Judgement
from traffic_manager.observed import Observed
from traffic_manager.status import gates


def without_future_times(record: Record, *, now: datetime) -> Record:
    """Return the record without times in the future, which would delay an upgrade.

    Such times stem from a clock that has been set back since.
    """
    latest = now + SKEW
    clusters: dict[str, ClusterTraffic] = {}
    for name, part in record.clusters.items():
        moved_at = None if part.moved_at and part.moved_at > latest else part.moved_at
        config_at = UNSET if part.config_at and part.config_at > latest else part.config_at
        clusters[name] = msgspec.structs.replace(part, moved_at=moved_at, config_at=config_at)
    changed_at = None if record.changed_at and record.changed_at > latest else record.changed_at
    return msgspec.structs.replace(record, clusters=clusters, changed_at=changed_at)


def get_traffic(record: Record, cluster: ObjectMeta, default: ClusterTraffic) -> ClusterTraffic:
    """Return a cluster's entry in the traffic record, or `default` if the record has none.

    A new cluster with the name of a deleted cluster gets `default`, too.
    """
    share = record.clusters.get(cluster.name, default)
    part = share if share.uid in {"", cluster.uid} else default
    return msgspec.structs.replace(part, uid=cluster.uid)


def adopt_config(
    record: Record, pending: ObjectMeta, candidate: Candidate, *, keeps_failure: bool, now: datetime
) -> Record | None:
    """Return the record after the pending cluster got a new Serve config; None if it got none.

    The weights stay. Waiting times, gate results and the end of mirroring belong to the earlier
    config, so they are reset (ADR 40). A recorded failure of a gate is cleared, too. With
    `keeps_failure` the failure stays: the policy rolls back after a failed gate, and a new config
    does not stop the rollback.
    """
    part = record.clusters.get(pending.name)
    if part is None or part.uid not in {"", pending.uid} or part.config == candidate.config:
        return None
    upgrade, is_first = record.upgrade, part.config is UNSET and part.weight == 0
    part = msgspec.structs.replace(part, uid=pending.uid, config=candidate.config, config_at=now)
    clusters = {**record.clusters, pending.name: part}
    if upgrade is UNSET or is_first or upgrade.new != pending.name:
        return msgspec.structs.replace(record, clusters=clusters)
    failed = upgrade.failed if keeps_failure else UNSET
    upgrade = msgspec.structs.replace(
        upgrade, failed=failed, mirrored=UNSET, lacking=UNSET, sheds=UNSET, shed_at=UNSET
    )
    if (current := upgrade.gates) is not UNSET:
        over = gate_record.bounded((*(upgrade.steps or ()), gate_record.closed(current)))
        begun = gates.begin_step(current.gates, part.weight, now=now)
        upgrade = msgspec.structs.replace(upgrade, steps=over, gates=begun)
    return msgspec.structs.replace(record, clusters=clusters, upgrade=upgrade, changed_at=now)


def set_weight(
    old: ClusterTraffic, weight: int, *, now: datetime, is_followed: bool, is_shed: bool = False
) -> ClusterTraffic:
    """Return the record entry `old` with a new weight and, if it changed, the time of the move.

    `is_followed` tells whether the Gateways have applied the current route; if not, they may still
    send the earlier weights. `is_shed` tells whether the cluster loses traffic because of its
    health; the time of the loss stays recorded until the weight grows again.
    """
    if old.weight == weight and old.moved_at is not None:
        return old
    most = max(weight, old.weight if is_followed else get_max_sent_weight(old))
    sent_at_most = UNSET if most == weight else most
    shed_at = (
        now if is_shed and weight < old.weight else UNSET if weight > old.weight else old.shed_at
    )
    return msgspec.structs.replace(
        old, weight=weight, moved_at=now, sent=sent_at_most, shed_at=shed_at
    )


def get_max_sent_weight(share: ClusterTraffic) -> int:
    """Return the largest weight that a Gateway may apply until it has applied the current route."""
    return share.weight if share.sent is UNSET else max(share.weight, share.sent)


def get_numbers(clusters: Mapping[str, ClusterTraffic]) -> dict[str, tuple[int, int]]:
    """Return capacity and weight of each cluster, by its name."""
    return {name: (cluster.capacity, cluster.weight) for name, cluster in clusters.items()}


def build_record(
    observed: Observed,
    clusters: Mapping[str, ClusterTraffic],
    *,
    now: datetime,
    judged: Judgement | None = None,
) -> Record:
    """Return the traffic record for exactly these clusters; two clusters are an upgrade.

    `judged` are the new results of the gates; with None the recorded results stay.
    """
    old = observed.record
    upgrade = (
        _update_upgrade(observed, clusters, judged, now=now) if len(clusters) > 1 else old.upgrade
    )
    is_failed = (
        upgrade is not UNSET and old.upgrade is not UNSET and upgrade.failed != old.upgrade.failed
    )
    changed_at = (
        old.changed_at
        if get_numbers(clusters) == get_numbers(old.clusters) and not is_failed
        else now
    )
    return Record(
        clusters=dict(clusters), changed_at=changed_at, upgrade=upgrade, overwritten=old.overwritten
    )


def is_current(new: Record, recorded: Record, *, shows_gates: bool, now: datetime) -> bool:
    """Return whether the stored record already has everything in `new` that decisions depend on.

    With `shows_gates`, changed gate results that users should see count too (`gates.is_due`).
    """
    if (new.clusters, _get_outcomes(new)) != (recorded.clusters, _get_outcomes(recorded)):
        return False
    if not (shows_gates and new.upgrade and recorded.upgrade and new.upgrade.gates):
        return True
    return not gates.is_due(recorded.upgrade.gates or None, new.upgrade.gates, now=now)


def _get_outcomes(record: Record) -> tuple[str | None, bool]:
    upgrade = record.upgrade
    return (upgrade and upgrade.failed) or None, bool(upgrade and upgrade.mirrored)


def _update_upgrade(
    observed: Observed,
    clusters: Mapping[str, ClusterTraffic],
    judged: Judgement | None,
    *,
    now: datetime,
) -> RecordedUpgrade:
    """Return the recorded upgrade, updated by this change of the clusters' entries."""
    total = sum(cluster.capacity for cluster in clusters.values())
    was, share = (
        shares.get(observed.pending_name) for shares in (observed.record.clusters, clusters)
    )
    best = 0 if share is None else share.weight
    upgrade = observed.upgrade
    if upgrade is None:
        upgrade = RecordedUpgrade(
            old=observed.active_name,
            new=observed.pending_name,
            began_at=now,
            max_capacity=total,
            min_capacity=total,
        )
    if best > (upgrade.max_weight or 0):
        upgrade = msgspec.structs.replace(upgrade, max_weight=best, sheds=UNSET, shed_at=UNSET)
    if any(cluster.shed_at == cluster.moved_at == now for cluster in clusters.values()):
        upgrade = msgspec.structs.replace(
            upgrade, sheds=(upgrade.sheds or 0) + 1, shed_at=upgrade.shed_at or now
        )
    upgrade = _record_gate_results(upgrade, was, share, judged, now=now)
    return msgspec.structs.replace(
        upgrade,
        max_capacity=max(upgrade.max_capacity, total),
        min_capacity=min(upgrade.min_capacity, total),
        moved_at=upgrade.moved_at or (now if best > 0 else None),
        failed=upgrade.failed if judged is None else judged.failed or upgrade.failed,
        mirrored=True if judged is not None and judged.has_mirrored else upgrade.mirrored,
    )


def _record_gate_results(
    upgrade: RecordedUpgrade,
    was: ClusterTraffic | None,
    share: ClusterTraffic | None,
    judged: Judgement | None,
    *,
    now: datetime,
) -> RecordedUpgrade:
    """Return the recorded upgrade with new gate results and the target weight of a traffic move.

    `was` and `share` are the pending cluster's entries in the traffic record before and after this
    write. The gate results belong to the weight before the write. If the weight changes, they
    become results of an earlier step.
    """
    current = upgrade.gates or None
    weight, since = (0, None) if was is None else (was.weight, was.same_since)
    if judged is not None and share is not None and share.weight > weight:
        upgrade = msgspec.structs.replace(
            upgrade, aim=share.weight if judged.aim is None else judged.aim
        )
    if judged is not None and judged.results:
        waits = judged.lacking is not None
        current = gates.update_step(
            current, judged.results, weight, since or upgrade.began_at, waits=waits, now=now
        )
        upgrade = msgspec.structs.replace(upgrade, gates=current, lacking=judged.lacking or UNSET)
    if current is None or share is None or current.weight == share.weight:
        return upgrade
    over = gate_record.bounded((*(upgrade.steps or ()), gate_record.closed(current)))
    is_back = judged is None or share.weight == 0
    next_step = UNSET if is_back else gates.begin_step(current.gates, share.weight, now=now)
    return msgspec.structs.replace(upgrade, gates=next_step, steps=over, lacking=UNSET)
