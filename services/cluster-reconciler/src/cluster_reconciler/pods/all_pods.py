"""Whether all pods go: because the cluster is to be suspended, or because the spec changed under `upgradeStrategy: Recreate`.

Suspending is atomic: first the condition is written, then all pods go, then the cluster counts as suspended
(spec raycluster §9.2; acceptance cases 73-79). Pods of ours that come afterwards, from an owner that was late, go too.

For Recreate, the head pod remembers the spec's hash and the version that wrote it: a hash of another version is refreshed,
never acted upon (spec raycluster §9.3; acceptance cases 80-84).
"""

from enum import StrEnum

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.reasons import ConditionType
from common import labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.ray import spec_hash


class AllPods(StrEnum):
    """What is done about all pods at once."""

    GO_ON = "go on"
    REFRESH = "refresh the hash on the head pod"
    DELETE = "delete all pods"
    WAIT = "wait"


def suspension(observed: Observed, *, has_conditions: bool) -> AllPods:
    """Return what suspension asks for; `has_conditions` is the gate RayClusterStatusConditions."""
    wants = observed.cluster.spec.suspend is True
    if not has_conditions:
        return _delete_once(observed) if wants else AllPods.GO_ON
    if observed.holds(ConditionType.SUSPENDING):
        return _delete_once(observed)
    if observed.holds(ConditionType.SUSPENDED):
        return _delete_once(observed) if any(map(observed.controls, observed.pods)) else AllPods.WAIT
    return AllPods.WAIT if wants else AllPods.GO_ON


def recreation(observed: Observed, version: str) -> AllPods:
    """Return what the upgrade strategy asks for."""
    strategy = observed.cluster.spec.upgrade_strategy
    if strategy is None or strategy.type != "Recreate" or not observed.heads:
        return AllPods.GO_ON
    head = observed.heads[0].metadata.annotations
    if head.get(labels.KUBERAY_VERSION) not in {None, "", version}:
        return AllPods.REFRESH
    known = head.get(labels.RECREATE_HASH)
    if not known or known == marks(observed.cluster, version)[labels.RECREATE_HASH]:
        return AllPods.GO_ON
    return _delete_once(observed)


def _delete_once(observed: Observed) -> AllPods:
    """Ask once: pods that are already going need no second request."""
    return AllPods.WAIT if all(map(is_terminating, observed.pods)) else AllPods.DELETE


def marks(cluster: RayCluster, version: str) -> dict[str, str]:
    """Return the annotations of a head pod with the hash of its spec and the version of the operator."""
    raw = cluster.raw_spec
    spec: Json = {**raw, "headGroupSpec": _with_params(raw.get("headGroupSpec") or {})}
    if groups := raw.get("workerGroupSpecs"):
        spec["workerGroupSpecs"] = [_with_params(group) for group in groups]
    return {labels.RECREATE_HASH: spec_hash.cluster_spec_hash(spec), labels.KUBERAY_VERSION: version}


def _with_params(group: Json) -> Json:
    """Return a head or a group as KubeRay hashes it: without `rayStartParams` it has empty ones."""
    return {**group, "rayStartParams": group.get("rayStartParams") or {}}
