"""Rules on the head and on each worker group by itself (spec raycluster §4.2, S1-S15)."""

from collections.abc import Callable
from typing import Final, TypeAlias

from common import pod_json
from common.api import kubernetes_syntax
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.ray.cluster_traits import RayGroup
from common.validation.rules import Rule, old_ray

GroupRule: TypeAlias = Callable[[RayCluster, WorkerGroupSpec], str | None]

HEAD: Final = "Head"
"""What messages call the head's group."""

_PRIORITY_SINCE: Final = (2, 56)
_RESOURCE_PARAMS: Final = ("num-cpus", "num-gpus", "memory", "resources")


def head_without_container(cluster: RayCluster, _: Gates) -> str | None:
    """S1."""
    if pod_json.containers(cluster.spec.head_group_spec.template):
        return None
    return "headGroupSpec should have at least one container"


def head_shape(cluster: RayCluster, _: Gates) -> str | None:
    """S2-S4."""
    return _shape(HEAD, cluster.spec.head_group_spec)


def worker_groups(cluster: RayCluster, _: Gates) -> str | None:
    """S5-S15, group by group."""
    broken = (rule(cluster, group) for group in traits.worker_groups(cluster) for rule in _WORKER_RULES)
    return next((message for message in broken if message is not None), None)


def without_container(_: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S5."""
    return None if pod_json.containers(group.template) else "workerGroupSpec should have at least one container"


def bounds_missing(cluster: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S6."""
    if traits.is_autoscaling(cluster) or (group.min_replicas is not None and group.max_replicas is not None):
        return None
    return f"worker group {group.group_name} must set both minReplicas and maxReplicas when autoscaling is disabled"


def minimum_negative(_: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S7."""
    if group.min_replicas is None or group.min_replicas >= 0:
        return None
    return f"worker group {group.group_name} has negative minReplicas {group.min_replicas}"


def maximum_negative(_: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S8."""
    if group.max_replicas is None or group.max_replicas >= 0:
        return None
    return f"worker group {group.group_name} has negative maxReplicas {group.max_replicas}"


def minimum_above_maximum(_: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S9."""
    low, high = group.min_replicas, group.max_replicas
    if low is None or high is None or low <= high:
        return None
    return f"worker group {group.group_name} has minReplicas {low} greater than maxReplicas {high}"


def shape(_: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S10-S12."""
    return _shape(group.group_name, group)


def idle_timeout_negative(_: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S13."""
    seconds = group.idle_timeout_seconds
    if seconds is None or seconds >= 0:
        return None
    return f"worker group {group.group_name}: idleTimeoutSeconds must be non-negative, got {seconds}"


def idle_timeout_without_autoscaler_v2(cluster: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S14."""
    if group.idle_timeout_seconds is None or _has_autoscaler_v2(cluster):
        return None
    return (
        f"worker group {group.group_name}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set "
        ".spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to 'true' "
        "in the head pod if using KubeRay < 1.4.0)"
    )


def priority_with_old_ray(cluster: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S15a-S15c."""
    if not group.priority:
        return None
    return old_ray(cluster, _PRIORITY_SINCE, f"worker group {group.group_name}: priority is set, but")


def priority_without_autoscaler_v2(cluster: RayCluster, group: WorkerGroupSpec) -> str | None:
    """S15d."""
    if not group.priority or _has_autoscaler_v2(cluster):
        return None
    return (
        f"worker group {group.group_name}: priority is set to {group.priority}, but autoscaler v2 is not enabled. "
        "Priority is only supported with autoscaler v2 enabled"
    )


def _shape(name: str, group: RayGroup) -> str | None:
    return _resources_twice(name, group) or _labels_as_param(name, group) or _labels_malformed(name, group)


def _resources_twice(name: str, group: RayGroup) -> str | None:
    params = traits.start_params(group)
    if not group.resources or not any(params.get(param) for param in _RESOURCE_PARAMS):
        return None
    return (
        f"resource fields should not be set in both rayStartParams and Resources for {name} group; please use only one"
    )


def _labels_as_param(name: str, group: RayGroup) -> str | None:
    if "labels" not in traits.start_params(group):
        return None
    return f"rayStartParams['labels'] is not supported for {name} group; please use the top-level Labels field instead"


def _labels_malformed(name: str, group: RayGroup) -> str | None:
    problems: list[str] = []
    for key, value in sorted((group.labels or {}).items()):
        problems += [
            f"invalid label key for {name} group: '{key}', error: {problem}"
            for problem in kubernetes_syntax.label_key_problems(key)
        ]
        problems += [
            f"invalid label value for key '{key}' in {name} group: '{value}', error: {problem}"
            for problem in kubernetes_syntax.label_value_problems(value)
        ]
    return "; ".join(problems) or None


def _has_autoscaler_v2(cluster: RayCluster) -> bool:
    by_env = traits.head_env_value(cluster, traits.AUTOSCALER_V2_ENV) in {"1", "true"}
    return by_env or traits.autoscaler_version(cluster) == "v2"


_WORKER_RULES: Final[tuple[GroupRule, ...]] = (
    without_container,
    bounds_missing,
    minimum_negative,
    maximum_negative,
    minimum_above_maximum,
    shape,
    idle_timeout_negative,
    idle_timeout_without_autoscaler_v2,
    priority_with_old_ray,
    priority_without_autoscaler_v2,
)

RULES: Final[tuple[Rule, ...]] = (head_without_container, head_shape, worker_groups)
