"""Which RayClusters are refused, and with what message: the first rule that a cluster breaks, with KubeRay's text.

One module per family of rules on the spec; those on the name, the upgrade strategy and the status are here. A rule is a
function named for the violation that returns the message, or None; the order of rules is the order of the specification,
since users and tests see only the first.
Behaviour: spec raycluster §4; acceptance cases 5-18.
"""

from typing import Final

from common.api import kubernetes_syntax
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.validation import (
    authentication,
    autoscaling,
    fault_tolerance,
    groups,
    history_server,
    network_policy,
    quantities,
    references,
    tls,
)
from common.validation.rules import Rule, first

LONGEST_NAME: Final = 53
"""What leaves room in 63 characters for the longest ending, `-serve-svc`."""

_SPEC: Final[tuple[Rule, ...]] = (
    *groups.RULES,
    *fault_tolerance.RULES,
    *autoscaling.RULES,
    *history_server.RULES,
    *authentication.RULES,
    *network_policy.RULES,
    *tls.RULES,
    *references.RULES,
    *quantities.RULES,
)


def metadata(cluster: RayCluster) -> str | None:
    """Return what is wrong with the name (§4.1, M1-M2)."""
    if len(cluster.metadata.name) > LONGEST_NAME:
        return f"RayCluster name should be no more than {LONGEST_NAME} characters"
    problems = kubernetes_syntax.dns_1035_problems(cluster.metadata.name)
    return f"RayCluster name should be a valid DNS1035 label: [{' '.join(problems)}]" if problems else None


def spec(cluster: RayCluster, gates: Gates) -> str | None:
    """Return what is wrong with the spec (§4.2)."""
    return first(_SPEC, cluster, gates)


def upgrade_options(cluster: RayCluster) -> str | None:
    """Return what is wrong with the upgrade strategy (§4.5)."""
    kind = _upgrade_type(cluster)
    if kind not in {None, "Recreate", "None"}:
        return (
            f"The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value {kind} is invalid, "
            "valid options are Recreate or None"
        )
    return upgrade_type_on_a_child(cluster)


def upgrade_type_on_a_child(cluster: RayCluster) -> str | None:
    """Refuse to override a RayJob or RayService, which upgrades its cluster itself."""
    creator = traits.creator_kind(cluster)
    if _upgrade_type(cluster) is None or creator == "RayCluster":
        return None
    return f"upgradeStrategy cannot be set when RayCluster is created by {creator}"


def _upgrade_type(cluster: RayCluster) -> str | None:
    strategy = cluster.spec.upgrade_strategy
    return strategy.type if strategy else None


def status(cluster: RayCluster) -> str | None:
    """Refuse both conditions of suspension at once: the second follows the first (§4.6)."""
    true = {condition.type for condition in cluster.status.conditions if condition.status == "True"}
    if not {"RayClusterSuspending", "RayClusterSuspended"} <= true:
        return None
    return (
        "invalid RayCluster State: rayv1.RayClusterSuspending and rayv1.RayClusterSuspended conditions "
        "should not be both true"
    )


def certificates_without_maker(cluster: RayCluster) -> str | None:
    """Return why certificates cannot be made where cert-manager is not installed (§4.4)."""
    if not tls.is_enabled(cluster):
        return None
    return "tlsOptions requires cert-manager, but cert-manager is not installed"


def unsupported(cluster: RayCluster, gates: Gates) -> str:
    """Return all that the spec asks for and that we do not fulfil yet, empty when there is nothing."""
    return "; ".join(broken for rule in UNSUPPORTED if (broken := rule(cluster, gates)) is not None)


def missing_protection(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field that asks for certificates: no pod is made without them, as by KubeRay (spec raycluster §11.15, §20)."""
    return _not_yet("tlsOptions.enabled", "remove tlsOptions") if tls.is_enabled(cluster) else None


def history_collector(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field that asks for a collector container (spec raycluster §11.16)."""
    return None if cluster.spec.history_server_options is None else _not_yet("historyServerOptions", "remove it")


def _not_yet(field: str, remedy: str) -> str:
    return f"{field} is not supported yet; {remedy}"


UNSUPPORTED: Final[tuple[Rule, ...]] = (missing_protection, history_collector)
"""Valid fields that raybus does not support yet, named from the cluster's spec; a condition and a Warning Event report each."""
