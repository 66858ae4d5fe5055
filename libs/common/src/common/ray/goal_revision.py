"""A ControllerRevision for each spec that a RayService had: the target of `raybus undo` once the old cluster is gone.

It is owned by the RayService and goes with it. Its name follows from what it holds, as a Deployment's ReplicaSet's does: a spec that
comes back is the same record with a new number. What a cluster was given is recorded on the cluster (`common.ray.revision`).
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
"""On a record: the name of the record of the spec that served before it."""


class Goal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What of a RayService's spec decides on clusters and on what they serve."""

    ray_cluster_config: Json = {}
    serve_config: str | None = msgspec.field(default=None, name="serveConfigV2")
    """None when it is unknown what the cluster serves."""

    @property
    def spec_hash(self) -> str:
        """Return the hash of the cluster spec; equal specs have equal hashes."""
        return spec_hash.service_goal_hash(self.ray_cluster_config)


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A goal, and the hash by which clusters are known to have been made for it."""

    goal: Goal
    hash: str


class Data(msgspec.Struct, frozen=True):
    """The content of a record: a part of a RayService, which is a merge patch at the same time."""

    spec: Goal = Goal()


class GoalRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is read."""

    metadata: ObjectMeta
    data: Data = Data()
    revision: int = 0

    @property
    def goal(self) -> Goal:
        """Return the spec."""
        return self.data.spec

    @property
    def replaces(self) -> str:
        """Return the name of the record of the spec that served before."""
        return self.metadata.annotations.get(REPLACES, "")


def asked_of(service: RayService) -> Spec:
    """Return what a RayService asks for now."""
    goal = Goal(
        ray_cluster_config=service.raw_cluster_config, serve_config=service.spec.serve_config_v2
    )
    return Spec(goal=goal, hash=goal.spec_hash)


def served_by(cluster: RayCluster, serve_config: str | None) -> Spec:
    """Return what a cluster was made for; the API server may have added to its spec since."""
    goal = Goal(ray_cluster_config=cluster.raw_spec, serve_config=serve_config)
    return Spec(
        goal=goal, hash=cluster.metadata.annotations.get(labels.SPEC_HASH) or goal.spec_hash
    )


def marks(service: str) -> dict[str, str]:
    """Return the labels of a RayService's records."""
    return {**owner.marks(service), revision.RECORD: "goal"}


def of(service: ObjectMeta, found: Iterable[GoalRevision]) -> list[GoalRevision]:
    """Return the records of this very RayService (not of one that had its name), oldest first."""
    return sorted(
        (each for each in found if owner.owns(service, each.metadata)),
        key=lambda each: each.revision,
    )


def name(service: ObjectMeta, spec: Spec) -> str:
    """Return the name of a spec's record."""
    served = spec.goal.serve_config
    text = "\n".join((service.uid, spec.hash, "unknown" if served is None else f"={served}"))
    return f"{service.name}-goal-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def build(service: ObjectMeta, spec: Spec, number: int, *, replaces: str) -> Body:
    """Return the record of a spec; the highest number is the newest."""
    noted = {"labels": marks(service.name), "annotations": {REPLACES: replaces} if replaces else {}}
    return revision.record(
        service, name(service, spec), number, Data(spec=spec.goal), noted, kind=owner.KIND
    )


def renewal(have: GoalRevision, number: int, *, replaces: str) -> Body:
    """Return the merge patch by which a spec that came back is the newest."""
    noted: Json = {REPLACES: replaces or None}
    meta = {"resourceVersion": have.metadata.resource_version, "annotations": noted}
    return {"metadata": meta, "revision": number}
