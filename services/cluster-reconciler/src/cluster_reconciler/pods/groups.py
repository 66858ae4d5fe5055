"""How many pods a worker group should have, and the types in which the two kinds of groups are decided.

`workers` decides for groups of single pods, `multi_host` for groups with replicas of several pods.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from cluster_reconciler.observed import Observed, is_terminating
from common.api.core import Pod
from common.api.ray_cluster import WorkerGroupSpec

UNBOUNDED: Final = 2**31 - 1


class Place(msgspec.Struct, frozen=True):
    """A new pod's place in its group: the replica's index, and the host's."""

    index: int | None
    """None when places are not counted (the gate RayMultiHostIndexing is off)."""
    host: int = 0
    is_part: bool = False
    """Whether the replica has several hosts, so that it has a name of its own."""


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that goes; the texts follow its name in the Event."""

    pod: Pod
    what: str = "Pod"
    more: str = ""
    failed_more: str = ""


class GroupDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about one group, and why."""

    note: str
    deletions: tuple[Deletion, ...] = ()
    creations: tuple[Place, ...] = ()
    deletes_all: bool = False
    unfinished: str = ""
    is_partial: bool = False
    """Whether there is more to create or delete than this batch."""

    @property
    def size(self) -> int:
        """Return how many pods are created and deleted one by one."""
        return len(self.deletions) + len(self.creations)


def hosts(group: WorkerGroupSpec) -> int:
    """Return the pods per replica; a negative number counts as none."""
    return max(0, group.num_of_hosts)


def target(group: WorkerGroupSpec) -> int:
    """Return how many pods a group should have: replicas within their limits, times hosts; none when suspended."""
    if group.suspend:
        return 0
    least = group.min_replicas or 0
    most = UNBOUNDED if group.max_replicas is None else group.max_replicas
    replicas = least if group.replicas is None else group.replicas
    if replicas < least:
        return least * hosts(group)
    return min(replicas, most) * hosts(group)


def removal_rank(pods: Sequence[Pod]) -> tuple[bool, bool, float]:
    """Return the rank in which a surplus replica goes: first what is going already, then what is not ready, then the newest."""
    created = (pod.metadata.creation_timestamp for pod in pods)
    return (
        not all(map(is_terminating, pods)),
        all(pod.is_running_and_ready for pod in pods),
        -max((moment.timestamp() for moment in created if moment is not None), default=0.0),
    )


def may_shrink(observed: Observed, *, deletes_random_pods: bool) -> bool:
    """Return whether surplus pods go by our choice: with the autoscaler on, it names the pods that go."""
    return deletes_random_pods or not observed.is_autoscaling
