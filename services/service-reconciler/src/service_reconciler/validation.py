"""Whether a RayService may be reconciled at all; the first rule that it breaks, in KubeRay's words.

Rules M1-M3 and S1-S6 of spec rayservice §3.2, §3.3. The rules for the cluster spec inside (S2) belong to RayClusters and come
in as an argument.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from common.api.opaque import Json
from common.api.ray_service import ClusterUpgradeOptions, RayService, RayServiceSpec
from common.errors import InvalidSpec
from service_reconciler.config import Config
from service_reconciler.reasons import EventReason
from service_reconciler.serve import initializing

ClusterRules = Callable[[Json, dict[str, str]], str | None]
"""The rules of a RayCluster: its spec as written and its annotations → what is wrong."""

LONGEST_NAME: Final = 47
"""So that `<name>-xxxxx-serve-svc` still fits into 63 characters."""
INCREMENTAL: Final = "NewClusterWithIncrementalUpgrade"
STRATEGIES: Final = (INCREMENTAL, "NewCluster", "None")

_DNS_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_LABEL_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """The rule that a RayService breaks, in words for its user."""

    reason: EventReason
    text: str


def no_cluster_rules(_spec: Json, _annotations: dict[str, str]) -> str | None:
    """Leave the cluster spec to the RayCluster's own validation."""
    return None


def violation(service: RayService, config: Config, cluster_rules: ClusterRules) -> Violation | None:
    """Return the first rule broken."""
    problem = _metadata_problem(service)
    if problem is not None:
        return Violation(reason=EventReason.INVALID_METADATA, text=f"The RayService metadata is invalid: {problem}")
    try:
        problem = _spec_problem(service, config, cluster_rules)
    except msgspec.ValidationError as error:
        problem = str(error)
    if problem is not None:
        return Violation(reason=EventReason.INVALID_SPEC, text=f"The RayService spec is invalid: {problem}")
    return None


def _metadata_problem(service: RayService) -> str | None:
    name = service.metadata.name
    if len(name) > LONGEST_NAME:
        return f"RayService name should be no more than {LONGEST_NAME} characters"
    if not _DNS_LABEL.fullmatch(name):
        return f"RayService name should be a valid DNS1035 label: [{_DNS_LABEL_RULE}]"
    try:
        initializing.limit(service.metadata.annotations)
    except InvalidSpec as problem:
        return f"RayService annotations is invalid: {problem}"
    return None


def _spec_problem(service: RayService, config: Config, cluster_rules: ClusterRules) -> str | None:
    spec = service.spec
    cluster = spec.ray_cluster_config
    if cluster.auth_options is not None and cluster.auth_options.enable_k8s_token_auth:
        return "K8s token auth mode is currently not supported for RayService"
    inner = cluster_rules(service.raw_cluster_config, service.metadata.annotations)
    if inner is not None:
        return inner
    if cluster.upgrade_strategy is not None and cluster.upgrade_strategy.type is not None:
        return "upgradeStrategy cannot be set when RayCluster is created by RayService"
    head_service: Json = cluster.head_group_spec.head_service or {}
    meta: Json = head_service.get("metadata") or {}
    if meta.get("name"):
        return "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set"
    return _strategy_problem(spec, config)


def _strategy_problem(spec: RayServiceSpec, config: Config) -> str | None:
    strategy = spec.upgrade_strategy.type if spec.upgrade_strategy is not None else None
    if strategy is not None and strategy not in STRATEGIES:
        return (
            f"Spec.UpgradeStrategy.Type value {strategy} is invalid, "
            "valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None"
        )
    delay = spec.ray_cluster_deletion_delay_seconds
    if delay is not None and delay < 0:
        return f"Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got {delay}"
    if strategy != INCREMENTAL or not config.incremental_upgrade_gate or spec.upgrade_strategy is None:
        return None
    if not spec.ray_cluster_config.enable_in_tree_autoscaling:
        return "Ray Autoscaler is required for NewClusterWithIncrementalUpgrade"
    options = spec.upgrade_strategy.cluster_upgrade_options
    if options is None:
        return "ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade"
    return _options_problem(options)


def _options_problem(options: ClusterUpgradeOptions) -> str | None:
    surge = 100 if options.max_surge_percent is None else options.max_surge_percent
    step = options.step_size_percent
    if not 0 <= surge <= 100:
        return "maxSurgePercent must be between 0 and 100"
    if step is None or not 0 <= step <= 100:
        return "stepSizePercent must be between 0 and 100"
    if step > surge:
        return "stepSizePercent must be less than or equal to maxSurgePercent"
    if options.interval_seconds is None or options.interval_seconds <= 0:
        return "intervalSeconds must be greater than 0"
    if not options.gateway_class_name:
        return "gatewayClassName is required for NewClusterWithIncrementalUpgrade"
    return None
