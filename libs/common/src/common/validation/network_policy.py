"""Rules on network policies (spec raycluster §4.2, S43-S44, and §4.2.3)."""

from typing import Final

from common.api import kubernetes_syntax
from common.api.ray_cluster import (
    NetworkPolicyConfig,
    NetworkPolicyRules,
    RayCluster,
    WorkerGroupNetworkPolicyRules,
)
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits
from common.validation.rules import Rule


def gate_off(cluster: RayCluster, gates: Gates) -> str | None:
    """S43."""
    if cluster.spec.network_policy is None or Gate.NETWORK_POLICY in gates:
        return None
    return "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled"


def rules_for_what_is_open(cluster: RayCluster, _: Gates) -> str | None:
    """S44, head and workers: a rule that lets in what is not kept out means something else than its author expects."""
    policy = cluster.spec.network_policy
    if policy is None:
        return None
    return _useless(policy, "head", policy.head) or _useless(policy, "worker", policy.worker)


def group_names(cluster: RayCluster, _: Gates) -> str | None:
    """S44, names: a group's name becomes part of an object's name."""
    if cluster.spec.network_policy is None:
        return None
    for group in traits.worker_groups(cluster):
        if problems := kubernetes_syntax.dns_1123_problems(group.group_name):
            return (
                f'worker group name "{group.group_name}" must be a valid DNS1123 label when networkPolicy is enabled '
                f"(it is embedded in the NetworkPolicy name): [{' '.join(problems)}]"
            )
    return None


def group_rules(cluster: RayCluster, _: Gates) -> str | None:
    """S44, entries per group."""
    policy = cluster.spec.network_policy
    if policy is None:
        return None
    known = {group.group_name for group in traits.worker_groups(cluster)}
    for entry in policy.worker_groups or []:
        where = f'workerGroups["{entry.group_name}"]'
        if broken := _useless(policy, where, entry):
            return broken
        if entry.group_name not in known:
            return f"networkPolicy.{where} does not match any group name in workerGroupSpecs"
    return None


def _useless(
    policy: NetworkPolicyConfig, where: str, rules: NetworkPolicyRules | WorkerGroupNetworkPolicyRules | None
) -> str | None:
    if rules is None:
        return None
    if policy.mode == "DenyAllEgress" and rules.ingress_rules:
        return _cannot(where, "ingress", "DenyAllEgress")
    if policy.mode == "DenyAllIngress" and rules.egress_rules:
        return _cannot(where, "egress", "DenyAllIngress")
    return None


def _cannot(where: str, direction: str, mode: str) -> str:
    return f'networkPolicy.{where}.{direction}Rules cannot be set when mode is "{mode}" ({direction} is not restricted)'


RULES: Final[tuple[Rule, ...]] = (gate_off, rules_for_what_is_open, group_names, group_rules)
