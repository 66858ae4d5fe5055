"""The condition ReplicaFailure: the last attempt to create or delete a pod failed (spec raycluster §13.1 step 1).

True as well when another child is refused, and when no attempt is made, since the spec asks for protection that we cannot
give. True or absent, never False.
"""

import msgspec

from cluster_reconciler.status.conditions import Fact


class Failure(msgspec.Struct, frozen=True):
    """The first failure of a look, one that concerns pods before others, or why there are no pods."""

    reason: str
    problem: str


def compute(failure: Failure) -> Fact:
    """Return what the condition says."""
    return Fact("True", failure.reason, f"{failure.reason}\n{failure.problem}")
