"""A ControllerRevision for each Serve config that a cluster is given, owned by the cluster (design rule 7, ADR 5).

KubeRay keeps the last config in memory: a restart in mid-upgrade makes it push the new config onto the old cluster. A record of
ours is written before the PUT, as an intent, and completed with the outcome after it. An intent without an outcome is resolved
by what Serve reports as deployed. The number is part of the name, so that of two writers one gets a conflict.
"""

import hashlib
from enum import StrEnum
from typing import Final

import msgspec

from common import labels
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONTROLLER_REVISION, label_selector
from common.ray import owner

RECORD: Final = "raybus.io/record"
SERVE_CONFIG: Final = "serve-config"
OUTCOME: Final = "raybus.io/serve-config-outcome"
"""Annotation of a record; one that an earlier release wrote has none and was accepted."""
KEPT: Final = 2
"""Superseded records kept for a cluster: the last accepted one, and one to compare with."""
MOST: Final = 8
"""Records without a known outcome that are kept besides."""


class Outcome(StrEnum):
    """The outcome of a Serve config."""

    SENT = "sent"
    """It is on its way, or its outcome is unknown."""
    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Ray answered that it does not take it."""


class Given(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The config that a cluster was given, and its other facts."""

    serve_config: str = msgspec.field(default="", name="serveConfigV2")
    spec_hash: str = ""
    upgrade_strategy: Json = {}


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A ControllerRevision as we read it."""

    metadata: ObjectMeta
    data: Given = Given()
    revision: int = 0

    @property
    def outcome(self) -> Outcome:
        """Return what became of the config; an outcome of another build that is not one of these is unknown."""
        outcome = self.metadata.annotations.get(OUTCOME, Outcome.ACCEPTED)
        return Outcome(outcome) if outcome in set(Outcome) else Outcome.SENT


class Revisions(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a list."""

    items: list[Revision] = []


def selector(cluster: str) -> str:
    """Return the label selector of a cluster's records."""
    return label_selector({labels.CLUSTER: cluster, RECORD: SERVE_CONFIG})


def name(cluster: ObjectMeta, number: int) -> str:
    """Return the name of a record; a cluster that is made again under its name has other records."""
    return f"{cluster.name}-serve-{hashlib.sha256(cluster.uid.encode()).hexdigest()[:6]}-{number}"


def build(cluster: RayCluster, given: Given, number: int) -> Body:
    """Return the record of what a cluster is about to be given; the highest number is the current one."""
    meta = cluster.metadata
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": name(meta, number),
            "namespace": meta.namespace,
            "labels": {labels.CLUSTER: meta.name, RECORD: SERVE_CONFIG},
            "annotations": {OUTCOME: Outcome.SENT},
            "ownerReferences": owner.cluster_reference(meta),
        },
        "data": msgspec.to_builtins(given),
        "revision": number,
    }


def is_open(records: list[Revision]) -> bool:
    """Return whether the outcome of the newest record's config is unknown."""
    return bool(records) and records[0].outcome is Outcome.SENT


def open_ones(records: list[Revision]) -> list[Revision]:
    """Return the records, newest first, of which one is what the cluster has: down to the last that was accepted."""
    accepted = [index for index, each in enumerate(records) if each.outcome is Outcome.ACCEPTED]
    return records[: accepted[0] + 1] if accepted else records


def needless(records: list[Revision]) -> list[Revision]:
    """Return the records, of all a cluster's from the newest on, that are not needed any more; never the last accepted one."""
    open_now = open_ones(records)
    superseded = [each for each in open_now if each.outcome is Outcome.ACCEPTED] + records[len(open_now) :]
    refused = [each for each in open_now[1:] if each.outcome is Outcome.REFUSED]
    unknown = [each for each in open_now if each.outcome is Outcome.SENT]
    return [*refused, *unknown[MOST:], *superseded[KEPT:]]


def of(cluster: RayCluster, found: list[Revision]) -> list[Revision]:
    """Return the records of this very cluster (not of one that had its name), newest first."""
    uid = cluster.metadata.uid
    own = [each for each in found if any(ref.uid == uid for ref in each.metadata.owner_references)]
    return sorted(own, key=lambda each: (each.revision, each.metadata.name), reverse=True)
