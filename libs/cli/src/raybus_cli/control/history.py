"""The specs that a RayService had, as far as they are kept.

service-reconciler records one in a ControllerRevision before it makes a cluster for it. What changed in place since then, and what
another operator left behind, is read off the clusters that are there, each with what it was given.
"""

from datetime import datetime
from typing import Final, cast

import msgspec

from common import annotation_record, errors, labels, spec_hash
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import revision, serve_config
from common.upgrade_receipt import Receipt
from raybus_cli.reading.look import Look
from raybus_cli.show.tree import seconds_since
from service_reconciler.resources import goal_revision
from service_reconciler.resources.goal_revision import Goal, GoalRevision

_RANKS: Final = ("active", "pending", "leaving", "gone")
"""Which cluster is named where several run the same."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spec that a cluster of this RayService has or had."""

    number: int
    """Newest is greatest."""
    cluster: str
    """Which one runs it; empty when it is gone."""
    role: str
    replaces: int | None
    """The one that served before it, where that is recorded."""
    image: str
    ray_version: str
    worker_groups: int
    applications: list[str]
    spec_hash: str
    is_current: bool
    """Whether the RayService asks for just this."""
    age_seconds: int | None
    cluster_config: Json
    serve_config: str | None
    """None when nobody recorded it."""


def build(look: Look, *, now: datetime) -> list[Entry]:
    """Return what is kept, oldest first."""
    held = [_Held(cluster=cluster, given=given) for cluster in look.clusters for given in _given(look, cluster)]
    found = [_recorded(look, each, held, now=now) for each in look.goals]
    number = found[-1].number if found else 0
    for each in held:
        if not any(each.runs(record.goal) for record in look.goals):
            number += 1
            found.append(_entry(look, each, number, now=now))
    return found


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with something that it was given."""

    cluster: RayCluster
    given: revision.Revision | None

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    def runs(self, goal: Goal) -> bool:
        """Tell whether this is what a recorded spec asks for."""
        stamped = self.cluster.metadata.annotations.get(labels.SPEC_HASH)
        is_same_cluster = goal.spec_hash in {stamped, spec_hash.service_goal_hash(self.cluster.raw_spec)}
        return is_same_cluster and (self.given is None or self.given.data.serve_config == goal.serve_config)


def _given(look: Look, cluster: RayCluster) -> list[revision.Revision | None]:
    """Return what a cluster was given, oldest first; of one that does not run the goal, only what it has now."""
    records = [
        each for each in revision.of(cluster, list(look.revisions)) if each.outcome is not revision.Outcome.REFUSED
    ]
    if not records:
        return [None]
    is_goal = _Held(cluster=cluster, given=None).runs(goal_revision.asked_of(look.service).goal)
    return [*reversed(records)] if is_goal else [records[0]]


def _recorded(look: Look, record: GoalRevision, held: list[_Held], *, now: datetime) -> Entry:
    found = [each for each in held if each.runs(record.goal)]
    home = min(found, key=lambda each: _RANKS.index(_role(look, each.name)), default=None)
    name = home.name if home is not None else ""
    numbers = {each.metadata.name: each.revision for each in look.goals}
    return Entry(
        number=record.revision,
        cluster=name,
        role=_role(look, name),
        replaces=numbers.get(record.replaces),
        age_seconds=seconds_since(record.metadata.creation_timestamp, now),
        **_content(look, record.goal),
    )


def _entry(look: Look, held: _Held, number: int, *, now: datetime) -> Entry:
    text = held.given.data.serve_config if held.given is not None else None
    made = held.given.metadata.creation_timestamp if held.given is not None else None
    return Entry(
        number=number,
        cluster=held.name,
        role=_role(look, held.name),
        replaces=None,
        age_seconds=seconds_since(made or held.cluster.metadata.creation_timestamp, now),
        **_content(look, Goal(ray_cluster_config=held.cluster.raw_spec, serve_config=text)),
    )


def _content(look: Look, goal: Goal) -> Json:
    """Return what an entry says of a spec."""
    asked, config = goal_revision.asked_of(look.service), goal.ray_cluster_config
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


def _role(look: Look, name: str) -> str:
    if not name:
        return "gone"
    if name == look.active:
        return "active"
    return "pending" if name == look.pending else "leaving"


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


def receipt(service: RayService) -> str | None:
    """Return what the last upgrade came to, in words; None when there was none, or somebody wrote something else there."""
    held = annotation_record.decode(service.metadata.annotations.get(labels.UPGRADE_RECEIPT, ""), Receipt)
    return None if held is None else str(held)
