"""Rules on token authentication, network policies and mutual TLS (spec raycluster §4.2, S37-S46, §4.2.3 and §4.2.4)."""

from collections.abc import Iterator
from typing import Final

from common import pod_json
from common.api import kubernetes_syntax
from common.api.opaque import Body
from common.api.ray_cluster import (
    NetworkPolicyConfig,
    NetworkPolicyRules,
    RayCluster,
    WorkerGroupNetworkPolicyRules,
)
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits

_TOKEN_SINCE: Final = (2, 52)
_KUBERNETES_TOKEN_SINCE: Final = (2, 55)
_TLS_VOLUME: Final = "ray-tls"
_TLS_PATH: Final = "/etc/ray/tls"
_TLS_ENV: Final = ("RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_BY_OPERATOR: Final = "when tlsOptions is set - the operator manages TLS configuration"


def of_authentication(cluster: RayCluster) -> Iterator[str]:
    """Yield what is wrong with the source of tokens."""
    options, version = cluster.spec.auth_options, cluster.spec.ray_version
    has_token, by_kubernetes = traits.has_token_auth(cluster), traits.has_kubernetes_auth(cluster)
    if has_token:  # S37-S39
        yield from traits.version_problems(version, _TOKEN_SINCE, "authOptions.mode is 'token' but")
    if by_kubernetes and has_token and not traits.is_version_at_least(version, _KUBERNETES_TOKEN_SINCE):  # S40
        yield f"authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got {version}"
    if by_kubernetes and has_token and options is not None and options.secret_name:  # S41
        yield "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set"
    if by_kubernetes and not has_token:  # S42
        yield "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'"


def of_network_policies(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield what is wrong with modes and rules, and with groups that are named in them."""
    policy, groups = cluster.spec.network_policy, traits.worker_groups(cluster)
    if policy is None:
        return
    if Gate.NETWORK_POLICY not in gates:  # S43
        yield "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled"
    yield from _useless(policy, "head", policy.head)  # S44
    yield from _useless(policy, "worker", policy.worker)
    for group in groups:
        if found := kubernetes_syntax.dns_1123_problems(group.group_name):
            yield (
                f'worker group name "{group.group_name}" must be a valid DNS1123 label when networkPolicy is enabled '
                f"(it is embedded in the NetworkPolicy name): [{' '.join(found)}]"
            )
    known = {group.group_name for group in groups}
    for entry in policy.worker_groups or []:
        where = f'workerGroups["{entry.group_name}"]'
        yield from _useless(policy, where, entry)
        if entry.group_name not in known:
            yield f"networkPolicy.{where} does not match any group name in workerGroupSpecs"


def _useless(
    policy: NetworkPolicyConfig, where: str, rules: NetworkPolicyRules | WorkerGroupNetworkPolicyRules | None
) -> Iterator[str]:
    """Yield the rules that let in what is not kept out: they mean something else than their author expects."""
    if rules is None:
        return
    for direction, added, mode in (
        ("ingress", rules.ingress_rules, "DenyAllEgress"),
        ("egress", rules.egress_rules, "DenyAllIngress"),
    ):
        if added and policy.mode == mode:
            yield f'networkPolicy.{where}.{direction}Rules cannot be set when mode is "{mode}" ({direction} is not restricted)'


def is_tls_enabled(cluster: RayCluster) -> bool:
    """Return whether the cluster asks for TLS."""
    options = cluster.spec.tls_options
    return options is not None and options.enabled is True


def of_tls(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield what conflicts with the operator's variables and mounts, in each Ray container and in the autoscaler's options."""
    if cluster.spec.tls_options is not None and Gate.MTLS not in gates:  # S45
        yield "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled"
    if not is_tls_enabled(cluster):
        return
    pods = [("head Pod", cluster.spec.head_group_spec.template)]  # S46
    pods += [(f'worker group "{group.group_name}"', group.template) for group in traits.worker_groups(cluster)]
    for pod, template in pods:
        container = pod_json.ray_container(template)
        yield from _managed_env(container, pod, "automatically")
        yield from _managed_mounts(container, pod)
    if (options := cluster.spec.autoscaler_options) is not None:
        yield from _managed_env({"env": options.env}, "autoscalerOptions.env", "for the autoscaler automatically")
        yield from _managed_mounts({"volumeMounts": options.volume_mounts}, "autoscalerOptions.volumeMounts")


def _managed_env(container: Body, where: str, how: str) -> Iterator[str]:
    for name in _TLS_ENV:
        if pod_json.has_env(container, name):
            yield f"cannot set {name} environment variable in {where} {_BY_OPERATOR} {how}"


def _managed_mounts(container: Body, where: str) -> Iterator[str]:
    for mount in pod_json.bodies(container, "volumeMounts"):
        if mount.get("name") == _TLS_VOLUME:
            yield f'cannot use volume mount named "{_TLS_VOLUME}" in {where} {_BY_OPERATOR} automatically'
        if mount.get("mountPath") == _TLS_PATH:
            yield f'cannot use volume mount at path "{_TLS_PATH}" in {where} {_BY_OPERATOR} automatically'
