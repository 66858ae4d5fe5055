"""Rules on the head, on each worker group by itself, and on the autoscaler (spec raycluster §4.2, S1-S15 and S24-S31, and §4.3)."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from common import pod_json
from common.api import kubernetes_syntax
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits
from common.ray.cluster_traits import RayGroup

START_COMMAND_ENV: Final = "KUBERAY_GEN_AUTOSCALER_START_CMD"
_PRIORITY_SINCE: Final = (2, 56)
_RESOURCE_PARAMS: Final = ("num-cpus", "num-gpus", "memory", "resources")


def problems(cluster: RayCluster) -> Iterator[str]:
    """Yield what is wrong with the head, then with group after group."""
    head = cluster.spec.head_group_spec
    if not pod_json.containers(head.template):  # S1
        yield "headGroupSpec should have at least one container"
    yield from _shape("Head", head)  # S2-S4
    for group in traits.worker_groups(cluster):
        yield from _of_workers(cluster, group)


def _of_workers(cluster: RayCluster, group: WorkerGroupSpec) -> Iterator[str]:
    name, low, high = f"worker group {group.group_name}", group.min_replicas, group.max_replicas
    idle, priority = group.idle_timeout_seconds, group.priority
    if not pod_json.containers(group.template):  # S5
        yield "workerGroupSpec should have at least one container"
    if not traits.is_autoscaling(cluster) and (low is None or high is None):  # S6
        yield f"{name} must set both minReplicas and maxReplicas when autoscaling is disabled"
    if low is not None and low < 0:  # S7
        yield f"{name} has negative minReplicas {low}"
    if high is not None and high < 0:  # S8
        yield f"{name} has negative maxReplicas {high}"
    if low is not None and high is not None and low > high:  # S9
        yield f"{name} has minReplicas {low} greater than maxReplicas {high}"
    yield from _shape(group.group_name, group)  # S10-S12
    if idle is not None and idle < 0:  # S13
        yield f"{name}: idleTimeoutSeconds must be non-negative, got {idle}"
    if idle is not None and not _has_autoscaler_v2(cluster):  # S14
        yield (
            f"{name}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set "
            ".spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to 'true' "
            "in the head pod if using KubeRay < 1.4.0)"
        )
    if priority:  # S15a-S15c
        yield from traits.version_problems(cluster.spec.ray_version, _PRIORITY_SINCE, f"{name}: priority is set, but")
    if priority and not _has_autoscaler_v2(cluster):  # S15d
        yield (
            f"{name}: priority is set to {priority}, but autoscaler v2 is not enabled. "
            "Priority is only supported with autoscaler v2 enabled"
        )


def _shape(name: str, group: RayGroup) -> Iterator[str]:
    params = traits.start_params(group)
    if group.resources and any(params.get(param) for param in _RESOURCE_PARAMS):
        yield f"resource fields should not be set in both rayStartParams and Resources for {name} group; please use only one"
    if "labels" in params:
        yield f"rayStartParams['labels'] is not supported for {name} group; please use the top-level Labels field instead"
    found: list[str] = []
    for key, value in sorted((group.labels or {}).items()):
        wrong_key, wrong_value = (
            kubernetes_syntax.label_key_problems(key),
            kubernetes_syntax.label_value_problems(value),
        )
        found += [f"invalid label key for {name} group: '{key}', error: {problem}" for problem in wrong_key]
        start = f"invalid label value for key '{key}' in {name} group: '{value}'"
        found += [f"{start}, error: {problem}" for problem in wrong_value]
    if found:
        yield "; ".join(found)


def _has_autoscaler_v2(cluster: RayCluster) -> bool:
    by_env = traits.head_env_value(cluster, traits.AUTOSCALER_V2_ENV) in {"1", "true"}
    return by_env or traits.autoscaler_version(cluster) == "v2"


def of_autoscaling(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield what is wrong with suspended groups, the autoscaler's version, restart policies and the autoscaler's options."""
    options, is_on = cluster.spec.autoscaler_options, traits.is_autoscaling(cluster)
    version = traits.autoscaler_version(cluster) if is_on else None
    env = traits.head_env_value(cluster, traits.AUTOSCALER_V2_ENV)
    suspended = next((group.group_name for group in traits.worker_groups(cluster) if group.suspend), None)
    if suspended is not None and Gate.DELETION_POLICY not in gates:  # S24
        yield f"worker group {suspended} can be suspended only when the RayJobDeletionPolicy feature gate is enabled"
    if not is_on and env in {"1", "true"}:  # S25
        yield (
            f"environment variable {traits.AUTOSCALER_V2_ENV} cannot be set to '{env}' when enableInTreeAutoscaling is false. "
            "Please set enableInTreeAutoscaling: true to use autoscaler v2"
        )
    if is_on and suspended is not None:  # S26
        yield f"worker group {suspended} cannot be suspended with Autoscaler enabled"
    if version is not None and env is not None:  # S27
        yield (
            f"both .spec.autoscalerOptions.version and head Pod env var {traits.AUTOSCALER_V2_ENV} are set, "
            "please only use the former"
        )
    if version == "v2" and _restarts(cluster.spec.head_group_spec):  # S28
        yield "restartPolicy for head Pod should be Never or unset when using autoscaler V2"
    if version == "v2" and (restarting := _restarting_groups(cluster)):  # S29
        yield f"restartPolicy for worker group {restarting[0]} should be Never or unset when using autoscaler V2"
    if options is not None and (options.idle_timeout_seconds or 0) < 0:  # S30
        yield f"autoscalerOptions.idleTimeoutSeconds must be non-negative, got {options.idle_timeout_seconds}"
    if options is not None and pod_json.has_env({"env": options.env}, START_COMMAND_ENV):  # S31
        yield (
            f"autoscalerOptions.env must not contain {START_COMMAND_ENV}: "
            "it is managed by KubeRay and injected automatically into the autoscaler container"
        )


def warnings(cluster: RayCluster) -> Iterator[str]:
    """Yield what is allowed and unwise: the warning of §4.3, and names of groups that come again."""
    groups = _restarting_groups(cluster)
    if groups and traits.is_autoscaling(cluster) and traits.autoscaler_version(cluster) == "v1":
        yield f"restartPolicy for worker groups [{', '.join(groups)}] should be Never or unset when using autoscaler V1"
    for name, times in Counter(each.group_name for each in traits.worker_groups(cluster)).items():
        if times > 1:
            yield f"{times} worker groups are called {name!r}: only the first one has pods; give the others names of their own"


def _restarting_groups(cluster: RayCluster) -> list[str]:
    return [group.group_name for group in traits.worker_groups(cluster) if _restarts(group)]


def _restarts(group: RayGroup) -> bool:
    return pod_json.text(pod_json.spec(group.template), "restartPolicy") not in {"", "Never"}
