"""Whether all pods go because the spec changed under `upgradeStrategy: Recreate`.

The head pod remembers the spec's hash and the version that wrote it: a hash of another version is refreshed, never acted upon
(spec raycluster §9.3; acceptance cases 80-84).
"""

from enum import StrEnum

from cluster_reconciler.observed import Observed, is_terminating
from common import labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.ray import spec_hash


class UpgradeMove(StrEnum):
    """What the upgrade strategy asks for."""

    GO_ON = "go on"
    REFRESH = "refresh the hash on the head pod"
    RECREATE = "delete all pods"
    WAIT = "wait for the old pods"


def marks(cluster: RayCluster, version: str) -> dict[str, str]:
    """Return the annotations of a head pod with the hash of its spec and the version of the operator."""
    return {
        labels.RECREATE_HASH: spec_hash.cluster_spec_hash(_with_params(cluster.raw_spec)),
        labels.KUBERAY_VERSION: version,
    }


def _with_params(spec: Json) -> Json:
    """Return a spec as KubeRay hashes it: a node without `rayStartParams` has empty ones."""
    completed = {**spec, "headGroupSpec": _param_defaults(spec.get("headGroupSpec") or {})}
    if groups := spec.get("workerGroupSpecs"):
        completed["workerGroupSpecs"] = [_param_defaults(group) for group in groups]
    return completed


def _param_defaults(group: Json) -> Json:
    return {**group, "rayStartParams": group.get("rayStartParams") or {}}


def decide(observed: Observed, version: str) -> UpgradeMove:
    """Return what the upgrade strategy asks for."""
    strategy = observed.cluster.spec.upgrade_strategy
    if strategy is None or strategy.type != "Recreate" or not observed.heads:
        return UpgradeMove.GO_ON
    head = observed.heads[0].metadata.annotations
    if head.get(labels.KUBERAY_VERSION) not in {None, "", version}:
        return UpgradeMove.REFRESH
    known = head.get(labels.RECREATE_HASH)
    if not known or known == marks(observed.cluster, version)[labels.RECREATE_HASH]:
        return UpgradeMove.GO_ON
    return UpgradeMove.WAIT if all(is_terminating(pod) for pod in observed.pods) else UpgradeMove.RECREATE
