"""Validate what a RayJob deletes after its end, with KubeRay's messages (spec rayjob §3.3 to §3.5).

Rules V4 to V8 of the specification come first. The others depend on the form of the strategy: one
policy for success and one for failure, or a list of deletion rules with a delay each.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, TypeAlias

from common import feature_gates
from common.api.ray_job import DeletionRule, RayJobSpec
from common.feature_gates import FeatureGate

DELETION_ORDER: Final = ("DeleteWorkers", "DeleteCluster", "DeleteSelf")
"""The policies from the least to the most destructive, which must not have a shorter delay."""
_NEEDS_OWN_CLUSTER: Final = frozenset({"DeleteCluster", "DeleteWorkers"})
_INVALID: Final = "The RayJob spec is invalid: "
_Condition: TypeAlias = tuple[str, str]
"""The name of a condition and its value, for example ("JobStatus", "FAILED")."""


def find_violations(spec: RayJobSpec, gates: feature_gates.Gates) -> Iterator[str]:
    """Yield the violations in the deletion strategy of a RayJob."""
    strategy = spec.deletion_strategy
    if strategy is None:
        return
    is_legacy = strategy.on_success is not None or strategy.on_failure is not None
    if FeatureGate.DELETION_POLICY not in gates:  # V4
        yield "RayJobDeletionPolicy feature gate must be enabled to use DeletionStrategy"
    if strategy.deletion_rules and spec.shutdown_after_job_finishes:  # V5
        yield (
            f"{_INVALID}spec.shutdownAfterJobFinishes and "
            "spec.deletionStrategy.deletionRules are mutually exclusive"
        )
    if strategy.deletion_rules and is_legacy:  # V6
        yield (
            f"{_INVALID}Cannot use both legacy onSuccess/onFailure fields and deletionRules "
            "simultaneously"
        )
    if is_legacy:  # V7
        yield from _of_policies(spec)
    elif strategy.deletion_rules:
        if problems := [*_of_rules(spec, strategy.deletion_rules)]:
            yield "\n".join(problems)
    else:  # V8
        yield (
            f"{_INVALID}DeletionStrategy requires either BOTH onSuccess and onFailure, OR the "
            "deletionRules field (cannot be empty)"
        )


def _of_policies(spec: RayJobSpec) -> Iterator[str]:
    strategy = spec.deletion_strategy
    if strategy is None or strategy.on_success is None or strategy.on_failure is None:
        yield (
            "both DeletionStrategy.OnSuccess and DeletionStrategy.OnFailure must be set when using "
            "the legacy deletion policy fields of DeletionStrategy"
        )
        return
    policies = {
        "Success": strategy.on_success.policy,
        "Failure": strategy.on_failure.policy,
    }
    for outcome, policy in policies.items():
        if policy is None:
            yield (
                f"the DeletionPolicyType field of DeletionStrategy.On{outcome} cannot be unset "
                "when DeletionStrategy is enabled"
            )
    for outcome, policy in policies.items():
        if spec.cluster_selector and policy in _NEEDS_OWN_CLUSTER:
            yield (
                f"the ClusterSelector mode doesn't support DeletionStrategy={policy} on "
                f"{outcome.lower()}"
            )
    if "DeleteWorkers" in policies.values() and _is_autoscaling(spec):
        yield (
            "DeletionStrategy=DeleteWorkers currently does not support RayCluster with autoscaling "
            "enabled"
        )
    if spec.shutdown_after_job_finishes and "DeleteNone" in policies.values():
        # "Finshes" is KubeRay's spelling.
        yield (
            f"{_INVALID}shutdownAfterJobFinshes is set to 'true' while deletion policy is "
            "'DeleteNone'"
        )


def _of_rules(spec: RayJobSpec, rules: list[DeletionRule]) -> Iterator[str]:
    """Yield the violations of each rule, then conflicts between rules with the same condition."""
    delays: dict[_Condition, dict[str, int]] = {}
    for index, rule in enumerate(rules):
        problem = _of_rule(spec, rule)
        if problem is None:
            name, value = _condition(rule)
            same_condition = delays.setdefault((name, value), {})
            if rule.policy in same_condition:
                problem = (
                    f"duplicate rule for DeletionPolicyType '{rule.policy}' and {name} '{value}'"
                )
            else:
                same_condition[rule.policy] = rule.condition.ttl_seconds
        if problem is not None:
            yield f"deletionRules[{index}]: {problem}"
    for name in ("JobStatus", "JobDeploymentStatus"):
        for condition in sorted(delays):
            if condition[0] == name:
                yield from _of_delays(condition, delays[condition])


def _of_rule(spec: RayJobSpec, rule: DeletionRule) -> str | None:
    condition = rule.condition
    statuses = (condition.job_status, condition.job_deployment_status)
    if None not in statuses:
        return "cannot set both JobStatus and JobDeploymentStatus at the same time"
    if statuses == (None, None):
        return "exactly one of JobStatus and JobDeploymentStatus must be set"
    if condition.ttl_seconds < 0:
        return "TTLSeconds must be non-negative"
    if spec.cluster_selector and rule.policy in _NEEDS_OWN_CLUSTER:
        return f"DeletionPolicyType '{rule.policy}' not supported when ClusterSelector is set"
    if rule.policy == "DeleteWorkers" and _is_autoscaling(spec):
        return "DeletionPolicyType 'DeleteWorkers' not supported with autoscaling enabled"
    return None


def _of_delays(condition: _Condition, delays: Mapping[str, int]) -> Iterator[str]:
    name, value = condition
    present = [policy for policy in DELETION_ORDER if policy in delays]
    for earlier, later in pairwise(present):
        if delays[later] < delays[earlier]:
            yield (
                f"for {name} '{value}': {later} TTL ({delays[later]}) must be >= "
                f"{earlier} TTL ({delays[earlier]})"
            )


def _condition(rule: DeletionRule) -> _Condition:
    if rule.condition.job_status is not None:
        return "JobStatus", rule.condition.job_status
    return "JobDeploymentStatus", rule.condition.job_deployment_status or ""


def _is_autoscaling(spec: RayJobSpec) -> bool:
    cluster = spec.ray_cluster_spec
    return cluster is not None and cluster.enable_in_tree_autoscaling is True
