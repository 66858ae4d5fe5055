"""The condition ReplicaFailure: the last attempt to create or delete a pod failed (spec raycluster §13.1 step 1).

True as well when no attempt is made, since the spec asks for protection that we cannot give. True or absent, never False.
"""

import msgspec

from cluster_reconciler.reasons import ReplicaFailure
from cluster_reconciler.status.conditions import Fact


class Failure(msgspec.Struct, frozen=True):
    """The first failure of a look that concerns pods, or why there are none."""

    reason: ReplicaFailure
    problem: str


def compute(failure: Failure) -> Fact:
    """Return what the condition says."""
    return Fact("True", failure.reason, f"{failure.reason}\n{failure.problem}")
