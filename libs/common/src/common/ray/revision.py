"""ControllerRevisions that record the Serve configs of a cluster, and are owned by the cluster.

KubeRay keeps the last config in memory, so a restart during an upgrade makes it send the new config
to the old cluster. Here a record is written before the PUT, and the outcome is added after it. A
PUT may be executed long after its sender has died. So while a record has no outcome, each reconcile
compares it with Serve's report. The number of a record is part of its name, so of two concurrent
writers one gets a conflict (spec rayservice §12.7, ADR 5).
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
"""Number of records to keep up to the last accepted one: this one and the one before it."""
MAX_UNKNOWN_RECORDS: Final = 8
"""Maximum records with an unknown outcome to keep in addition."""


class SendOutcome(StrEnum):
    """The outcome of sending a Serve config."""

    SENT = "sent"
    """The config is being sent, or the outcome of sending it is unknown."""
    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Ray rejected the config."""


class RecordedConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Serve config sent to a cluster, with the cluster's spec hash and upgrade strategy."""

    serve_config: str = msgspec.field(default="", name="serveConfigV2")
    spec_hash: str = ""
    upgrade_strategy: Json = {}


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a Serve config, as read from the API server."""

    metadata: ObjectMeta
    data: RecordedConfig = RecordedConfig()
    revision: int = 0

    @property
    def outcome(self) -> SendOutcome:
        """Return the outcome; a value that this release does not know counts as `SENT`."""
        outcome = self.metadata.annotations.get(OUTCOME, SendOutcome.ACCEPTED)
        return SendOutcome(outcome) if outcome in set(SendOutcome) else SendOutcome.SENT


def marks(cluster: str) -> dict[str, str]:
    """Return the labels of the config records of the cluster with the name `cluster`."""
    return {labels.CLUSTER: cluster, RECORD: SERVE_CONFIG}


def build(cluster: RayCluster, given: RecordedConfig, number: int) -> Body:
    """Build the record of a config that is about to be sent.

    `number` must be higher than in all earlier records of the cluster.
    """
    meta = cluster.metadata
    # If a cluster is created again under the same name, its records have different names.
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
    """Build a ControllerRevision that is owned by `parent`, an object of the kind `kind`.

    `noted` has the labels and annotations of the ControllerRevision.
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
    """Return the records of the configs that Ray may run now.

    These are the newest records, down to the last accepted one. `records` must be newest first.
    """
    accepted = [
        index for index, record in enumerate(records) if record.outcome is SendOutcome.ACCEPTED
    ]
    return records[: accepted[0] + 1] if accepted else records


def needless(records: list[Revision]) -> list[Revision]:
    """Return the records that can be deleted; never the last accepted one."""
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
    """Return the config that a cluster has, from its records (newest first) and Serve's report.

    This is the newest record if Ray accepted it. If its outcome is unknown, it is the record that
    matches the report, or else the reported config. If Ray refused the newest record, the record
    before it is examined in the same way. None if the config cannot be determined.
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
    # Serve runs nothing: take the newest config that Ray did not refuse. It is sent again, and if
    # Ray refuses it, the config before it is taken.
    if not details.applications:
        return possible[0].data if possible else None
    config = deployed_config.reported(details)
    # Take hash and strategy from the oldest record; a cluster made by KubeRay has no record.
    oldest = possible[-1].data if possible else RecordedConfig()
    return None if config is None else msgspec.structs.replace(oldest, serve_config=config)
