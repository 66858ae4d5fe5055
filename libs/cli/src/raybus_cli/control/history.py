"""The stored specs of a RayService, and the patch by which `raybus undo` restores one of them.

service-reconciler records a spec in a ControllerRevision before it creates a cluster for the spec.
Later in-place changes, and specs of another operator, are read from the existing clusters and their
Serve configs.

Replica counts are not restored: a worker group keeps its present scale. Fields that an autoscaler
wrote on the cluster are removed.
"""

from datetime import datetime
from typing import Final, cast

import msgspec
from msgspec import structs

from common import errors, labels
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import goal_revision, revision, serve_config, spec_hash
from common.ray.goal_revision import Goal, GoalRevision
from common.upgrade import gate_record
from common.upgrade.receipt import Receipt, UpgradeOutcome, receipt_of
from raybus_cli.control.actions import ControlAction
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase, tree
from raybus_cli.show.tree import count_seconds_since

IN_PROGRESS: Final = "InProgress"
_RANKS: Final = ("active", "pending", "leaving", "gone")
"""Roles of clusters, in the order of preference if several clusters run the same spec."""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spec that a cluster of the RayService runs or once ran."""

    number: int
    """Revision number; the newest is the largest."""
    cluster: str
    """The cluster that runs the spec; empty if it is gone."""
    role: str
    replaces: int | None
    """Number of the revision that served before this one; None if it was not recorded."""
    outcome: str = ""
    """Result of the upgrade to the spec, if recorded: `Promoted`, `Aborted`, `RolledBack`,
    `Cancelled` or `InProgress`.
    """
    created: datetime | None
    image: str
    """Image of the head."""
    images: dict[str, str]
    """Image of each group."""
    ray_version: str
    worker_groups: int
    applications: list[str]
    spec_hash: str
    is_current: bool
    """Whether the spec is the present spec of the RayService."""
    age_seconds: int | None
    cluster_config: Json
    serve_config: str | None
    """The Serve config of the spec; None if it is not recorded."""


def build(snapshot: Snapshot, *, now: datetime) -> list[HistoryEntry]:
    """Return the stored revisions, oldest first."""
    configs = [
        _ClusterConfig(cluster=cluster, given=given)
        for cluster in snapshot.clusters
        for given in _list_configs(snapshot, cluster)
    ]
    entries = [_build_recorded_entry(snapshot, goal, configs, now=now) for goal in snapshot.goals]
    number = entries[-1].number if entries else 0
    for config in configs:
        if not any(config.is_config_of(record.goal) for record in snapshot.goals):
            number += 1
            entries.append(_build_entry(snapshot, config, number, now=now))
    return [
        structs.replace(entry, outcome=_decide_outcome(snapshot, entry, entries))
        for entry in entries
    ]


class _ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and one of its Serve config records; `given` is None if there is no record."""

    cluster: RayCluster
    given: revision.Revision | None

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    def is_config_of(self, goal: Goal) -> bool:
        """Return whether cluster spec and Serve config equal those of the recorded spec `goal`."""
        stamped = self.cluster.metadata.annotations.get(labels.SPEC_HASH)
        is_same_cluster = goal.spec_hash in {
            stamped,
            spec_hash.service_goal_hash(self.cluster.raw_spec),
        }
        return is_same_cluster and (
            self.given is None or self.given.data.serve_config == goal.serve_config
        )


def _list_configs(snapshot: Snapshot, cluster: RayCluster) -> list[revision.Revision | None]:
    """Return the Serve config records of a cluster, oldest first, without configs that Ray refused.

    For a cluster that does not run the RayService's present spec, only the newest record is
    returned. For a cluster without records, the list is `[None]`.
    """
    records = [
        record
        for record in revision.owned_records(cluster, list(snapshot.revisions))
        if record.outcome is not revision.SendOutcome.REFUSED
    ]
    if not records:
        return [None]
    is_goal = _ClusterConfig(cluster=cluster, given=None).is_config_of(
        goal_revision.asked_of(snapshot.service).goal
    )
    return [*reversed(records)] if is_goal else [records[0]]


def _build_recorded_entry(
    snapshot: Snapshot, record: GoalRevision, configs: list[_ClusterConfig], *, now: datetime
) -> HistoryEntry:
    matching = [config for config in configs if config.is_config_of(record.goal)]
    home = min(
        matching, key=lambda config: _RANKS.index(_find_role(snapshot, config.name)), default=None
    )
    name = home.name if home is not None else ""
    numbers = {goal.metadata.name: goal.revision for goal in snapshot.goals}
    return HistoryEntry(
        number=record.revision,
        cluster=name,
        role=_find_role(snapshot, name),
        replaces=numbers.get(record.replaces),
        created=record.metadata.creation_timestamp,
        age_seconds=count_seconds_since(record.metadata.creation_timestamp, now),
        **_derive_content(snapshot, record.goal),
    )


def _build_entry(
    snapshot: Snapshot, config: _ClusterConfig, number: int, *, now: datetime
) -> HistoryEntry:
    text = config.given.data.serve_config if config.given is not None else None
    made = config.given.metadata.creation_timestamp if config.given is not None else None
    made = made or config.cluster.metadata.creation_timestamp
    return HistoryEntry(
        number=number,
        cluster=config.name,
        role=_find_role(snapshot, config.name),
        replaces=None,
        created=made,
        age_seconds=count_seconds_since(made, now),
        **_derive_content(
            snapshot, Goal(ray_cluster_config=config.cluster.raw_spec, serve_config=text)
        ),
    )


def _derive_content(snapshot: Snapshot, goal: Goal) -> Json:
    """Return the fields of a history entry that are derived from its recorded spec, `goal`."""
    asked, config = goal_revision.asked_of(snapshot.service), goal.ray_cluster_config
    digest, used = goal.spec_hash, tree.list_images(config)
    return {
        "image": used[labels.HEAD],
        "images": used,
        "ray_version": str(config.get("rayVersion", "")),
        "worker_groups": len(cast("list[Json]", config.get("workerGroupSpecs") or [])),
        "applications": sorted(_list_applications(goal.serve_config)),
        "spec_hash": digest,
        "is_current": digest == asked.hash and goal.serve_config in {None, asked.goal.serve_config},
        "cluster_config": config,
        "serve_config": goal.serve_config,
    }


def _find_role(snapshot: Snapshot, name: str) -> str:
    if not name:
        return "gone"
    if name == snapshot.active:
        return "active"
    return "pending" if name == snapshot.pending else "leaving"


def _decide_outcome(snapshot: Snapshot, entry: HistoryEntry, entries: list[HistoryEntry]) -> str:
    """Return the result of the upgrade to the spec of `entry`.

    The result is empty if status, receipt (final record of the last upgrade) and stored revisions
    do not show it.
    """
    if entry.role == "pending" and snapshot.active:
        return IN_PROGRESS
    if entry.role == "active" or _was_replaced(entry, entries):
        return UpgradeOutcome.PROMOTED
    receipt = receipt_of(snapshot.service)
    if (
        receipt is not None
        and (entry.cluster or _find_last_cluster(snapshot, receipt, entries, entry)) == receipt.new
    ):
        return receipt.outcome
    return UpgradeOutcome.ABORTED if entry.is_current and phase.is_aborted(snapshot.service) else ""


def _was_replaced(entry: HistoryEntry, entries: list[HistoryEntry]) -> bool:
    """Return whether another entry records `entry` as the revision that served before it."""
    return any(other.replaces == entry.number for other in entries)


def _find_last_cluster(
    snapshot: Snapshot, receipt: Receipt, entries: list[HistoryEntry], entry: HistoryEntry
) -> str:
    """Return the new cluster of the last upgrade, if that upgrade failed and its spec was `entry`.

    The result is empty otherwise. A failed upgrade leaves the old cluster active and deletes the
    new one. The entry of that upgrade is the newest one that followed the active spec and that no
    cluster runs. `receipt` is the final record of the last upgrade.
    """
    if receipt.outcome is UpgradeOutcome.PROMOTED or receipt.old != snapshot.active:
        return ""
    active = {candidate.number for candidate in entries if candidate.cluster == snapshot.active}
    failed = [
        candidate.number
        for candidate in entries
        if not candidate.cluster
        and candidate.replaces in active
        and not _was_replaced(candidate, entries)
    ]
    return (
        receipt.new
        if failed and entry.number == max(failed) and snapshot.find_cluster(receipt.new) is None
        else ""
    )


def _list_applications(text: str | None) -> frozenset[str]:
    try:
        return serve_config.parse(text or "").applications
    except errors.InvalidSpec:
        return frozenset()


def describe_upgrades(snapshot: Snapshot) -> list[str]:
    """Return lines about the last upgrade (its final record) and about an upgrade in progress."""
    receipt = receipt_of(snapshot.service)
    ended = (
        []
        if receipt is None
        else [str(receipt), *(f"  {gate_record.step_text(step)}" for step in receipt.gated_steps)]
    )
    if not snapshot.active or not snapshot.pending:
        return ended
    return [*ended, f"Upgrade from {snapshot.active} to {snapshot.pending}: in progress"]


_EFFECTS: Final = {
    PlanOutcome.CREATED: ": the first cluster starts",
    PlanOutcome.NEW_CLUSTER: ": a new cluster starts",
    PlanOutcome.IN_PLACE: ": the running cluster changes in place",
    PlanOutcome.ROLLED_BACK: ": the service rolls back to its active cluster",
    PlanOutcome.NOTHING: ": no cluster changes now",
}
_SCALE = ("replicas", "minReplicas", "maxReplicas")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that restores a spec."""

    operations: list[Body]
    """JSON patch operations; the patch is rejected if the RayService was created again under the
    same name.
    """
    fields: tuple[str, ...]
    """The fields that the patch restores."""


def choose(entries: list[HistoryEntry], number: int | None, name: str) -> HistoryEntry:
    """Return the revision to restore, by default the spec that served before the present one.

    Raises `Rejected` if there is no such revision.
    """
    if number is not None:
        entry = next((candidate for candidate in entries if candidate.number == number), None)
        if entry is None:
            raise errors.Rejected(f"there is no revision {number}; see 'raybus history {name}'")
        return entry
    older = [entry for entry in entries if not entry.is_current]
    if not older:
        raise errors.Rejected(
            f"no earlier spec of RayService {name} is stored ({labels.HISTORY_LIMIT} sets how "
            "many are); apply the manifest that "
            "you want back"
        )
    current = next((entry for entry in entries if entry.is_current), None)
    if current is None:
        return next((entry for entry in reversed(older) if entry.role == "active"), older[-1])
    since = [
        entry
        for entry in older
        if entry.number > current.number and entry.cluster == current.cluster
    ]
    if since:  # the Serve config changed more than once on the same cluster
        return since[-1]
    return next((entry for entry in older if entry.number == current.replaces), older[-1])


def change(service: RayService, entry: HistoryEntry) -> Change:
    """Build the patch that restores an earlier spec.

    Raises `Rejected` if the RayService has that spec already, `Invariant` if the stored spec would
    not result in the recorded hash.
    """
    config = _restore_scale(entry.cluster_config, service.raw_cluster_config)
    if spec_hash.service_goal_hash(config) != entry.spec_hash:
        raise errors.Invariant(
            f"the spec of revision {entry.number} cannot be restored as it was; apply your manifest"
        )
    operations: list[Body] = [
        {"op": "test", "path": "/metadata/uid", "value": service.metadata.uid}
    ]
    changed: list[str] = []
    if config != service.raw_cluster_config:
        operations.append({"op": "replace", "path": "/spec/rayClusterConfig", "value": config})
        changed.append("spec.rayClusterConfig")
    if entry.serve_config is not None and entry.serve_config != service.raw_spec.get(
        "serveConfigV2"
    ):
        operations.append({"op": "add", "path": "/spec/serveConfigV2", "value": entry.serve_config})
        changed.append("spec.serveConfigV2")
    if not changed:
        raise errors.Rejected(
            f"RayService {service.metadata.name} asks for revision {entry.number} already"
        )
    return Change(operations=operations, fields=tuple(changed))


def describe_change(
    change: Change, entry: HistoryEntry, outcome: PlanOutcome, *, is_done: bool
) -> str:
    """Describe the restored fields and the planned effect (`outcome`).

    Unless `is_done`, the text says that it was a dry run.
    """
    verb = ("is" if len(change.fields) == 1 else "are") if is_done else "would be"
    effect = _EFFECTS.get(outcome, "")
    if outcome is PlanOutcome.ROLLED_BACK and entry.cluster:
        effect = f": the service rolls back to RayCluster {entry.cluster}"
    kept = "" if entry.serve_config is not None else "; its Serve config is unknown and stays"
    start = "" if is_done else "dry run: nothing is changed; "
    return (
        f"{start}{' and '.join(change.fields)} {verb} restored from revision "
        f"{entry.number}{effect}{kept}"
    )


def build_action(note: str, generation: int, *, is_dry_run: bool) -> ControlAction:
    """Return the action of `raybus undo`, which is done when raybus observes the new generation."""
    return ControlAction(
        annotations={},
        effect="rolled back",
        note=note,
        is_dry_run=is_dry_run,
        is_done=lambda later: later.status.observed_generation >= generation,
    )


def _restore_scale(config: Json, goal: Json) -> Json:
    wanted = {str(group.get("groupName")): group for group in _list_groups(goal)}
    groups = [
        _restore_group_scale(group, wanted.get(str(group.get("groupName"))))
        for group in _list_groups(config)
    ]
    kept: Json = {"suspend": goal["suspend"]} if "suspend" in goal else {}
    without = {key: value for key, value in config.items() if key != "suspend"}
    return {
        **without,
        **({"workerGroupSpecs": groups} if "workerGroupSpecs" in config else {}),
        **kept,
    }


def _restore_group_scale(group: Json, wanted: Json | None) -> Json:
    """Return a worker group of an earlier spec with the scale of the present group (`wanted`).

    `wanted` is None if the present spec has no group of that name. Fields that an autoscaler wrote
    are removed.
    """
    recorded: Json = group.get("scaleStrategy") or {}
    strategy = {key: value for key, value in recorded.items() if key != "workersToDelete"}
    kept = {key: value for key, value in group.items() if key != "scaleStrategy"}
    if "scaleStrategy" in group:
        kept["scaleStrategy"] = strategy
    if wanted is None:
        return kept
    scale = {key: wanted[key] for key in _SCALE if key in wanted}
    return {**{key: value for key, value in kept.items() if key not in _SCALE}, **scale}


def _list_groups(config: Json) -> list[Json]:
    return cast("list[Json]", config.get("workerGroupSpecs") or [])
