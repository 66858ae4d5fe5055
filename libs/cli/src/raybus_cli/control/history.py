"""The earlier specs of a RayService, as far as they are stored.

service-reconciler records one in a ControllerRevision before it makes a cluster for it. Later changes in place, and specs of
another operator, are read from the existing clusters and their Serve configs.
"""

from datetime import datetime
from typing import Final, cast

import msgspec

from common import annotation_record, errors, labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.ray import goal_revision, revision, serve_config, spec_hash
from common.ray.goal_revision import Goal, GoalRevision
from common.upgrade.receipt import Receipt
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show.tree import seconds_since

_RANKS: Final = ("active", "pending", "leaving", "gone")
"""The order in which a cluster is named where several run the same spec."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spec that a cluster of this RayService has or had."""

    number: int
    """Newest is greatest."""
    cluster: str
    """The cluster that runs it; empty when it is gone."""
    role: str
    replaces: int | None
    """The entry that served before it, where that is recorded."""
    image: str
    ray_version: str
    worker_groups: int
    applications: list[str]
    spec_hash: str
    is_current: bool
    """Whether it is the spec of the RayService."""
    age_seconds: int | None
    cluster_config: Json
    serve_config: str | None
    """None when it is not recorded."""


def build(snapshot: Snapshot, *, now: datetime) -> list[Entry]:
    """Return what is kept, oldest first."""
    held = [_Held(cluster=cluster, given=given) for cluster in snapshot.clusters for given in _given(snapshot, cluster)]
    found = [_recorded(snapshot, each, held, now=now) for each in snapshot.goals]
    number = found[-1].number if found else 0
    for each in held:
        if not any(each.runs(record.goal) for record in snapshot.goals):
            number += 1
            found.append(_entry(snapshot, each, number, now=now))
    return found


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with something that it was given."""

    cluster: RayCluster
    given: revision.Revision | None

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    def runs(self, goal: Goal) -> bool:
        """Return whether this is the content of a recorded spec."""
        stamped = self.cluster.metadata.annotations.get(labels.SPEC_HASH)
        is_same_cluster = goal.spec_hash in {stamped, spec_hash.service_goal_hash(self.cluster.raw_spec)}
        return is_same_cluster and (self.given is None or self.given.data.serve_config == goal.serve_config)


def _given(snapshot: Snapshot, cluster: RayCluster) -> list[revision.Revision | None]:
    """Return what a cluster was given, oldest first; of one that does not run the goal, only what it has now."""
    records = [
        each for each in revision.of(cluster, list(snapshot.revisions)) if each.outcome is not revision.Outcome.REFUSED
    ]
    if not records:
        return [None]
    is_goal = _Held(cluster=cluster, given=None).runs(goal_revision.asked_of(snapshot.service).goal)
    return [*reversed(records)] if is_goal else [records[0]]


def _recorded(snapshot: Snapshot, record: GoalRevision, held: list[_Held], *, now: datetime) -> Entry:
    found = [each for each in held if each.runs(record.goal)]
    home = min(found, key=lambda each: _RANKS.index(_role(snapshot, each.name)), default=None)
    name = home.name if home is not None else ""
    numbers = {each.metadata.name: each.revision for each in snapshot.goals}
    return Entry(
        number=record.revision,
        cluster=name,
        role=_role(snapshot, name),
        replaces=numbers.get(record.replaces),
        age_seconds=seconds_since(record.metadata.creation_timestamp, now),
        **_content(snapshot, record.goal),
    )


def _entry(snapshot: Snapshot, held: _Held, number: int, *, now: datetime) -> Entry:
    text = held.given.data.serve_config if held.given is not None else None
    made = held.given.metadata.creation_timestamp if held.given is not None else None
    return Entry(
        number=number,
        cluster=held.name,
        role=_role(snapshot, held.name),
        replaces=None,
        age_seconds=seconds_since(made or held.cluster.metadata.creation_timestamp, now),
        **_content(snapshot, Goal(ray_cluster_config=held.cluster.raw_spec, serve_config=text)),
    )


def _content(snapshot: Snapshot, goal: Goal) -> Json:
    """Return the fields of an entry that come from its spec."""
    asked, config = goal_revision.asked_of(snapshot.service), goal.ray_cluster_config
    digest = goal.spec_hash
    return {
        "image": _image(config),
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


def _image(config: Json) -> str:
    head: Json = config.get("headGroupSpec") or {}
    template: Json = head.get("template") or {}
    spec: Json = template.get("spec") or {}
    containers = cast("list[Json]", spec.get("containers") or [])
    return str(containers[0].get("image", "")) if containers else ""


def _applications(text: str | None) -> frozenset[str]:
    try:
        return serve_config.applications(text or "")
    except errors.InvalidSpec:
        return frozenset()


def upgrades(snapshot: Snapshot) -> list[str]:
    """Return a sentence about the last upgrade that ended, where its receipt can be read, and one about the upgrade in progress."""
    text = snapshot.service.metadata.annotations.get(labels.UPGRADE_RECEIPT, "")
    held = annotation_record.decode(text, Receipt)
    ended = [] if held is None else [str(held)]
    if not snapshot.active or not snapshot.pending:
        return ended
    return [*ended, f"Upgrade from {snapshot.active} to {snapshot.pending}: in progress"]
