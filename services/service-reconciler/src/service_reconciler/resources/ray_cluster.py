"""The RayClusters of a RayService: how one is built, and whether one still is what the RayService asks for.

Spec rayservice §4.3, §6.1-6.4; acceptance 16-23.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from common import labels
from common.api import ray_cluster, ray_service
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import owner, spec_hash

_KUBERAY: Final = re.compile(r"nightly|v1\.\d+\.\d+(-.*)?")
"""How KubeRay writes its version."""


class Match(StrEnum):
    """How a cluster compares with the RayService's `rayClusterConfig`."""

    FULL = "full"
    APPENDED = "appended"
    """Worker groups were added at the end and nothing else that counts has changed."""
    DIFFERENT = "different"


def build(service: RayService, name: str, *, version: str, starts_small: bool = False, replaces: str = "") -> Body:
    """Return the cluster that the RayService asks for; one that starts small grows from `minReplicas` as Serve asks for it.

    A replacement names the cluster that it replaces in an annotation, until its upgrade is over.
    """
    config = service.raw_cluster_config
    meta = service.metadata
    return {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": ray_cluster.KIND,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {**meta.labels, **owner.marks(meta.name)},
            "annotations": {
                **_inherited(meta),
                **stamps(service, version=version),
                **({labels.UPGRADE_FROM: replaces} if replaces else {}),
            },
            "ownerReferences": owner.reference(meta),
        },
        "spec": _at_least(config) if starts_small else config,
    }


def _at_least(config: Json) -> Json:
    groups = [{key: value for key, value in group.items() if key != "replicas"} for group in _groups(config)]
    return {**config, "workerGroupSpecs": groups}


def stamps(service: RayService, *, version: str) -> dict[str, str]:
    """Return the annotations of a cluster with the hash of its spec and the version of the operator."""
    return {
        labels.SPEC_HASH: goal_hash(service),
        labels.NUM_WORKER_GROUPS: str(len(_groups(service.raw_cluster_config))),
        labels.KUBERAY_VERSION: version,
    }


def goal_hash(service: RayService) -> str:
    """Return the hash of what the RayService asks for."""
    return _service_hash(bytes(service.spec_json), None)


def match(cluster: RayCluster, service: RayService, *, version: str) -> Match:
    """Compare a cluster with the goal.

    The annotations decide. Those of another operator's version may come from another algorithm, so that what the cluster
    really holds decides too.
    """
    annotations = cluster.metadata.annotations
    goal = goal_hash(service)
    if annotations.get(labels.SPEC_HASH) == goal:
        return Match.FULL
    if annotations.get(labels.KUBERAY_VERSION) != version:
        held = _held_hash(bytes(cluster.spec_json))
        if held == goal:
            return Match.FULL
        count = len(_groups(cluster.raw_spec))
        return Match.APPENDED if _is_appended(service, count, held) else Match.DIFFERENT
    count = _number(annotations.get(labels.NUM_WORKER_GROUPS, ""))
    if count is None or _is_appended(service, count, annotations.get(labels.SPEC_HASH, "")):
        return Match.APPENDED
    return Match.DIFFERENT


def growth(cluster: RayCluster, service: RayService, *, version: str) -> Body:
    """Return the merge patch that appends worker groups; what the autoscaler wrote into the others stays."""
    held = {group.get("groupName"): group for group in _groups(cluster.raw_spec)}
    goal = service.raw_cluster_config
    scaled = held if goal.get("enableInTreeAutoscaling") else {}
    groups = [_with_scale(group, scaled.get(group.get("groupName"))) for group in _groups(goal)]
    return {**_stamp_patch(cluster, service, version=version), "spec": {"workerGroupSpecs": groups}}


def needs_stamp(cluster: RayCluster, service: RayService, *, version: str) -> bool:
    """Return whether the annotations of another version of the operator must be renewed.

    Those of KubeRay stay where they equal ours: KubeRay, given the cluster back, then finds its own version and leaves
    the spec alone, and two operators at once have nothing to undo.
    """
    held, wanted = cluster.metadata.annotations, stamps(service, version=version)
    if held.get(labels.KUBERAY_VERSION) == version:
        return False
    is_same = all(held.get(name) == value for name, value in wanted.items() if name != labels.KUBERAY_VERSION)
    return not (is_same and _KUBERAY.fullmatch(held.get(labels.KUBERAY_VERSION, "")))


def stamp(cluster: RayCluster, service: RayService, *, version: str) -> Body:
    """Return the merge patch that renews the annotations and touches nothing else."""
    patch = _stamp_patch(cluster, service, version=version)
    patch["metadata"]["annotations"] = stamps(service, version=version)
    del patch["metadata"]["labels"]
    return patch


def _stamp_patch(cluster: RayCluster, service: RayService, *, version: str) -> Body:
    meta = service.metadata
    return {
        "metadata": {
            "resourceVersion": cluster.metadata.resource_version,
            "labels": {**meta.labels, **owner.marks(meta.name)},
            "annotations": {**_inherited(meta), **stamps(service, version=version)},
        }
    }


def _inherited(service: ObjectMeta) -> dict[str, str]:
    """Return the annotations that a cluster has from its RayService: the user's, not what we noted of the last upgrade."""
    return {name: value for name, value in service.annotations.items() if name != labels.UPGRADE_RECEIPT}


def _with_scale(group: Json, held: Json | None) -> Json:
    if held is None:
        return group
    kept = {key: held[key] for key in ("replicas", "scaleStrategy") if key in held}
    return {**group, **kept}


def _groups(spec: Mapping[str, Any]) -> list[Json]:
    return cast("list[Json]", spec.get("workerGroupSpecs") or [])


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _is_appended(service: RayService, count: int, held: str) -> bool:
    if not 0 <= count < len(_groups(service.raw_cluster_config)):
        return False
    return _service_hash(bytes(service.spec_json), count) == held


@lru_cache(maxsize=512)
def _service_hash(spec: bytes, worker_groups: int | None) -> str:
    config = ray_service.RayService(metadata=_NOBODY, spec_json=msgspec.Raw(spec)).raw_cluster_config
    return spec_hash.service_goal_hash(config, worker_groups=worker_groups)


@lru_cache(maxsize=512)
def _held_hash(spec: bytes) -> str:
    return spec_hash.service_goal_hash(msgspec.json.decode(spec, type=dict[str, Any]))


_NOBODY: Final = ObjectMeta()
