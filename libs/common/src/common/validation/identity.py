"""Rules on the cluster's name (spec raycluster §4.1)."""

from typing import Final

from common.api import kubernetes_syntax
from common.api.ray_cluster import RayCluster

LONGEST: Final = 53
"""What leaves room in 63 characters for the longest ending, `-serve-svc`."""


def name_too_long(cluster: RayCluster) -> str | None:
    """M1."""
    if len(cluster.metadata.name) <= LONGEST:
        return None
    return f"RayCluster name should be no more than {LONGEST} characters"


def name_not_a_dns_label(cluster: RayCluster) -> str | None:
    """M2."""
    problems = kubernetes_syntax.dns_1035_problems(cluster.metadata.name)
    return f"RayCluster name should be a valid DNS1035 label: [{' '.join(problems)}]" if problems else None
