"""The NetworkPolicies of a cluster's pods: one for the head, one for each worker group.

The mode says whether ingress, egress or both are denied. In a denied direction, only traffic among
the cluster's pods and by the user's rules is allowed. DNS is not allowed automatically: where
egress is denied, the user's rules have to allow it. Spec raycluster §21; acceptance case 119.
"""

from typing import Final

import msgspec

from cluster_reconciler.resources import owner
from common import labels
from common.api import go_json
from common.api.opaque import Body, Json
from common.api.ray_cluster import PolicyRules, RayCluster
from common.api.ray_job import SubmissionMode
from common.kube.resources import NETWORK_POLICY
from common.ray import cluster_traits as traits
from common.ray import ports

_DENY_ALL: Final = "DenyAll"


def build(cluster: RayCluster) -> dict[str, Body]:
    """Return the NetworkPolicies of a cluster, by name; empty without `networkPolicy`."""
    config = cluster.spec.network_policy
    if config is None:
        return {}
    name, of_group = (
        cluster.metadata.name,
        {group_rules.group_name: group_rules for group_rules in config.worker_groups or []},
    )
    head, mode = {labels.CLUSTER: name, labels.NODE_TYPE: labels.HEAD}, config.mode or _DENY_ALL
    policies = [
        _build_policy(cluster, mode, f"{name}-head", head, config.head, *_allow_submitter(cluster))
    ]
    for group in traits.worker_groups(cluster):
        pods = {
            labels.CLUSTER: name,
            labels.NODE_TYPE: labels.WORKER,
            labels.GROUP: group.group_name,
        }
        rules = of_group.get(group.group_name, config.worker)
        policies.append(
            _build_policy(cluster, mode, f"{name}-workers-{group.group_name}", pods, rules)
        )
    return {policy["metadata"]["name"]: policy for policy in policies}


def _build_policy(
    cluster: RayCluster, mode: str, name: str, pods: Body, rules: PolicyRules, *ingress: Body
) -> Body:
    among = {"podSelector": {"matchLabels": {labels.CLUSTER: cluster.metadata.name}}}
    spec: Body = {"podSelector": {"matchLabels": pods}, "policyTypes": []}
    if mode in {_DENY_ALL, "DenyAllIngress"}:
        spec["policyTypes"].append("Ingress")
        spec["ingress"] = [
            {"from": [among]},
            *ingress,
            *_encode_rules("Ingress", rules and rules.ingress_rules),
        ]
    if mode in {_DENY_ALL, "DenyAllEgress"}:
        spec["policyTypes"].append("Egress")
        spec["egress"] = [{"to": [among]}, *_encode_rules("Egress", rules and rules.egress_rules)]
    group = pods.get(labels.GROUP, labels.HEAD_GROUP)
    own = {labels.CLUSTER: cluster.metadata.name, labels.GROUP: group, **labels.BY_OPERATOR}
    return owner.build_child(cluster, NETWORK_POLICY, name=name, labels=own, spec=spec)


def _allow_submitter(cluster: RayCluster) -> tuple[Body, ...]:
    """Return the rule that lets the submitter of the cluster's RayJob reach the dashboard.

    Empty if there is no such submitter.
    """
    owners = (
        reference
        for reference in cluster.metadata.owner_references
        if reference.controller and reference.kind == "RayJob"
    )
    job = next(
        (reference for reference in owners if reference.api_version.startswith("ray.io/")), None
    )
    mode = cluster.metadata.labels.get(labels.JOB_SUBMISSION_MODE)
    if job is None or mode != SubmissionMode.K8S_JOB:
        return ()
    pods = {labels.ORIGIN_NAME: job.name, labels.ORIGIN_KIND: "RayJob"}
    params = traits.start_params(cluster.spec.head_group_spec)
    port = traits.port_param(params, "dashboard-port", ports.DASHBOARD)
    return (
        {
            "from": [{"podSelector": {"matchLabels": pods}}],
            "ports": [{"protocol": "TCP", "port": port}],
        },
    )


def _encode_rules(direction: str, rules: list[Json] | None) -> list[Json]:
    """Return the user's rules as the API server stores them.

    Empty lists are left out, and each port has a protocol. `direction` is `Ingress` or `Egress`.
    """
    go_type = f"networking/v1.NetworkPolicy{direction}Rule"
    stored_rules: list[Json] = [
        msgspec.json.decode(go_json.encode(go_type, rule)) for rule in rules or []
    ]
    for port in (rule_port for rule in stored_rules for rule_port in rule.get("ports", [])):
        port.setdefault("protocol", "TCP")
    return stored_rules
