"""Judges each write of a service: its precondition, its partition, and deletions of workers.

The owner of a partition is read from the replicas' Leases at the version of the write (ADR 4). If
another replica's Lease lists the partition and the writer's does not, the writer has lost the
partition and continued to write.
"""

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from chaos.checker.evidence import ObservedState, Violation, Write
from common import labels
from common.bus.subjects import compute_partition

_NEEDS_BASE: Final = frozenset({"update", "patch", "delete"})
PartitionsOf = Callable[[ObservedState], frozenset[int]]
"""Function that returns the partitions that a Lease lists."""


class JudgedWrites(msgspec.Struct, frozen=True, kw_only=True):
    """The violations, and how many writes each rule judged.

    A rule that judged no write proves nothing.
    """

    violations: list[Violation]
    against_leases: int
    """Number of writes for which the owner of the partition could be checked."""
    with_base: int
    autoscaled: int
    """Number of deletions of workers in autoscaled clusters."""


def judge(
    writes: Iterable[Write], seen: Iterable[ObservedState], partitions_of: PartitionsOf
) -> JudgedWrites:
    """Judge each write by the states (`seen`) that all objects had at the time of that write."""
    all_writes, history = list(writes), _History(seen)
    leases = _Leases(history, all_writes, partitions_of)
    based = [write for write in all_writes if write.verb in _NEEDS_BASE]
    owned = [write for write in all_writes if write.version and leases.is_known(write)]
    shrunk = [write for write in all_writes if _is_of_a_worker(write, history)]
    return JudgedWrites(
        violations=[
            *(
                _build_violation("every write names its base", write, "it demands no version")
                for write in based
                if not write.based_on
            ),
            *(
                _build_violation("no write by a fenced owner", write, why)
                for write in owned
                if (why := leases.find_ownership_violation(write))
            ),
            *(
                _build_violation("the autoscaler's pods", write, why)
                for write in shrunk
                if (why := _find_unlisted_deletion(write, history))
            ),
        ],
        against_leases=len(owned),
        with_base=len(based),
        autoscaled=len(shrunk),
    )


class _History:
    """The states of each object, in the order of resource versions."""

    def __init__(self, seen: Iterable[ObservedState]) -> None:
        states: defaultdict[tuple[str, str, str], list[ObservedState]] = defaultdict(list)
        for state in seen:
            states[state.key].append(state)
        self._states: Mapping[tuple[str, str, str], list[ObservedState]] = states
        for versions in states.values():
            versions.sort(key=lambda state: state.version)

    def get_state_before(self, key: tuple[str, str, str], version: int) -> ObservedState | None:
        """Return an object's state just before a resource version; None if it did not exist."""
        states = self._states.get(key, [])
        place = bisect.bisect_left(states, version, key=lambda state: state.version)
        return states[place - 1] if place else None

    def all(self, kind: str) -> Iterator[list[ObservedState]]:
        """Yield, for each object of a kind, the list of its states."""
        return (states for key, states in self._states.items() if key[0] == kind)

    def list_states(self, key: tuple[str, str, str]) -> list[ObservedState]:
        """Return all states of an object."""
        return self._states.get(key, [])


class _Leases:
    """Finds which replicas' Leases list a partition at a resource version."""

    def __init__(
        self, history: _History, writes: Iterable[Write], partitions_of: PartitionsOf
    ) -> None:
        self._history = history
        self._partitions_of = partitions_of
        self._holders: defaultdict[str, dict[tuple[str, str, str], str]] = defaultdict(dict)
        """The replica that created each Lease, by service and by the key of the Lease."""
        for write in sorted(writes, key=lambda write: write.version):
            if (
                write.resource == "leases"
                and write.verb == "create"
                and write.name.startswith(f"raybus-{write.service}-")
            ):
                self._holders[write.service].setdefault(
                    ("Lease", write.namespace, write.name), write.replica
                )

    def is_known(self, write: Write) -> bool:
        """Return whether the writer's ownership of the partition can be checked.

        The check needs the top owner of the written object, and a Lease of the service.
        """
        return write.top_owner is not None and bool(self._holders.get(write.service))

    def find_ownership_violation(self, write: Write) -> str | None:
        """Return why the writer did not own the partition.

        None if it did, if no Lease lists the partition, or if the top owner is unknown.
        """
        if write.top_owner is None:
            return None
        partition = compute_partition(write.top_owner)
        held_by = {
            replica: key[2]
            for key, replica in self._holders[write.service].items()
            if (lease := self._history.get_state_before(key, write.version)) is not None
            and not lease.is_gone
            and partition in self._partitions_of(lease)
        }
        if not held_by or write.replica in held_by:
            return None
        return (
            f"partition {partition} was {' and '.join(held_by)}'s by Lease "
            f"{' and '.join(held_by.values())}"
        )


def _is_of_a_worker(write: Write, history: _History) -> bool:
    """Return whether the write deletes a live worker of a cluster that an autoscaler scales."""
    if write.verb != "delete" or write.resource != "pods" or write.service != "cluster-reconciler":
        return False
    pod = history.get_state_before(("Pod", write.namespace, write.name), write.version or 2**63)
    if pod is None or pod.object.label.get(labels.NODE_TYPE) != labels.WORKER or not pod.is_alive:
        return False
    cluster = history.get_state_before(_get_cluster_key(pod), write.version or 2**63)
    return cluster is not None and _is_left_to_autoscaler(cluster)


def _is_left_to_autoscaler(cluster: ObservedState) -> bool:
    spec = cluster.object.spec
    return cluster.is_alive and bool(spec.enable_in_tree_autoscaling) and not spec.suspend


def _find_unlisted_deletion(write: Write, history: _History) -> str | None:
    pod = history.get_state_before(("Pod", write.namespace, write.name), write.version or 2**63)
    if pod is None:
        return None
    listed = {
        name
        for cluster in history.list_states(_get_cluster_key(pod))
        if not write.version or cluster.version < write.version
        for group in cluster.object.spec.worker_group_specs or []
        for name in group.scale_strategy.workers_to_delete or []
    }
    return (
        None
        if write.name in listed
        else f"pod {write.name} was deleted and the autoscaler has not listed it"
    )


def _get_cluster_key(pod: ObservedState) -> tuple[str, str, str]:
    return "RayCluster", pod.object.metadata.namespace, pod.object.label.get(labels.CLUSTER, "")


def _build_violation(rule: str, write: Write, text: str) -> Violation:
    root = write.top_owner
    about = f"{write.namespace}/{root.name if root is not None else write.name}"
    return Violation(rule=rule, about=about, text=f"{write}: {text}", at=write.at)
