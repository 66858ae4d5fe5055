"""What a rule is, and how rules are tried."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates

Rule: TypeAlias = Callable[[RayCluster, Gates], str | None]
"""Return the message of the violation, or None."""


def first(rules: Iterable[Rule], cluster: RayCluster, gates: Gates) -> str | None:
    """Return the message of the first rule that is broken."""
    return next((broken for rule in rules if (broken := rule(cluster, gates)) is not None), None)
