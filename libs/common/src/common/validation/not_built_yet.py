"""Valid fields that raybus does not support yet; each is reported by a condition and a Warning Event.

Without certificates no pod is made, as KubeRay makes none before they are there. Without policies and without a collector the
cluster runs, as KubeRay's does when its own policies cannot be made.
The fields are named from the cluster's spec, wherever that stands.
"""

from typing import Final

from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.validation import tls
from common.validation.rules import Rule


def mutual_tls(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field that asks for certificates (spec raycluster §11.15, §20)."""
    return _not_yet("tlsOptions.enabled", "remove tlsOptions") if tls.is_enabled(cluster) else None


def history_collector(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field that asks for a collector container (spec raycluster §11.16)."""
    if cluster.spec.history_server_options is None:
        return None
    return _not_yet("historyServerOptions", "remove it")


def network_policies(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field that asks for policies around the cluster's pods (spec raycluster §21)."""
    if cluster.spec.network_policy is None:
        return None
    return _not_yet("networkPolicy", "remove it and write NetworkPolicies for the cluster's pods yourself")


def _not_yet(field: str, remedy: str) -> str:
    return f"{field} is not supported yet; {remedy}"


HOLDING: Final[tuple[Rule, ...]] = (mutual_tls,)
"""Wishes without which no pod is made."""
ALL: Final[tuple[Rule, ...]] = (*HOLDING, network_policies, history_collector)
