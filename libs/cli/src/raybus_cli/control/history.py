"""The specs that a RayService had, as far as they are kept: each cluster has one, and its ControllerRevisions say what it served.

A cluster that an upgrade left behind is deleted a while later (`spec.rayClusterDeletionDelaySeconds`), and its spec with it.
"""

from datetime import datetime
from typing import cast

import msgspec

from common import errors, labels, spec_hash
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import revision, serve_config
from common.upgrade_receipt import Receipt
from raybus_cli.reading.look import Look
from raybus_cli.show.tree import seconds_since


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spec that a cluster of this RayService has or had."""

    number: int
    """Newest is greatest."""
    cluster: str
    role: str
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
    found: list[Entry] = []
    for cluster in look.clusters:
        for given in _given(look, cluster):
            found.append(_entry(look, cluster, given, number=len(found) + 1, now=now))
    return found


def _given(look: Look, cluster: RayCluster) -> list[revision.Revision | None]:
    records = revision.of(cluster, list(look.revisions))
    return [*reversed(records)] if records else [None]


def _entry(look: Look, cluster: RayCluster, record: revision.Revision | None, *, number: int, now: datetime) -> Entry:
    config = cluster.raw_spec
    text = record.data.serve_config if record is not None else None
    digest = spec_hash.service_goal_hash(config)
    goal = look.service
    is_current = digest == spec_hash.service_goal_hash(goal.raw_cluster_config) and text in {
        None,
        goal.raw_spec.get("serveConfigV2", ""),
    }
    made = record.metadata.creation_timestamp if record is not None else None
    return Entry(
        number=number,
        cluster=cluster.metadata.name,
        role=_role(look, cluster.metadata.name),
        image=_image(config),
        ray_version=str(config.get("rayVersion", "")),
        worker_groups=len(cast("list[Json]", config.get("workerGroupSpecs") or [])),
        applications=sorted(_applications(text)),
        spec_hash=digest,
        is_current=is_current,
        age_seconds=seconds_since(made or cluster.metadata.creation_timestamp, now),
        cluster_config=config,
        serve_config=text,
    )


def _role(look: Look, name: str) -> str:
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
    try:
        return str(msgspec.json.decode(service.metadata.annotations.get(labels.UPGRADE_RECEIPT, ""), type=Receipt))
    except msgspec.DecodeError:
        return None
