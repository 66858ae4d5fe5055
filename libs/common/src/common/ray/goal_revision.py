"""A ControllerRevision for each spec of a RayService: the history for `raybus undo`.

A record survives the deletion of the old cluster. The RayService owns its records, so they are
deleted with it. A record's name is derived from its content, like that of a Deployment's
ReplicaSet: a spec that returns reuses its record with a new revision number. The configs that
clusters were given have records of their own, which the cluster owns (`common.ray.revision`).
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
"""Annotation of a record: the name of the record of the spec that served before it."""


class Goal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a RayService's spec that determines clusters and Serve config."""

    ray_cluster_config: Json = {}
    serve_config: str | None = msgspec.field(default=None, name="serveConfigV2")
    """The Serve config; None if it is unknown which config the cluster serves."""

    @property
    def spec_hash(self) -> str:
        return spec_hash.service_goal_hash(self.ray_cluster_config)


class HashedGoal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal, with the spec hash that is annotated on the clusters made for it."""

    goal: Goal
    hash: str


class RevisionData(msgspec.Struct, frozen=True):
    """The content of a record, in the form of a merge patch for the RayService."""

    spec: Goal = Goal()


class GoalRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A record as read from the API server."""

    metadata: ObjectMeta
    data: RevisionData = RevisionData()
    revision: int = 0

    @property
    def goal(self) -> Goal:
        return self.data.spec

    @property
    def replaces(self) -> str:
        """Return the name of the record of the spec that served before; empty if unknown."""
        return self.metadata.annotations.get(REPLACES, "")


def asked_of(service: RayService) -> HashedGoal:
    """Return the spec that a RayService asks for now."""
    goal = Goal(
        ray_cluster_config=service.raw_cluster_config, serve_config=service.spec.serve_config_v2
    )
    return HashedGoal(goal=goal, hash=goal.spec_hash)


def served_by(cluster: RayCluster, serve_config: str | None) -> HashedGoal:
    """Return the spec for which a cluster was created.

    Its hash is read from the annotation of the cluster. A hash computed from the spec may differ,
    because the API server may have added defaults.
    """
    goal = Goal(ray_cluster_config=cluster.raw_spec, serve_config=serve_config)
    return HashedGoal(
        goal=goal, hash=cluster.metadata.annotations.get(labels.SPEC_HASH) or goal.spec_hash
    )


def marks(service: str) -> dict[str, str]:
    """Return the labels of a RayService's records."""
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
    """Return the name of a spec's record."""
    served = spec.goal.serve_config
    text = "\n".join((service.uid, spec.hash, "unknown" if served is None else f"={served}"))
    return f"{service.name}-goal-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def build(service: ObjectMeta, spec: HashedGoal, number: int, *, replaces: str) -> Body:
    """Build the record of a spec; the record with the highest number is the newest.

    `replaces` is the name of the record of the spec that served before; empty if unknown.
    """
    noted = {"labels": marks(service.name), "annotations": {REPLACES: replaces} if replaces else {}}
    return revision.record(
        service, name(service, spec), number, RevisionData(spec=spec.goal), noted, kind=owner.KIND
    )


def renewal(have: GoalRevision, number: int, *, replaces: str) -> Body:
    """Build the merge patch that makes the record of a returning spec the newest.

    `number` and `replaces` have the same meaning as in `build`.
    """
    noted: Json = {REPLACES: replaces or None}
    meta = {"resourceVersion": have.metadata.resource_version, "annotations": noted}
    return {"metadata": meta, "revision": number}
