"""Which RayClusters are refused, and with what message: the first rule that a cluster breaks, with KubeRay's text.

One module per family of rules. A rule is a function named for the violation that returns the message, or None; the
order of rules is the order of the specification, since users and tests see only the first.
Behaviour: spec raycluster §4; acceptance cases 5-18.
"""

from typing import Final

from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.validation import (
    authentication,
    autoscaling,
    fault_tolerance,
    groups,
    history_server,
    identity,
    life_cycle,
    network_policy,
    not_built_yet,
    quantities,
    references,
    tls,
)
from common.validation.rules import Rule, first

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
    """Return what is wrong with the name (§4.1)."""
    return identity.name_too_long(cluster) or identity.name_not_a_dns_label(cluster)


def spec(cluster: RayCluster, gates: Gates) -> str | None:
    """Return what is wrong with the spec (§4.2)."""
    return first(_SPEC, cluster, gates)


def upgrade_options(cluster: RayCluster) -> str | None:
    """Return what is wrong with the upgrade strategy (§4.5)."""
    return life_cycle.upgrade_type_unknown(cluster) or life_cycle.upgrade_type_on_a_child(cluster)


def status(cluster: RayCluster) -> str | None:
    """Return what is impossible about the status (§4.6)."""
    return life_cycle.suspending_and_suspended(cluster)


def autoscaler_v1_warning(cluster: RayCluster) -> str | None:
    """Return what will not work well with the first autoscaler, though we go on (§4.3)."""
    return autoscaling.v1_with_restarting_workers(cluster)


def certificates_without_maker(cluster: RayCluster) -> str | None:
    """Return why certificates cannot be made where cert-manager is not installed (§4.4)."""
    if not tls.is_enabled(cluster):
        return None
    return "tlsOptions requires cert-manager, but cert-manager is not installed"


def unsupported(cluster: RayCluster, gates: Gates) -> str:
    """Return all that the spec asks for and that we do not fulfil yet, empty when there is nothing."""
    return "; ".join(broken for rule in not_built_yet.ALL if (broken := rule(cluster, gates)) is not None)


def missing_protection(cluster: RayCluster, gates: Gates) -> str | None:
    """Return which of it holds back all pods."""
    return first(not_built_yet.HOLDING, cluster, gates)
