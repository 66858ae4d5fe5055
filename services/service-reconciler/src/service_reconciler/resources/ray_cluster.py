"""Build the RayClusters of a RayService, and compare them with the RayService's spec.

Spec rayservice §4.3, §6.1-6.4; acceptance 16-23.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final, cast

import msgspec
import re2

from common import labels
from common.api import go_json, go_types, ray_cluster
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import owner, spec_hash
from common.runtime.cache import BoundedDict
from common.version import OPERATOR_VERSION

NOT_INHERITED: Final = {
    labels.UPGRADE_RECEIPT,
    labels.UPGRADE_FROM,
    labels.UPGRADE_POLICY_RECORD,
    labels.APPROVED_STEP,
}
"""Annotations of a RayService that its clusters do not inherit.

These annotations belong to an upgrade, or only raybus writes them.
"""
_KUBERAY: Final = re2.compile(r"nightly|v1\.\d+\.\d+(-.*)?")
"""Format of KubeRay's version in the annotation of a cluster."""
_hashes: Final = BoundedDict[tuple[type, bytes, int | None], str](size=lambda of, _: len(of[1]))


class Match(StrEnum):
    """Result of comparing a cluster with the `rayClusterConfig` of the RayService."""

    FULL = "full"
    APPENDED = "appended"
    """Worker groups were appended, and no other compared field has changed."""
    DIFFERENT = "different"


def build(
    service: RayService,
    name: str,
    *,
    starts_small: bool = False,
    replaces: str = "",
    policy: str | None = None,
) -> Body:
    """Return the manifest of a cluster for the RayService.

    With `starts_small` the worker groups have no `replicas` and grow from `minReplicas` as Serve
    needs them. `replaces` is the cluster that the new cluster replaces, and `policy` the record of
    the UpgradePolicy that the upgrade follows; both become annotations.
    """
    config, meta = service.raw_cluster_config, service.metadata
    if starts_small:
        groups = [
            {key: value for key, value in group.items() if key != "replicas"}
            for group in _list_groups(config)
        ]
        config = {**config, "workerGroupSpecs": groups}
    marks = _build_metadata(service)
    upgrade = (
        {labels.UPGRADE_FROM: replaces, labels.UPGRADE_POLICY_RECORD: policy} if replaces else {}
    )
    return {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": ray_cluster.KIND,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": marks["labels"],
            "annotations": marks["annotations"]
            | {name: value for name, value in upgrade.items() if value is not None},
            "ownerReferences": owner.reference(meta),
        },
        "spec": config,
    }


def stamps(service: RayService) -> dict[str, str]:
    """Return the annotations with the hash of the spec and the version of the operator."""
    return {
        labels.SPEC_HASH: goal_hash(service),
        labels.NUM_WORKER_GROUPS: str(len(_list_groups(service.raw_cluster_config))),
        labels.KUBERAY_VERSION: OPERATOR_VERSION,
    }


def goal_hash(of: RayService | RayCluster, worker_groups: int | None = None) -> str:
    """Return the hash of the compared fields of a cluster spec, cached by the text of the spec.

    With `worker_groups`, only the first `worker_groups` groups are hashed.
    """
    key = type(of), bytes(of.spec_json), worker_groups
    cached = _hashes.get(key)
    if cached is None:
        config = of.raw_spec if isinstance(of, RayCluster) else of.raw_cluster_config
        cached = spec_hash.service_goal_hash(config, worker_groups=worker_groups)
    _hashes[key] = cached
    return cached


def match(cluster: RayCluster, service: RayService) -> Match:
    """Compare a cluster with the cluster spec of the RayService.

    The hash in the cluster's annotations decides. If a different version of the operator wrote the
    hash, it may hash differently, so the spec of the cluster is compared as well.
    """
    annotations, goal, count = cluster.metadata.annotations, goal_hash(service), None
    recorded_hash = annotations.get(labels.SPEC_HASH, "")
    if recorded_hash == goal:
        return Match.FULL
    if annotations.get(labels.KUBERAY_VERSION) != OPERATOR_VERSION:
        recorded_hash, count = goal_hash(cluster), len(_list_groups(cluster.raw_spec))
        if recorded_hash == goal:
            return Match.FULL
    else:
        with suppress(ValueError):
            count = int(annotations.get(labels.NUM_WORKER_GROUPS, ""))
    is_fewer = count is not None and 0 <= count < len(_list_groups(service.raw_cluster_config))
    if count is None or (is_fewer and goal_hash(service, count) == recorded_hash):
        return Match.APPENDED
    return Match.DIFFERENT


def differences(cluster: RayCluster, service: RayService) -> list[str]:
    """Return the names of the compared fields of `rayClusterConfig` in which a cluster differs."""
    actual, wanted = (
        msgspec.json.decode(spec_hash.goal_json(config), type=dict[str, Any])
        for config in (cluster.raw_spec, service.raw_cluster_config)
    )
    differing: list[str] = []
    for field in sorted(actual.keys() | wanted.keys()):
        old, new = actual.get(field), wanted.get(field)
        if field == "workerGroupSpecs":
            groups = zip_longest(_list_groups(actual), _list_groups(wanted), fillvalue=Json())
            differing += [
                f"workerGroupSpecs[{index}] ({(new or old).get('groupName', '')})"
                for index, (old, new) in enumerate(groups)
                if old != new
            ]
        elif old != new:
            differing.append(field)
    return differing


def change(cluster: RayCluster, service: RayService) -> Body | None:
    """Return a merge patch that appends worker groups or only renews annotations.

    None if neither is needed. Values that the autoscaler wrote into existing groups stay.
    """
    matched, version = (
        match(cluster, service),
        {"resourceVersion": cluster.metadata.resource_version},
    )
    if matched is Match.FULL and needs_stamp(cluster, service):
        return {"metadata": {**version, "annotations": stamps(service)}}
    if matched is not Match.APPENDED:
        return None
    goal = service.raw_cluster_config
    is_scaled = bool(goal.get("enableInTreeAutoscaling"))
    groups_by_name = (
        {group.get("groupName"): group for group in _list_groups(cluster.raw_spec)}
        if is_scaled
        else {}
    )
    groups: list[Json] = []
    for group in _list_groups(goal):
        scaled = groups_by_name.get(group.get("groupName"), {})
        groups.append(
            {
                **group,
                **{key: scaled[key] for key in ("replicas", "scaleStrategy") if key in scaled},
            }
        )
    return {
        "metadata": {**version, **_build_metadata(service)},
        "spec": {"workerGroupSpecs": groups},
    }


def needs_stamp(cluster: RayCluster, service: RayService) -> bool:
    """Return whether to renew annotations that a different version of the operator wrote.

    Annotations of KubeRay that differ only in the version stay. KubeRay then finds its own version
    if it gets the cluster back, and leaves the spec alone. Two operators that run at once do not
    undo each other's writes either.
    """
    annotations = cluster.metadata.annotations
    version = annotations.get(labels.KUBERAY_VERSION, "")
    is_same = {**stamps(service), labels.KUBERAY_VERSION: version}.items() <= annotations.items()
    return version != OPERATOR_VERSION and not (is_same and _KUBERAY.fullmatch(version))


def filled(config: Json) -> Json:
    """Return a `rayClusterConfig` as KubeRay's Go types would write it (spec rayservice §2.5).

    KubeRay adds its finalizer with an update of the whole object, which adds Go's zero values and
    canonical quantities. The API server sees a change of the spec and increases
    `metadata.generation`. Some clients rely on this increase. Values and fields from the user stay,
    including fields that raybus's types do not have. The hash that decides about clusters is the
    same for both forms.
    """
    written = msgspec.json.decode(go_json.encode(go_types.CLUSTER_SPEC, config))
    return cast("Json", _fill(config, written))


def _build_metadata(service: RayService) -> Body:
    """Return the labels and annotations of a cluster.

    The cluster inherits those of the RayService, except `NOT_INHERITED`. raybus adds its own.
    """
    meta = service.metadata
    inherited = {
        name: value for name, value in meta.annotations.items() if name not in NOT_INHERITED
    }
    return {
        "labels": {**meta.labels, **owner.marks(meta.name)},
        "annotations": {**inherited, **stamps(service)},
    }


def _list_groups(spec: Mapping[str, Any]) -> list[Json]:
    return cast("list[Json]", spec.get("workerGroupSpecs") or [])


def _fill(ours: Any, written: Any) -> Any:
    match ours, written:
        case dict(), dict():
            actual, more = cast("Json", ours), cast("Json", written)
            added = {
                key: value for key, value in more.items() if key not in actual and value is not None
            }
            return {
                **{key: _fill(value, more.get(key, value)) for key, value in actual.items()},
                **added,
            }
        case list(), list():
            items, others = cast("list[Any]", ours), cast("list[Any]", written)
            return [_fill(*pair) for pair in zip(items, others, strict=True)]
        case _:
            return written if isinstance(ours, int | float | str) else ours
