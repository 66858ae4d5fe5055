"""A ControllerRevision for each Serve config that a cluster is given, owned by the cluster (design rule 7, spec rayservice §12.7, ADR 5).

KubeRay keeps the last config in memory: a restart in mid-upgrade makes it push the new config onto the old cluster. A record of
ours is written before the PUT, as an intent, and completed with the outcome after it. An intent without an outcome is resolved
at each reconcile by what Serve reports as deployed, since a PUT may be executed long after its sender is gone. The number is part of
the name, so that of two writers one gets a conflict.
"""

import hashlib
from enum import StrEnum
from typing import Final

import msgspec

from common import labels
from common.api import ray_cluster
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONTROLLER_REVISION
from common.ray import deployed_config, owner
from common.ray.serve_status import ServeDetails

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


def marks(cluster: str) -> dict[str, str]:
    """Return the labels of a cluster's records."""
    return {labels.CLUSTER: cluster, RECORD: SERVE_CONFIG}


def build(cluster: RayCluster, given: Given, number: int) -> Body:
    """Return the record of what a cluster is about to be given; the highest number is the current one."""
    meta = cluster.metadata
    incarnation = hashlib.sha256(meta.uid.encode()).hexdigest()[
        :6
    ]  # made again under its name, it has other records
    noted = {"labels": marks(meta.name), "annotations": {OUTCOME: Outcome.SENT}}
    return record(
        meta,
        f"{meta.name}-serve-{incarnation}-{number}",
        number,
        given,
        noted,
        kind=ray_cluster.KIND,
    )


def record(
    of: ObjectMeta, name: str, number: int, data: msgspec.Struct, noted: Json, *, kind: str
) -> Body:
    """Return a ControllerRevision with these labels and annotations that belongs to an object of a kind of Ray."""
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": name,
            "namespace": of.namespace,
            "ownerReferences": owner.reference(of, kind),
            **noted,
        },
        "data": msgspec.to_builtins(data),
        "revision": number,
    }


def of(cluster: RayCluster, found: list[Revision]) -> list[Revision]:
    """Return the records of this very cluster (not of one that had its name), newest first."""
    own = [each for each in found if owner.owns(cluster.metadata, each.metadata)]
    return sorted(own, key=lambda each: (each.revision, each.metadata.name), reverse=True)


def open_ones(records: list[Revision]) -> list[Revision]:
    """Return the records, newest first, of which one is what the cluster has: down to the last that was accepted."""
    accepted = [index for index, each in enumerate(records) if each.outcome is Outcome.ACCEPTED]
    return records[: accepted[0] + 1] if accepted else records


def needless(records: list[Revision]) -> list[Revision]:
    """Return the records, of all a cluster's from the newest on, that are not needed any more; never the last accepted one."""
    open_now = open_ones(records)
    superseded = [each for each in open_now if each.outcome is Outcome.ACCEPTED] + records[
        len(open_now) :
    ]
    refused = [each for each in open_now[1:] if each.outcome is Outcome.REFUSED]
    unknown = [each for each in open_now if each.outcome is Outcome.SENT]
    return [*refused, *unknown[MOST:], *superseded[KEPT:]]


def current(records: list[Revision], details: ServeDetails | None) -> Given | None:
    """Return what a cluster has, from its records (newest first) and from what Serve reports; None when it is unknown."""
    candidates = open_ones(records)
    if candidates and candidates[0].outcome is Outcome.ACCEPTED:
        return candidates[0].data
    if details is not None and details.applications:
        for each in candidates:
            if deployed_config.differences(each.data.serve_config, details) == []:
                return each.data
    possible = [each for each in candidates if each.outcome is not Outcome.REFUSED]
    if possible and possible[0].outcome is Outcome.ACCEPTED:
        return possible[0].data
    if details is None:
        return None
    if (
        not details.applications
    ):  # the next PUT decides; Ray refuses what it cannot run: then the one before is left
        return possible[0].data if possible else None
    config = deployed_config.reported(details)
    oldest = (
        possible[-1].data if possible else Given()
    )  # has the other facts; a cluster of KubeRay's has no record
    return None if config is None else msgspec.structs.replace(oldest, serve_config=config)
