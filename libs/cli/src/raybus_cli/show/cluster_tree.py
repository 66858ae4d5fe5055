"""The content of `raybus get raycluster NAME`, as data: the cluster, its groups with their pods, and its RayService."""

from datetime import datetime
from typing import Final, cast

import msgspec

from common import conditions, labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from raybus_cli.reading import images
from raybus_cli.reading import snapshot as snapshots
from raybus_cli.reading.snapshot import ClusterSnapshot
from raybus_cli.show import tree
from raybus_cli.show.tree import LastEvent, PodLine

DELETING: Final = "deleting"
_WANTED: Final = (("ReplicaFailure", False), ("HeadPodReady", True), ("RayClusterProvisioned", True))
"""The conditions that have a message for the user while they differ from this, most important first."""


class GroupBranch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods of a group; `desired` is None for a group that the spec does not have."""

    name: str
    image: str = ""
    desired: int | None = None
    ready: int = 0
    pods: list[PodLine] = []


class ClusterTree(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayCluster and what belongs to it."""

    namespace: str
    name: str
    status: str
    message: str = ""
    service: str = ""
    """The RayService that it belongs to."""
    role: str = ""
    """What it is to that; empty where the RayService cannot be read."""
    ray_version: str = ""
    age_seconds: int | None = None
    groups: list[GroupBranch] = []
    last_event: LastEvent | None = None
    unseen: list[str] = []


def build(snapshot: ClusterSnapshot, *, now: datetime) -> ClusterTree:
    """Return the tree of a snapshot."""
    cluster = snapshot.cluster
    meta, service = cluster.metadata, snapshot.service
    return ClusterTree(
        namespace=meta.namespace,
        name=meta.name,
        status=DELETING if meta.deletion_timestamp is not None else cluster.status.state,
        message=_message(cluster),
        service=snapshots.origin(cluster),
        role=tree.role(service, meta.name) if service is not None else "",
        ray_version=str(cluster.raw_spec.get("rayVersion", "")),
        age_seconds=tree.seconds_since(meta.creation_timestamp, now),
        groups=_groups(snapshot, now=now),
        last_event=tree.last_event(snapshot.events, now=now),
        unseen=list(snapshot.unseen),
    )


def _message(cluster: RayCluster) -> str:
    if cluster.status.reason:
        return cluster.status.reason
    for kind, wanted in _WANTED:
        found = conditions.find(cluster.status.conditions, kind)
        if found is not None and found.message and (found.status == "True") is not wanted:
            return found.message
    return ""


def _groups(snapshot: ClusterSnapshot, *, now: datetime) -> list[GroupBranch]:
    spec = snapshot.cluster.raw_spec
    workers = cast("list[Json]", spec.get("workerGroupSpecs") or [])
    desired = {labels.HEAD: 1, **{str(each.get("groupName", "")): _desired(each) for each in workers}}
    used = images.of(spec)
    pods = [tree.pod_line(each, now=now) for each in snapshot.pods]
    ready = {each.metadata.name for each in snapshot.pods if each.is_running_and_ready}
    return [
        GroupBranch(
            name=name,
            image=used.get(name, ""),
            desired=desired.get(name),
            ready=sum(each.group == name and each.name in ready for each in pods),
            pods=[each for each in pods if each.group == name],
        )
        for name in dict.fromkeys([*desired, *(each.group for each in pods)])
    ]


def _desired(group: Json) -> int:
    """Return the number of pods that a group asks for."""
    return 0 if group.get("suspend") else int(group.get("replicas") or 0) * int(group.get("numOfHosts") or 1)
