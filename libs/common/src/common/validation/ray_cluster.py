"""Which RayClusters are refused, and with what message: the first rule that a cluster breaks, with KubeRay's text.

One module per family of rules on the spec; those on the name, the upgrade strategy, the status, and on names and amounts in
the spec are here. A family yields the messages of its violations in the order of the specification, each beside its number there.
Only the first is ever asked for: users and tests see it alone, and rules rely on those before them.
Behaviour: spec raycluster §4; acceptance cases 5-18.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from common import pod_json, quantity
from common.api import kubernetes_syntax
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.validation import features, groups

LONGEST_NAME: Final = 53
"""What leaves room in 63 characters for the longest ending, `-serve-svc`."""
NO_CERT_MANAGER: Final = "tlsOptions requires cert-manager, but cert-manager is not installed"
"""What is wrong with a cluster that asks for certificates where nothing makes them (§4.4)."""


def metadata(cluster: RayCluster) -> str | None:
    """Return what is wrong with the name (§4.1, M1-M2)."""
    if len(cluster.metadata.name) > LONGEST_NAME:
        return f"RayCluster name should be no more than {LONGEST_NAME} characters"
    problems = kubernetes_syntax.dns_1035_problems(cluster.metadata.name)
    return f"RayCluster name should be a valid DNS1035 label: [{' '.join(problems)}]" if problems else None


def spec(cluster: RayCluster, gates: Gates) -> str | None:
    """Return what is wrong with the spec (§4.2)."""
    problems = chain(
        groups.problems(cluster),
        features.of_fault_tolerance(cluster, gates),
        groups.of_autoscaling(cluster, gates),
        features.of_history_server(cluster, gates),
        features.of_authentication(cluster),
        features.of_network_policies(cluster, gates),
        features.of_tls(cluster, gates),
        of_references(cluster),
    )
    return next(problems, None)


def upgrade_options(cluster: RayCluster) -> str | None:
    """Return what is wrong with the upgrade strategy (§4.5)."""
    strategy = cluster.spec.upgrade_strategy
    if strategy is not None and strategy.type not in {None, "Recreate", "None"}:
        return (
            f"The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value {strategy.type} is invalid, "
            "valid options are Recreate or None"
        )
    return upgrade_type_on_a_child(cluster)


def upgrade_type_on_a_child(cluster: RayCluster) -> str | None:
    """Refuse to override a RayJob or RayService, which upgrades its cluster itself."""
    creator, strategy = traits.creator_kind(cluster), cluster.spec.upgrade_strategy
    if strategy is None or strategy.type is None or creator == "RayCluster":
        return None
    return f"upgradeStrategy cannot be set when RayCluster is created by {creator}"


def status(cluster: RayCluster) -> str | None:
    """Refuse both conditions of suspension at once: the second follows the first (§4.6)."""
    true = {condition.type for condition in cluster.status.conditions if condition.status == "True"}
    if not {"RayClusterSuspending", "RayClusterSuspended"} <= true:
        return None
    return (
        "invalid RayCluster State: rayv1.RayClusterSuspending and rayv1.RayClusterSuspended conditions "
        "should not be both true"
    )


def missing_protection(cluster: RayCluster) -> str | None:
    """Name the field that asks for certificates: no pod is made without them, as by KubeRay (spec raycluster §11.15, §20)."""
    is_enabled = features.is_tls_enabled(cluster)
    return "tlsOptions.enabled is not supported yet; remove tlsOptions" if is_enabled else None


def unsupported_fields(cluster: RayCluster) -> Iterator[str]:
    """Yield the valid fields that raybus does not support yet, each with a remedy; a condition and a Warning Event report each."""
    if problem := missing_protection(cluster):
        yield problem
    if cluster.spec.history_server_options is not None:  # a collector container, spec raycluster §11.16
        yield "historyServerOptions is not supported yet; remove it"


def unsupported(cluster: RayCluster) -> str:
    """Return all that the spec asks for and that raybus does not support yet, empty when there is nothing."""
    return "; ".join(unsupported_fields(cluster))


def of_references(cluster: RayCluster) -> Iterator[str]:
    """Yield the fields with a text that no object can bear, then those with an amount that the operator cannot calculate with.

    KubeRay has no such rules. Its client puts names into the path of a request; a pod that uses an illegal name never starts. The API
    server holds amounts to a pattern, which admits `1e5000` and a number of any length.
    """
    spec, head = cluster.spec, cluster.spec.head_group_spec.template
    storage = spec.gcs_fault_tolerance_options.storage if spec.gcs_fault_tolerance_options else None
    secret, claim = spec.auth_options and spec.auth_options.secret_name, storage and storage.claim_name
    account = pod_json.text(pod_json.spec(head), "serviceAccountName")
    for field, kind, name in (
        ("authOptions.secretName", "Secret", secret),
        ("headGroupSpec.template.spec.serviceAccountName", "ServiceAccount", account),
        ("gcsFaultToleranceOptions.storage.claimName", "PersistentVolumeClaim", claim),
    ):
        if name and (found := kubernetes_syntax.dns_1123_subdomain_problems(name)):
            yield f"{field} is not the name of a {kind}: {'; '.join(found)}"
    yield from _of_template("headGroupSpec", head)
    for index, group in enumerate(traits.worker_groups(cluster)):
        yield from _of_template(f"workerGroupSpecs[{index}]", group.template)
    if storage is not None and storage.size is not None and (problem := _of_amount(storage.size)) is not None:
        yield f"gcsFaultToleranceOptions.storage.size: {problem}"


def _of_template(group: str, template: Body) -> Iterator[str]:
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod_json.bodies(pod_json.spec(template), kind)):
            resources = pod_json.body(container, "resources")
            for what in ("limits", "requests"):
                for name, amount in pod_json.mapping(resources, what).items():
                    if (problem := _of_amount(amount)) is not None:
                        yield f"{group}.template.spec.{kind}[{index}].resources.{what}[{name}]: {problem}"


def _of_amount(amount: object) -> str | None:
    if not isinstance(amount, str | int | float):
        return f"a {type(amount).__name__} is not a quantity; write a number with an optional suffix, such as 500m, 2 or 1.5Gi"
    try:
        quantity.parse(amount)
    except quantity.QuantityError as problem:
        return str(problem)
    return None
