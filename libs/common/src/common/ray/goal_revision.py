"""ControllerRevisions that record the specs of a RayService: the history for `raybus undo`.

The RayService owns these records, so they outlive its old clusters and are deleted with the
RayService. A record's name is derived from its content, as with a Deployment's ReplicaSet. If the
user returns to a spec, its record is reused with a new revision number. The Serve configs that were
sent to a cluster are recorded separately and owned by the cluster (`common.ray.revision`).
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from common import labels
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import owner, revision, spec_hash

REPLACES: Final = "raybus.io/replaces"
"""Annotation of a record with the name of the record whose spec was served before."""


class Goal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a RayService's spec that determines the RayCluster and the Serve config."""

    ray_cluster_config: Json = {}
    serve_config: str | None = msgspec.field(default=None, name="serveConfigV2")
    """The Serve config; None if it is unknown which config the cluster serves."""

    @property
    def spec_hash(self) -> str:
        return spec_hash.service_goal_hash(self.ray_cluster_config)


class HashedGoal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal, with its spec hash as in the annotation of the clusters created for the goal."""

    goal: Goal
    hash: str


class RevisionData(msgspec.Struct, frozen=True):
    """The content of a record. Applied as a merge patch, it restores the goal of the RayService."""

    spec: Goal = Goal()


class GoalRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a RayService's goal, as read from the API server."""

    metadata: ObjectMeta
    data: RevisionData = RevisionData()
    revision: int = 0

    @property
    def goal(self) -> Goal:
        return self.data.spec

    @property
    def replaces(self) -> str:
        """Return the name of the record whose spec was served before this one; "" if unknown."""
        return self.metadata.annotations.get(REPLACES, "")


def asked_of(service: RayService) -> HashedGoal:
    """Return the goal in the present spec of a RayService."""
    goal = Goal(
        ray_cluster_config=service.raw_cluster_config, serve_config=service.spec.serve_config_v2
    )
    return HashedGoal(goal=goal, hash=goal.spec_hash)


def served_by(cluster: RayCluster, serve_config: str | None) -> HashedGoal:
    """Return the goal for which a cluster was created.

    The hash is taken from the cluster's annotation, if it has one. A hash computed from the
    cluster's spec may differ, because the API server may have added defaults.
    """
    goal = Goal(ray_cluster_config=cluster.raw_spec, serve_config=serve_config)
    return HashedGoal(
        goal=goal, hash=cluster.metadata.annotations.get(labels.SPEC_HASH) or goal.spec_hash
    )


def marks(service: str) -> dict[str, str]:
    """Return the labels of the goal records of the RayService with the name `service`."""
    return {**owner.marks(service), revision.RECORD: "goal"}


def owned_revisions(service: ObjectMeta, revisions: Iterable[GoalRevision]) -> list[GoalRevision]:
    """Return the records that this RayService owns, oldest first.

    Records of an earlier RayService with the same name are left out.
    """
    return sorted(
        (revision for revision in revisions if owner.owns(service, revision.metadata)),
        key=lambda revision: revision.revision,
    )


def name(service: ObjectMeta, spec: HashedGoal) -> str:
    """Return the name of the record of `spec`, a goal of the RayService."""
    served = spec.goal.serve_config
    text = "\n".join((service.uid, spec.hash, "unknown" if served is None else f"={served}"))
    return f"{service.name}-goal-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def build(service: ObjectMeta, spec: HashedGoal, number: int, *, replaces: str) -> Body:
    """Build the record of `spec`; the record with the highest number is the newest.

    `replaces` is the name of the record of the spec that was served before; empty if unknown.
    """
    noted = {"labels": marks(service.name), "annotations": {REPLACES: replaces} if replaces else {}}
    return revision.record(
        service, name(service, spec), number, RevisionData(spec=spec.goal), noted, kind=owner.KIND
    )


def renewal(have: GoalRevision, number: int, *, replaces: str) -> Body:
    """Build the merge patch that makes an existing record the newest when its spec is used again.

    `number` and `replaces` have the same meaning as in `build`.
    """
    noted: Json = {REPLACES: replaces or None}
    meta = {"resourceVersion": have.metadata.resource_version, "annotations": noted}
    return {"metadata": meta, "revision": number}
