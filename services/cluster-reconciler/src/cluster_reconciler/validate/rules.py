"""What a rule is, and how rules are tried."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from cluster_reconciler.config import Config
from common.api.ray_cluster import RayCluster

Rule: TypeAlias = Callable[[RayCluster, Config], str | None]
"""Return the message of the violation, or None."""


def first(rules: Iterable[Rule], cluster: RayCluster, config: Config) -> str | None:
    """Return the message of the first rule that is broken."""
    return next((broken for rule in rules if (broken := rule(cluster, config)) is not None), None)
