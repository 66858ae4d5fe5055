"""What a rule is, how rules are tried, and the rule that several families share."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.ray.cluster_traits import VersionError

Rule: TypeAlias = Callable[[RayCluster, Gates], str | None]
"""Return the message of the violation, or None."""


def first(rules: Iterable[Rule], cluster: RayCluster, gates: Gates) -> str | None:
    """Return the message of the first rule that is broken."""
    return next((broken for rule in rules if (broken := rule(cluster, gates)) is not None), None)


def old_ray(cluster: RayCluster, since: tuple[int, int], start: str) -> str | None:
    """Return why a feature cannot be used with the Ray version of a cluster; `start` begins the message."""
    least, version = f"{since[0]}.{since[1]}.0", cluster.spec.ray_version
    if not version:
        return f"{start} RayVersion was not specified. Ray version {least} or later is required"
    try:
        is_new = traits.parse_version(version) >= since
    except VersionError as problem:
        return f"{start} RayVersion format is invalid: {version}, {problem}"
    return None if is_new else f"{start} minimum Ray version is {least}, got {version}"
