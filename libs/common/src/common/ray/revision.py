"""ControllerRevisions that record the Serve configs of a cluster, and are owned by the cluster.

KubeRay keeps the last config in memory, so a restart during an upgrade makes it send the new config
to the old cluster. Here a record is written before the PUT as an intent, and completed with the
outcome after it. A record without an outcome is resolved at each reconcile by comparison with
Serve's report, since a PUT may be executed long after its sender has died. The number is part of
the object's name, so of two concurrent writers one gets a conflict (spec rayservice §12.7, ADR 5).
"""

import hashlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from common import labels
from common.api import ray_cluster
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONTROLLER_REVISION
from common.ray import deployed_config, owner, serve_config
from common.ray.serve_config import ServeConfig
from common.ray.serve_status import ServeDetails

RECORD: Final = "raybus.io/record"
SERVE_CONFIG: Final = "serve-config"
OUTCOME: Final = "raybus.io/serve-config-outcome"
"""Annotation of a record with the outcome of sending its config.

Records of earlier releases lack the annotation and count as accepted.
"""
MAX_SUPERSEDED_RECORDS: Final = 2
"""Maximum superseded records to keep: the last accepted one, and one for comparison."""
MAX_UNKNOWN_RECORDS: Final = 8
"""Maximum additional records to keep whose outcome is unknown."""


class SendOutcome(StrEnum):
    """The outcome of sending a Serve config."""

    SENT = "sent"
    """The config is in flight, or the outcome of sending it is unknown."""
    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Ray rejected the config."""


class RecordedConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The config that a cluster was given, with the spec hash and strategy of the cluster."""

    serve_config: str = msgspec.field(default="", name="serveConfigV2")
    spec_hash: str = ""
    upgrade_strategy: Json = {}


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A record as read from the API server."""

    metadata: ObjectMeta
    data: RecordedConfig = RecordedConfig()
    revision: int = 0

    @property
    def outcome(self) -> SendOutcome:
        """Return the outcome; a value that this build does not know counts as `SENT`."""
        outcome = self.metadata.annotations.get(OUTCOME, SendOutcome.ACCEPTED)
        return SendOutcome(outcome) if outcome in set(SendOutcome) else SendOutcome.SENT


def marks(cluster: str) -> dict[str, str]:
    """Return the labels of a cluster's records."""
    return {labels.CLUSTER: cluster, RECORD: SERVE_CONFIG}


def build(cluster: RayCluster, given: RecordedConfig, number: int) -> Body:
    """Build the record of a config that is about to be sent.

    The record with the highest number is the current one.
    """
    meta = cluster.metadata
    # A cluster created again under the same name has other record names.
    incarnation = hashlib.sha256(meta.uid.encode()).hexdigest()[:6]
    noted = {"labels": marks(meta.name), "annotations": {OUTCOME: SendOutcome.SENT}}
    return record(
        meta,
        f"{meta.name}-serve-{incarnation}-{number}",
        number,
        given,
        noted,
        kind=ray_cluster.KIND,
    )


def record(
    parent: ObjectMeta,
    name: str,
    number: int,
    data: msgspec.Struct,
    noted: Json,
    *,
    kind: str,
) -> Body:
    """Build a ControllerRevision that is owned by an object of Ray.

    `noted` has its labels and annotations, `kind` is the owner's.
    """
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": name,
            "namespace": parent.namespace,
            "ownerReferences": owner.reference(parent, kind),
            **noted,
        },
        "data": msgspec.to_builtins(data),
        "revision": number,
    }


def owned_records(cluster: RayCluster, records: list[Revision]) -> list[Revision]:
    """Return the records that this cluster owns, newest first.

    Records of an earlier cluster with the same name are left out.
    """
    own = [record for record in records if owner.owns(cluster.metadata, record.metadata)]
    return sorted(own, key=lambda record: (record.revision, record.metadata.name), reverse=True)


def open_ones(records: list[Revision]) -> list[Revision]:
    """Return the records of the configs that Ray may run.

    These are the newest records, down to the last accepted one. `records` are newest first, as for
    the functions below.
    """
    accepted = [
        index for index, record in enumerate(records) if record.outcome is SendOutcome.ACCEPTED
    ]
    return records[: accepted[0] + 1] if accepted else records


def needless(records: list[Revision]) -> list[Revision]:
    """Return the records that can be deleted; the last accepted one is always kept."""
    open_now = open_ones(records)
    superseded = [
        record for record in open_now if record.outcome is SendOutcome.ACCEPTED
    ] + records[len(open_now) :]
    refused = [record for record in open_now[1:] if record.outcome is SendOutcome.REFUSED]
    unknown = [record for record in open_now if record.outcome is SendOutcome.SENT]
    return [*refused, *unknown[MAX_UNKNOWN_RECORDS:], *superseded[MAX_SUPERSEDED_RECORDS:]]


def current(
    records: list[Revision],
    details: ServeDetails | None,
    *,
    parse: Callable[[str], ServeConfig] = serve_config.parse,
) -> RecordedConfig | None:
    """Return the config that a cluster has, from its records and Serve's report.

    If the newest record is accepted, it decides. If its outcome is unknown, the record that matches
    Serve's report decides, or else the reported config itself. If it was refused, the record before
    it decides in the same way. None if the config cannot be determined.
    """
    candidates = open_ones(records)
    if candidates and candidates[0].outcome is SendOutcome.ACCEPTED:
        return candidates[0].data
    if details is not None and details.applications:
        for record in candidates:
            if deployed_config.differences(parse(record.data.serve_config), details) == []:
                return record.data
    possible = [record for record in candidates if record.outcome is not SendOutcome.REFUSED]
    if possible and possible[0].outcome is SendOutcome.ACCEPTED:
        return possible[0].data
    if details is None:
        return None
    # Serve runs nothing, so the newest config that is not refused counts. It is sent again, and if
    # Ray refuses it, the config before it counts.
    if not details.applications:
        return possible[0].data if possible else None
    config = deployed_config.reported(details)
    # Source of hash and strategy; a cluster made by KubeRay has no record.
    oldest = possible[-1].data if possible else RecordedConfig()
    return None if config is None else msgspec.structs.replace(oldest, serve_config=config)
