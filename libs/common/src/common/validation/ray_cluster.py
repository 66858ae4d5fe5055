"""Validate RayClusters: return the first violation, with KubeRay's message.

Each group of rules yields its violations in the order of the specification; a comment has the
number of each rule. `features` has the rules of optional features. Only the first violation is
used: users see only that one, and later rules may assume that earlier ones hold. Behaviour: spec
raycluster §4; acceptance cases 5-18.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from common import conditions, pod_json, quantity
from common.api import kubernetes_syntax
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import FeatureGate, Gates
from common.ray import cluster_traits as traits
from common.ray.cluster_traits import RayGroup
from common.validation import features

MAX_NAME_LENGTH: Final = 53
"""Maximum characters of a RayCluster's name.

Names derived from it, with endings such as `-serve-svc`, may have 63."""
NO_CERT_MANAGER: Final = "tlsOptions requires cert-manager, but cert-manager is not installed"
"""Violation of a cluster with tlsOptions if cert-manager is not installed (§4.4)."""
CERT_MANAGER_REMEDY: Final = "install cert-manager, or remove tlsOptions"
START_COMMAND_ENV: Final = "KUBERAY_GEN_AUTOSCALER_START_CMD"
_PRIORITY_SINCE: Final = (2, 56)
_TESTED_SINCE: Final = (2, 9)
"""Oldest tested Ray version. Older ones lack APIs that upgrades of Ray Serve need."""
_RESOURCE_PARAMS: Final = ("num-cpus", "num-gpus", "memory", "resources")


def metadata(cluster: RayCluster) -> str | None:
    """Return the rule that the cluster's name violates; None if it is legal (§4.1, M1-M2)."""
    if len(cluster.metadata.name) > MAX_NAME_LENGTH:
        return f"RayCluster name should be no more than {MAX_NAME_LENGTH} characters"
    problems = kubernetes_syntax.dns_1035_problems(cluster.metadata.name)
    return (
        f"RayCluster name should be a valid DNS1035 label: [{' '.join(problems)}]"
        if problems
        else None
    )


def spec(cluster: RayCluster, gates: Gates) -> str | None:
    """Return the first violation in the spec; None if the spec is legal (§4.2)."""
    problems = chain(
        _of_groups(cluster),
        features.of_fault_tolerance(cluster, gates),
        of_autoscaling(cluster, gates),
        features.of_history_server(cluster, gates),
        features.of_authentication(cluster),
        features.of_network_policies(cluster, gates),
        features.of_tls(cluster, gates),
        of_references(cluster),
    )
    return next(problems, None)


def upgrade_options(cluster: RayCluster) -> str | None:
    """Return the rule that the upgrade strategy violates; None if it is legal (§4.5)."""
    strategy = cluster.spec.upgrade_strategy
    if strategy is not None and strategy.type not in {None, "Recreate", "None"}:
        return (
            "The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value "
            f"{strategy.type} is invalid, "
            "valid options are Recreate or None"
        )
    return upgrade_type_on_a_child(cluster)


def upgrade_type_on_a_child(cluster: RayCluster) -> str | None:
    """Return a violation if a cluster of a RayJob or RayService has an upgrade strategy.

    A RayJob or RayService upgrades its cluster itself.
    """
    creator, strategy = traits.creator_kind(cluster), cluster.spec.upgrade_strategy
    if strategy is None or strategy.type is None or creator == "RayCluster":
        return None
    return f"upgradeStrategy cannot be set when RayCluster is created by {creator}"


def status(cluster: RayCluster) -> str | None:
    """Return a violation if both suspension conditions are true (§4.6).

    `Suspended` follows `Suspending`, so only one of them can be true.
    """
    kinds = ("RayClusterSuspending", "RayClusterSuspended")
    if not all(conditions.is_true(cluster.status.conditions, kind) for kind in kinds):
        return None
    return (
        "invalid RayCluster State: rayv1.RayClusterSuspending and "
        "rayv1.RayClusterSuspended conditions "
        "should not be both true"
    )


def _of_groups(cluster: RayCluster) -> Iterator[str]:
    """Yield violations of the head group, then of each worker group."""
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
            ".spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 "
            "environment variable to 'true' "
            "in the head pod if using KubeRay < 1.4.0)"
        )
    if priority:  # S15a-S15c
        yield from traits.version_problems(
            cluster.spec.ray_version, _PRIORITY_SINCE, f"{name}: priority is set, but"
        )
    if priority and not _has_autoscaler_v2(cluster):  # S15d
        yield (
            f"{name}: priority is set to {priority}, but autoscaler v2 is not enabled. "
            "Priority is only supported with autoscaler v2 enabled"
        )


def _shape(name: str, group: RayGroup) -> Iterator[str]:
    params = traits.start_params(group)
    if group.resources and any(params.get(param) for param in _RESOURCE_PARAMS):
        yield (
            "resource fields should not be set in both rayStartParams and Resources for "
            f"{name} group; please use only one"
        )
    if "labels" in params:
        yield (
            f"rayStartParams['labels'] is not supported for {name} group; please use the "
            "top-level Labels field instead"
        )
    problems: list[str] = []
    for key, value in sorted((group.labels or {}).items()):
        start = f"invalid label key for {name} group: '{key}'"
        problems += [
            f"{start}, error: {problem}" for problem in kubernetes_syntax.label_key_problems(key)
        ]
        start = f"invalid label value for key '{key}' in {name} group: '{value}'"
        problems += [
            f"{start}, error: {problem}"
            for problem in kubernetes_syntax.label_value_problems(value)
        ]
    if problems:
        yield "; ".join(problems)


def _has_autoscaler_v2(cluster: RayCluster) -> bool:
    by_env = traits.head_env_value(cluster, traits.AUTOSCALER_V2_ENV) in {"1", "true"}
    return by_env or traits.autoscaler_version(cluster) == "v2"


def of_autoscaling(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield violations of the rules for autoscaling and for the suspension of worker groups."""
    options, is_on = cluster.spec.autoscaler_options, traits.is_autoscaling(cluster)
    version = traits.autoscaler_version(cluster) if is_on else None
    env = traits.head_env_value(cluster, traits.AUTOSCALER_V2_ENV)
    suspended = next(
        (group.group_name for group in traits.worker_groups(cluster) if group.suspend), None
    )
    if suspended is not None and FeatureGate.DELETION_POLICY not in gates:  # S24
        yield (
            f"worker group {suspended} can be suspended only when the RayJobDeletionPolicy "
            "feature gate is enabled"
        )
    if not is_on and env in {"1", "true"}:  # S25
        yield (
            f"environment variable {traits.AUTOSCALER_V2_ENV} cannot be set to '{env}' "
            "when enableInTreeAutoscaling is false. "
            "Please set enableInTreeAutoscaling: true to use autoscaler v2"
        )
    if is_on and suspended is not None:  # S26
        yield f"worker group {suspended} cannot be suspended with Autoscaler enabled"
    if version is not None and env is not None:  # S27
        yield (
            "both .spec.autoscalerOptions.version and head Pod env var "
            f"{traits.AUTOSCALER_V2_ENV} are set, "
            "please only use the former"
        )
    if version == "v2" and _restarts(cluster.spec.head_group_spec):  # S28
        yield "restartPolicy for head Pod should be Never or unset when using autoscaler V2"
    if version == "v2" and (restarting := _restarting_groups(cluster)):  # S29
        yield (
            f"restartPolicy for worker group {restarting[0]} should be Never or unset when "
            "using autoscaler V2"
        )
    if options is not None and (options.idle_timeout_seconds or 0) < 0:  # S30
        yield (
            "autoscalerOptions.idleTimeoutSeconds must be non-negative, got "
            f"{options.idle_timeout_seconds}"
        )
    if options is not None and pod_json.has_env({"env": options.env}, START_COMMAND_ENV):  # S31
        yield (
            f"autoscalerOptions.env must not contain {START_COMMAND_ENV}: "
            "it is managed by KubeRay and injected automatically into the autoscaler container"
        )


def warnings(cluster: RayCluster) -> Iterator[str]:
    """Yield warnings for specs that are legal but unwise.

    The warning of §4.3 is also KubeRay's; the other warnings are raybus's own.
    """
    yield from old_version(cluster.spec.ray_version)
    groups = _restarting_groups(cluster)
    if groups and traits.is_autoscaling(cluster) and traits.autoscaler_version(cluster) == "v1":
        yield (
            f"restartPolicy for worker groups [{', '.join(groups)}] should be Never or unset "
            "when using autoscaler V1"
        )
    for name, times in Counter(group.group_name for group in traits.worker_groups(cluster)).items():
        if times > 1:
            yield (
                f"{times} worker groups are called {name!r}: only the first one has pods; "
                "give the others names of their own"
            )
    for group in traits.worker_groups(cluster):
        if group.num_of_hosts < 0:
            yield (
                f"worker group {group.group_name} has numOfHosts {group.num_of_hosts}: it "
                "counts as 1"
            )


def old_version(text: str) -> Iterator[str]:
    """Yield a warning if the Ray version is too old for Serve upgrades."""
    try:
        is_old = bool(text) and traits.parse_version(text) < _TESTED_SINCE
    except traits.VersionError:
        return
    if is_old:
        yield (
            f"rayVersion {text} is older than 2.9, the oldest that is tested: use Ray 2.9.0 "
            "or later"
        )


def _restarting_groups(cluster: RayCluster) -> list[str]:
    return [group.group_name for group in traits.worker_groups(cluster) if _restarts(group)]


def _restarts(group: RayGroup) -> bool:
    return pod_json.text(pod_json.spec(group.template), "restartPolicy") not in {"", "Never"}


def of_references(cluster: RayCluster) -> Iterator[str]:
    """Yield fields whose value is not a legal name of an object, or not a usable quantity.

    KubeRay has no such rules. It puts names into request paths unchecked, and a pod that refers to
    an illegal name never starts. The API server checks quantities by a pattern that admits `1e5000`
    and numbers of any length.
    """
    spec, head, storage = (
        cluster.spec,
        cluster.spec.head_group_spec.template,
        traits.embedded_storage(cluster),
    )
    secret = spec.auth_options and spec.auth_options.secret_name
    account = pod_json.text(pod_json.spec(head), "serviceAccountName")
    for field, kind, name in (
        ("authOptions.secretName", "Secret", secret),
        ("headGroupSpec.template.spec.serviceAccountName", "ServiceAccount", account),
        ("gcsFaultToleranceOptions.storage.claimName", "PersistentVolumeClaim", storage.claim_name),
    ):
        if name and (problems := kubernetes_syntax.dns_1123_subdomain_problems(name)):
            yield f"{field} is not the name of a {kind}: {'; '.join(problems)}"
    yield from _of_template("headGroupSpec", head)
    for index, group in enumerate(traits.worker_groups(cluster)):
        yield from _of_template(f"workerGroupSpecs[{index}]", group.template)
    options, server = spec.autoscaler_options, spec.history_server_options
    collector = server and server.collector_options
    for place, resources in (
        ("autoscalerOptions.resources", options and options.resources),
        ("historyServerOptions.collectorOptions.resources", collector and collector.resources),
    ):
        yield from of_resources(place, resources or {})
    if storage.size is not None and (problem := _of_amount(storage.size)) is not None:
        yield f"gcsFaultToleranceOptions.storage.size: {problem}"


def _of_template(group: str, template: Body) -> Iterator[str]:
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod_json.bodies(pod_json.spec(template), kind)):
            place = f"{group}.template.spec.{kind}[{index}].resources"
            yield from of_resources(place, pod_json.body(container, "resources"))
    spec = pod_json.spec(template)
    yield from of_resources(f"{group}.template.spec.resources", pod_json.body(spec, "resources"))
    yield from _of_amounts(f"{group}.template.spec.overhead", pod_json.mapping(spec, "overhead"))


def of_resources(place: str, resources: Body) -> Iterator[str]:
    """Yield the quantities of a container or pod with which raybus cannot calculate.

    `place` is the path of `resources` in the spec, for the messages.
    """
    for what in ("limits", "requests"):
        yield from _of_amounts(f"{place}.{what}", pod_json.mapping(resources, what))


def _of_amounts(place: str, amounts: Mapping[str, object]) -> Iterator[str]:
    for name, amount in amounts.items():
        if (problem := _of_amount(amount)) is not None:
            yield f"{place}[{name}]: {problem}"


def _of_amount(amount: object) -> str | None:
    if not isinstance(amount, str | int | float):
        return (
            f"a {type(amount).__name__} is not a quantity; write a number with an optional "
            "suffix, such as 500m, 2 or 1.5Gi"
        )
    try:
        quantity.parse(amount)
    except quantity.QuantityError as problem:
        return str(problem)
    return None
