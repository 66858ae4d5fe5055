"""Rules on mutual TLS (spec raycluster §4.2, S45-S46, and §4.2.4)."""

from typing import Final

from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits
from common.validation.rules import Rule

VOLUME: Final = "ray-tls"
PATH: Final = "/etc/ray/tls"
_MANAGED: Final = ("RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_BY_OPERATOR: Final = "when tlsOptions is set - the operator manages TLS configuration"


def gate_off(cluster: RayCluster, gates: Gates) -> str | None:
    """S45."""
    if cluster.spec.tls_options is None or Gate.MTLS in gates:
        return None
    return "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled"


def is_enabled(cluster: RayCluster) -> bool:
    """Return whether the cluster asks for TLS."""
    options = cluster.spec.tls_options
    return options is not None and options.enabled is True


def conflict_in_a_pod(cluster: RayCluster, _: Gates) -> str | None:
    """S46, head and worker groups."""
    if not is_enabled(cluster):
        return None
    places = [("head Pod", cluster.spec.head_group_spec.template)]
    places += [(f'worker group "{group.group_name}"', group.template) for group in traits.worker_groups(cluster)]
    for where, template in places:
        container = pod_json.ray_container(template)
        if broken := _managed_env(container, where, "automatically") or _managed_mount(container, where):
            return broken
    return None


def conflict_in_the_autoscaler(cluster: RayCluster, _: Gates) -> str | None:
    """S46, autoscalerOptions."""
    options = cluster.spec.autoscaler_options
    if not is_enabled(cluster) or options is None:
        return None
    container: Body = {"env": options.env, "volumeMounts": options.volume_mounts}
    return _managed_env(container, "autoscalerOptions.env", "for the autoscaler automatically") or _managed_mount(
        container, "autoscalerOptions.volumeMounts"
    )


def _managed_env(container: Body, where: str, how: str) -> str | None:
    wrong = next((name for name in _MANAGED if pod_json.has_env(container, name)), None)
    return f"cannot set {wrong} environment variable in {where} {_BY_OPERATOR} {how}" if wrong else None


def _managed_mount(container: Body, where: str) -> str | None:
    for mount in pod_json.bodies(container, "volumeMounts"):
        if mount.get("name") == VOLUME:
            return f'cannot use volume mount named "{VOLUME}" in {where} {_BY_OPERATOR} automatically'
        if mount.get("mountPath") == PATH:
            return f'cannot use volume mount at path "{PATH}" in {where} {_BY_OPERATOR} automatically'
    return None


RULES: Final[tuple[Rule, ...]] = (gate_off, conflict_in_a_pod, conflict_in_the_autoscaler)
