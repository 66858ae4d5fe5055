"""Find the first rule that a RayService breaks, with KubeRay's text.

Rules M1-M3 and S1-S6 of spec rayservice §3.2, §3.3. Rule S2 stands for all rules of RayClusters,
which the cluster spec and the annotations must obey (§3.4). A spec is also refused if it asks for a
protection that raybus cannot give yet, so that no cluster runs without the protection.

The annotation `ray.io/initializing-timeout` limits the first start (§15; acceptance 5, 83, 84).
"""

from datetime import timedelta
from typing import Final

import msgspec
import re2

from common import durations, labels
from common.api.kubernetes_syntax import dns_1035_problems
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.errors import InvalidSpec, Problem
from common.feature_gates import FeatureGate, Gates
from common.ray import owner, serve_writer
from common.upgrade import controls as upgrade_controls
from common.validation import ray_cluster as cluster_rules
from service_reconciler.reasons import EventReason

MAX_NAME_LENGTH: Final = 47
"""Maximum characters of a name, so that `<name>-xxxxx-serve-svc` fits a DNS label (63)."""
STRATEGIES: Final = (serve_writer.INCREMENTAL, "NewCluster", "None")

MAX_LIMIT: Final = 10**9
"""Maximum timeout in seconds (31 years). A longer timeout is cut, so that dates cannot overflow."""
_SECONDS: Final = re2.compile(r"[+-]?[0-9]{1,18}")
"""Go's format of an integer: no blanks, no underscores, ASCII digits only."""


def violation(service: RayService, gates: Gates) -> Problem[EventReason] | None:
    """Return the first rule that the RayService breaks; None if it is valid."""
    meta, problem = service.metadata, None
    if len(meta.name) > MAX_NAME_LENGTH:
        problem = f"RayService name should be no more than {MAX_NAME_LENGTH} characters"
    elif violations := dns_1035_problems(meta.name):
        problem = f"RayService name should be a valid DNS1035 label: [{' '.join(violations)}]"
    else:
        try:
            initializing_limit(meta.annotations)
        except InvalidSpec as error:
            problem = f"RayService annotations is invalid: {error}"
    if problem is not None:
        return Problem(
            EventReason.INVALID_METADATA, f"The RayService metadata is invalid: {problem}"
        )
    try:
        problem = _find_spec_problem(service, gates)
    except msgspec.ValidationError as error:
        problem = str(error)
    return (
        None
        if problem is None
        else Problem(EventReason.INVALID_SPEC, f"The RayService spec is invalid: {problem}")
    )


def initializing_limit(annotations: dict[str, str]) -> timedelta | None:
    """Return the time limit of the first start of a RayService; None without a limit.

    Raises `InvalidSpec` if the annotation is not a positive duration or number of seconds.
    """
    value, name = (
        annotations.get(labels.INITIALIZING_TIMEOUT, ""),
        f"annotation {labels.INITIALIZING_TIMEOUT}",
    )
    if not value:
        return None
    if (length := durations.parse(value)) is not None:
        if length <= timedelta(0):
            raise InvalidSpec(f"{name} must be a positive duration, got: {value}")
        return length
    if not _SECONDS.fullmatch(value):
        expected = "Expected Go duration format (e.g., '5m', '1h') or positive integer seconds"
        raise InvalidSpec(f"{name} has invalid format: {value}. {expected}")
    if int(value) <= 0:
        raise InvalidSpec(f"{name} must be a positive integer (seconds), got: {value}")
    return timedelta(seconds=min(int(value), MAX_LIMIT))


def _find_spec_problem(service: RayService, gates: Gates) -> str | None:
    config, meta = service.spec.ray_cluster_config, service.metadata
    cluster = RayCluster(  # Built as raybus would create it.
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels=owner.marks(meta.name),
            annotations=meta.annotations,
        ),
        spec_json=msgspec.Raw(msgspec.json.encode(service.raw_cluster_config)),
    )
    if (
        inner := cluster_rules.spec(cluster, gates)
        or cluster_rules.upgrade_type_on_a_child(cluster)
    ) is not None:
        return inner
    head_meta: Json = (config.head_group_spec.head_service or {}).get("metadata") or {}
    if head_meta.get("name"):
        return "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set"
    return _find_strategy_problem(service, gates)


def _find_strategy_problem(service: RayService, gates: Gates) -> str | None:
    spec = service.spec
    strategy = spec.upgrade_strategy.type if spec.upgrade_strategy is not None else None
    if strategy is not None and strategy not in STRATEGIES:
        return (
            f"Spec.UpgradeStrategy.Type value {strategy} is invalid, "
            "valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None"
        )
    delay = spec.ray_cluster_deletion_delay_seconds
    if delay is not None and delay < 0:
        return f"Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got {delay}"
    if (
        strategy != serve_writer.INCREMENTAL
        or FeatureGate.INCREMENTAL_UPGRADE not in gates
        or spec.upgrade_strategy is None
    ):
        return None
    if not spec.ray_cluster_config.enable_in_tree_autoscaling:
        return "Ray Autoscaler is required for NewClusterWithIncrementalUpgrade"
    options = spec.upgrade_strategy.cluster_upgrade_options
    if options is None:
        return "ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade"
    # The step size may be as large as the unavailable percentage, if that is larger.
    unavailable = upgrade_controls.read_controls(service).unavailable
    surge = 100 if options.max_surge_percent is None else options.max_surge_percent
    step = -1 if options.step_size_percent is None else options.step_size_percent
    rules = {
        "maxSurgePercent must be between 0 and 100": 0 <= surge <= 100,
        "stepSizePercent must be between 0 and 100": 0 <= step <= 100,
        "stepSizePercent must be less than or equal to maxSurgePercent": step
        <= max(surge, unavailable),
        "intervalSeconds must be greater than 0": (options.interval_seconds or 0) > 0,
        "gatewayClassName is required for NewClusterWithIncrementalUpgrade": bool(
            options.gateway_class_name
        ),
    }
    return next((text for text, is_obeyed in rules.items() if not is_obeyed), None)
