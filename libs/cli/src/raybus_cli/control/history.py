"""The stored specs of a RayService, and the patch by which `raybus undo` restores one.

service-reconciler records a spec in a ControllerRevision before it creates a cluster for it. Later
in-place changes, and specs of another operator, are read from the existing clusters and their Serve
configs.

Replica counts are not restored: a group keeps the scale of the RayService's group of the same name,
and fields that an autoscaler wrote on the cluster are removed.
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
from common.upgrade.receipt import Outcome, Receipt, receipt_of
from raybus_cli.control.actions import Action
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase, tree
from raybus_cli.show.tree import seconds_since

IN_PROGRESS: Final = "InProgress"
_RANKS: Final = ("active", "pending", "leaving", "gone")
"""Order of preference of the clusters that run the same spec."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spec that a cluster of the RayService has or had."""

    number: int
    """Revision number; the newest is the largest."""
    cluster: str
    """The cluster that runs the spec; empty if it is gone."""
    role: str
    replaces: int | None
    """Number of the revision that served before, if recorded."""
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
    """Whether the spec is the RayService's present one."""
    age_seconds: int | None
    cluster_config: Json
    serve_config: str | None
    """None if the Serve config is not recorded."""


def build(snapshot: Snapshot, *, now: datetime) -> list[Entry]:
    """Return the stored revisions, oldest first."""
    held = [
        _Held(cluster=cluster, given=given)
        for cluster in snapshot.clusters
        for given in _given(snapshot, cluster)
    ]
    found = [_recorded(snapshot, each, held, now=now) for each in snapshot.goals]
    number = found[-1].number if found else 0
    for each in held:
        if not any(each.runs(record.goal) for record in snapshot.goals):
            number += 1
            found.append(_entry(snapshot, each, number, now=now))
    return [structs.replace(each, outcome=_outcome(snapshot, each, found)) for each in found]


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and one of its Serve config records."""

    cluster: RayCluster
    given: revision.Revision | None

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    def runs(self, goal: Goal) -> bool:
        """Return whether the cluster spec and the Serve config are those of a recorded spec."""
        stamped = self.cluster.metadata.annotations.get(labels.SPEC_HASH)
        is_same_cluster = goal.spec_hash in {
            stamped,
            spec_hash.service_goal_hash(self.cluster.raw_spec),
        }
        return is_same_cluster and (
            self.given is None or self.given.data.serve_config == goal.serve_config
        )


def _given(snapshot: Snapshot, cluster: RayCluster) -> list[revision.Revision | None]:
    """Return the Serve config records of a cluster, oldest first, without refused ones.

    Only the newest record is returned for a cluster that does not run the RayService's spec. The
    list is `[None]` for a cluster without records.
    """
    records = [
        each
        for each in revision.owned_records(cluster, list(snapshot.revisions))
        if each.outcome is not revision.Outcome.REFUSED
    ]
    if not records:
        return [None]
    is_goal = _Held(cluster=cluster, given=None).runs(goal_revision.asked_of(snapshot.service).goal)
    return [*reversed(records)] if is_goal else [records[0]]


def _recorded(
    snapshot: Snapshot, record: GoalRevision, held: list[_Held], *, now: datetime
) -> Entry:
    found = [each for each in held if each.runs(record.goal)]
    home = min(found, key=lambda each: _RANKS.index(_role(snapshot, each.name)), default=None)
    name = home.name if home is not None else ""
    numbers = {each.metadata.name: each.revision for each in snapshot.goals}
    return Entry(
        number=record.revision,
        cluster=name,
        role=_role(snapshot, name),
        replaces=numbers.get(record.replaces),
        created=record.metadata.creation_timestamp,
        age_seconds=seconds_since(record.metadata.creation_timestamp, now),
        **_content(snapshot, record.goal),
    )


def _entry(snapshot: Snapshot, held: _Held, number: int, *, now: datetime) -> Entry:
    text = held.given.data.serve_config if held.given is not None else None
    made = held.given.metadata.creation_timestamp if held.given is not None else None
    made = made or held.cluster.metadata.creation_timestamp
    return Entry(
        number=number,
        cluster=held.name,
        role=_role(snapshot, held.name),
        replaces=None,
        created=made,
        age_seconds=seconds_since(made, now),
        **_content(snapshot, Goal(ray_cluster_config=held.cluster.raw_spec, serve_config=text)),
    )


def _content(snapshot: Snapshot, goal: Goal) -> Json:
    """Return the fields of an entry that are derived from its spec."""
    asked, config = goal_revision.asked_of(snapshot.service), goal.ray_cluster_config
    digest, used = goal.spec_hash, tree.images_of(config)
    return {
        "image": used[labels.HEAD],
        "images": used,
        "ray_version": str(config.get("rayVersion", "")),
        "worker_groups": len(cast("list[Json]", config.get("workerGroupSpecs") or [])),
        "applications": sorted(_applications(goal.serve_config)),
        "spec_hash": digest,
        "is_current": digest == asked.hash and goal.serve_config in {None, asked.goal.serve_config},
        "cluster_config": config,
        "serve_config": goal.serve_config,
    }


def _role(snapshot: Snapshot, name: str) -> str:
    if not name:
        return "gone"
    if name == snapshot.active:
        return "active"
    return "pending" if name == snapshot.pending else "leaving"


def _outcome(snapshot: Snapshot, entry: Entry, entries: list[Entry]) -> str:
    """Return the result of the upgrade to a spec.

    It is empty if status, receipt and records do not show a result.
    """
    if entry.role == "pending" and snapshot.active:
        return IN_PROGRESS
    if entry.role == "active" or _was_replaced(entry, entries):
        return Outcome.PROMOTED
    held = receipt_of(snapshot.service)
    if (
        held is not None
        and (entry.cluster or _last_cluster(snapshot, held, entries, entry)) == held.new
    ):
        return held.outcome
    return Outcome.ABORTED if entry.is_current and phase.is_aborted(snapshot.service) else ""


def _was_replaced(entry: Entry, entries: list[Entry]) -> bool:
    """Return whether a later record says that it replaced this spec."""
    return any(each.replaces == entry.number for each in entries)


def _last_cluster(snapshot: Snapshot, receipt: Receipt, entries: list[Entry], entry: Entry) -> str:
    """Return the cluster that the last upgrade created for an entry, if it failed; else "".

    A failed upgrade leaves the old cluster active and deletes the new one. So its entry is the
    newest one that was to replace the active spec and that no cluster has now.
    """
    if receipt.outcome is Outcome.PROMOTED or receipt.old != snapshot.active:
        return ""
    active = {each.number for each in entries if each.cluster == snapshot.active}
    failed = [
        each.number
        for each in entries
        if not each.cluster and each.replaces in active and not _was_replaced(each, entries)
    ]
    return (
        receipt.new
        if failed and entry.number == max(failed) and snapshot.cluster(receipt.new) is None
        else ""
    )


def _applications(text: str | None) -> frozenset[str]:
    try:
        return serve_config.read(text or "").applications
    except errors.InvalidSpec:
        return frozenset()


def upgrades(snapshot: Snapshot) -> list[str]:
    """Describe the last upgrade, if its receipt can be read, and the upgrade in progress."""
    held = receipt_of(snapshot.service)
    ended = (
        []
        if held is None
        else [str(held), *(f"  {gate_record.step_text(each)}" for each in held.gated_steps)]
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


def choose(entries: list[Entry], number: int | None, name: str) -> Entry:
    """Return the revision to restore, by default the spec that served before the present one.

    Raises `Rejected` if there is no such revision.
    """
    if number is not None:
        found = next((each for each in entries if each.number == number), None)
        if found is None:
            raise errors.Rejected(f"there is no revision {number}; see 'raybus history {name}'")
        return found
    older = [each for each in entries if not each.is_current]
    if not older:
        raise errors.Rejected(
            f"no earlier spec of RayService {name} is stored ({labels.HISTORY_LIMIT} sets how "
            "many are); apply the manifest that "
            "you want back"
        )
    current = next((each for each in entries if each.is_current), None)
    if current is None:
        return next((each for each in reversed(older) if each.role == "active"), older[-1])
    since = [
        each for each in older if each.number > current.number and each.cluster == current.cluster
    ]
    if since:  # the Serve config changed more than once on the same cluster
        return since[-1]
    return next((each for each in older if each.number == current.replaces), older[-1])


def change(service: RayService, entry: Entry) -> Change:
    """Build the patch that restores an earlier spec.

    Raises `Rejected` if the RayService has that spec already, `Invariant` if the stored spec would
    not result in the recorded hash.
    """
    config = _restored(entry.cluster_config, service.raw_cluster_config)
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


def message(change: Change, entry: Entry, outcome: PlanOutcome, *, is_done: bool) -> str:
    """Describe the restored fields and the planned effect."""
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


def action(note: str, generation: int, *, is_dry_run: bool) -> Action:
    """Return the action of an undo; it is done when raybus has observed the new generation."""
    return Action(
        annotations={},
        effect="rolled back",
        note=note,
        is_dry_run=is_dry_run,
        is_done=lambda later: later.status.observed_generation >= generation,
    )


def _restored(config: Json, goal: Json) -> Json:
    wanted = {str(each.get("groupName")): each for each in _groups(goal)}
    groups = [_rescaled(each, wanted.get(str(each.get("groupName")))) for each in _groups(config)]
    kept: Json = {"suspend": goal["suspend"]} if "suspend" in goal else {}
    without = {key: value for key, value in config.items() if key != "suspend"}
    return {
        **without,
        **({"workerGroupSpecs": groups} if "workerGroupSpecs" in config else {}),
        **kept,
    }


def _rescaled(group: Json, wanted: Json | None) -> Json:
    """Return a group of an earlier spec with the scale of the RayService's present group.

    Fields that an autoscaler wrote are removed.
    """
    held: Json = group.get("scaleStrategy") or {}
    strategy = {key: value for key, value in held.items() if key != "workersToDelete"}
    kept = {key: value for key, value in group.items() if key != "scaleStrategy"}
    if "scaleStrategy" in group:
        kept["scaleStrategy"] = strategy
    if wanted is None:
        return kept
    scale = {key: wanted[key] for key in _SCALE if key in wanted}
    return {**{key: value for key, value in kept.items() if key not in _SCALE}, **scale}


def _groups(config: Json) -> list[Json]:
    return cast("list[Json]", config.get("workerGroupSpecs") or [])
