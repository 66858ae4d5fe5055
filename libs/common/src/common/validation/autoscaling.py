"""Rules on suspended groups and on the autoscaler (spec raycluster §4.2, S24-S31, and §4.3)."""

from typing import Final

from common import pod_json
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits
from common.ray.cluster_traits import AUTOSCALER_V2_ENV, RayGroup
from common.validation.rules import Rule

START_COMMAND_ENV: Final = "KUBERAY_GEN_AUTOSCALER_START_CMD"


def suspended_group_without_gate(cluster: RayCluster, gates: Gates) -> str | None:
    """S24."""
    group = _suspended_group(cluster)
    if group is None or Gate.DELETION_POLICY in gates:
        return None
    return f"worker group {group} can be suspended only when the RayJobDeletionPolicy feature gate is enabled"


def v2_env_without_autoscaling(cluster: RayCluster, _: Gates) -> str | None:
    """S25."""
    value = traits.head_env_value(cluster, AUTOSCALER_V2_ENV)
    if traits.is_autoscaling(cluster) or value not in {"1", "true"}:
        return None
    return (
        f"environment variable {AUTOSCALER_V2_ENV} cannot be set to '{value}' when enableInTreeAutoscaling is false. "
        "Please set enableInTreeAutoscaling: true to use autoscaler v2"
    )


def suspended_group_with_autoscaling(cluster: RayCluster, _: Gates) -> str | None:
    """S26."""
    group = _suspended_group(cluster)
    if group is None or not traits.is_autoscaling(cluster):
        return None
    return f"worker group {group} cannot be suspended with Autoscaler enabled"


def version_and_env(cluster: RayCluster, _: Gates) -> str | None:
    """S27."""
    if not traits.is_autoscaling(cluster) or traits.autoscaler_version(cluster) is None:
        return None
    if traits.head_env_value(cluster, AUTOSCALER_V2_ENV) is None:
        return None
    return (
        f"both .spec.autoscalerOptions.version and head Pod env var {AUTOSCALER_V2_ENV} are set, "
        "please only use the former"
    )


def v2_with_restarting_head(cluster: RayCluster, _: Gates) -> str | None:
    """S28."""
    if not _uses(cluster, "v2") or not _restarts(cluster.spec.head_group_spec):
        return None
    return "restartPolicy for head Pod should be Never or unset when using autoscaler V2"


def v2_with_restarting_workers(cluster: RayCluster, _: Gates) -> str | None:
    """S29."""
    groups = _restarting_groups(cluster)
    if not _uses(cluster, "v2") or not groups:
        return None
    return f"restartPolicy for worker group {groups[0]} should be Never or unset when using autoscaler V2"


def idle_timeout_negative(cluster: RayCluster, _: Gates) -> str | None:
    """S30."""
    options = cluster.spec.autoscaler_options
    if options is None or options.idle_timeout_seconds is None or options.idle_timeout_seconds >= 0:
        return None
    return f"autoscalerOptions.idleTimeoutSeconds must be non-negative, got {options.idle_timeout_seconds}"


def start_command_env_set(cluster: RayCluster, _: Gates) -> str | None:
    """S31."""
    options = cluster.spec.autoscaler_options
    if options is None or not pod_json.has_env({"env": options.env}, START_COMMAND_ENV):
        return None
    return (
        f"autoscalerOptions.env must not contain {START_COMMAND_ENV}: "
        "it is managed by KubeRay and injected automatically into the autoscaler container"
    )


def v1_with_restarting_workers(cluster: RayCluster) -> str | None:
    """Return the warning of §4.3."""
    groups = _restarting_groups(cluster)
    if not _uses(cluster, "v1") or not groups:
        return None
    return f"restartPolicy for worker groups [{', '.join(groups)}] should be Never or unset when using autoscaler V1"


def _uses(cluster: RayCluster, version: str) -> bool:
    return traits.is_autoscaling(cluster) and traits.autoscaler_version(cluster) == version


def _suspended_group(cluster: RayCluster) -> str | None:
    return next((group.group_name for group in traits.worker_groups(cluster) if group.suspend), None)


def _restarting_groups(cluster: RayCluster) -> list[str]:
    return [group.group_name for group in traits.worker_groups(cluster) if _restarts(group)]


def _restarts(group: RayGroup) -> bool:
    return pod_json.text(pod_json.spec(group.template), "restartPolicy") not in {"", "Never"}


RULES: Final[tuple[Rule, ...]] = (
    suspended_group_without_gate,
    v2_env_without_autoscaling,
    suspended_group_with_autoscaling,
    version_and_env,
    v2_with_restarting_head,
    v2_with_restarting_workers,
    idle_timeout_negative,
    start_command_env_set,
)
