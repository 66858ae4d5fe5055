"""Rules on suspended groups and on the autoscaler (spec raycluster §4.2, S24-S31, and §4.3)."""

from collections.abc import Iterator
from typing import Final

from common import pod_json
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits
from common.ray.cluster_traits import AUTOSCALER_V2_ENV, RayGroup

START_COMMAND_ENV: Final = "KUBERAY_GEN_AUTOSCALER_START_CMD"


def problems(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield what is wrong with suspended groups, the autoscaler's version, restart policies and the autoscaler's options."""
    options, is_on = cluster.spec.autoscaler_options, traits.is_autoscaling(cluster)
    version = traits.autoscaler_version(cluster) if is_on else None
    env = traits.head_env_value(cluster, AUTOSCALER_V2_ENV)
    suspended = next((group.group_name for group in traits.worker_groups(cluster) if group.suspend), None)
    if suspended is not None and Gate.DELETION_POLICY not in gates:  # S24
        yield f"worker group {suspended} can be suspended only when the RayJobDeletionPolicy feature gate is enabled"
    if not is_on and env in {"1", "true"}:  # S25
        yield (
            f"environment variable {AUTOSCALER_V2_ENV} cannot be set to '{env}' when enableInTreeAutoscaling is false. "
            "Please set enableInTreeAutoscaling: true to use autoscaler v2"
        )
    if is_on and suspended is not None:  # S26
        yield f"worker group {suspended} cannot be suspended with Autoscaler enabled"
    if version is not None and env is not None:  # S27
        yield (
            f"both .spec.autoscalerOptions.version and head Pod env var {AUTOSCALER_V2_ENV} are set, "
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


def v1_with_restarting_workers(cluster: RayCluster) -> str | None:
    """Return the warning of §4.3."""
    groups = _restarting_groups(cluster)
    if not groups or not traits.is_autoscaling(cluster) or traits.autoscaler_version(cluster) != "v1":
        return None
    return f"restartPolicy for worker groups [{', '.join(groups)}] should be Never or unset when using autoscaler V1"


def _restarting_groups(cluster: RayCluster) -> list[str]:
    return [group.group_name for group in traits.worker_groups(cluster) if _restarts(group)]


def _restarts(group: RayGroup) -> bool:
    return pod_json.text(pod_json.spec(group.template), "restartPolicy") not in {"", "Never"}
