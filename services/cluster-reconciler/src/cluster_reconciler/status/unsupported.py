"""The condition UnsupportedFeatures: the spec asks for what we do not do yet. True or absent, never False.

Not KubeRay's: only clusters that ask for such a thing have it.
"""

from cluster_reconciler.reasons import ConditionType, EventReason
from cluster_reconciler.status import conditions
from cluster_reconciler.status.conditions import Fact
from common.api.ray_cluster import RayClusterStatus


def compute(problem: str) -> Fact:
    """Return what the condition says."""
    return Fact("True", EventReason.UNSUPPORTED, problem)


def is_told(status: RayClusterStatus, problem: str) -> bool:
    """Tell whether a status says the same already."""
    found = conditions.find(status.conditions, ConditionType.UNSUPPORTED)
    return found is not None and found.message == problem
