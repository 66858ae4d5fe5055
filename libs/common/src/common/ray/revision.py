"""A ControllerRevision for each Serve config that a cluster was given, owned by the cluster (design rule 7).

KubeRay keeps the last config in memory: a restart in mid-upgrade makes it push the new config onto the old cluster. Ours is
written after Ray accepted the config, so the worst that a crash costs is one repeated, harmless PUT.
"""

import hashlib
from typing import Final

import msgspec

from common import labels
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONTROLLER_REVISION
from common.ray import owner

RECORD: Final = "raybus.io/record"
SERVE_CONFIG: Final = "serve-config"
KEPT: Final = 2
"""Revisions kept for a cluster: the current one, and one to compare with."""


class Given(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a cluster was given."""

    serve_config: str = msgspec.field(default="", name="serveConfigV2")
    spec_hash: str = ""
    upgrade_strategy: Json = {}


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A ControllerRevision as we read it."""

    metadata: ObjectMeta
    data: Given = Given()
    revision: int = 0


class Revisions(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a list."""

    items: list[Revision] = []


def selector(cluster: str) -> str:
    """Return the label selector of a cluster's records."""
    return f"{labels.CLUSTER}={cluster},{RECORD}={SERVE_CONFIG}"


def name(cluster: str, given: Given) -> str:
    """Return the name of a record: the same content has the same name."""
    digest = hashlib.sha256(msgspec.json.encode(given, order="sorted")).hexdigest()
    return f"{cluster}-serve-{digest[:10]}"


def build(cluster: RayCluster, given: Given, number: int) -> Body:
    """Return the record of what a cluster was given; the highest number is the current one."""
    meta = cluster.metadata
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": name(meta.name, given),
            "namespace": meta.namespace,
            "labels": {labels.CLUSTER: meta.name, RECORD: SERVE_CONFIG},
            "ownerReferences": owner.cluster_reference(meta),
        },
        "data": msgspec.to_builtins(given),
        "revision": number,
    }


def of(cluster: RayCluster, found: list[Revision]) -> list[Revision]:
    """Return the records of this very cluster (not of one that had its name), newest first."""
    uid = cluster.metadata.uid
    own = [each for each in found if any(ref.uid == uid for ref in each.metadata.owner_references)]
    return sorted(own, key=lambda each: each.revision, reverse=True)
