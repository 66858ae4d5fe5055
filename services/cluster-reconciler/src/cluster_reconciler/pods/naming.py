"""The names of new pods.

A name is computed from a pod's place and not from what else was observed, so that a create that is repeated, by us or by
another owner of the key with other observations, meets AlreadyExists instead of making a second pod.

A name is not used again while a component may remember it: names of pods that exist, that the state has tombstones of, and
that the autoscaler has in `workersToDelete` are skipped. The state remembers a deletion for an hour, so the hour is part
of the seed (design rule 5; spec raycluster §2.7, §22). Of a cluster that has no status yet it is the hour in which the cluster
was made: its first pods are made without asking which there are, so an owner before us must have drawn the same names.
"""

import hashlib
from itertools import count
from typing import Final

import msgspec

from cluster_reconciler.observed import Observed
from common import names
from common.ray import cluster_traits as traits

SEASON_SECONDS: Final = 3600
"""No longer than tombstones stay in the state stream."""


class Namer:
    """Draws the names of one plan, each once."""

    def __init__(self, observed: Observed) -> None:
        cluster = observed.cluster
        named = (group.scale_strategy.workers_to_delete or () for group in traits.worker_groups(cluster))
        self._taken = {pod.metadata.name for pod in observed.pods}.union(observed.taken, *named)
        made = cluster.metadata.creation_timestamp
        moment = made if made is not None and cluster.status.last_update_time is None else observed.now
        self._seed = (cluster.metadata.uid, str(int(moment.timestamp()) // SEASON_SECONDS))

    def draw(self, prefix: str, group: str, place: str = "", *, hosts: int = 1) -> tuple[list[str], str]:
        """Return the names of a replica's pods, and that of the replica: `prefix`, or the group, and suffixes that depend on its place.

        It is the first attempt in which the names of all hosts are free.
        """
        attempts = (
            (attempt, [prefix + self._suffix(group, place, str(host), attempt) for host in range(hosts)])
            for attempt in map(str, count())
        )
        attempt, drawn = next(each for each in attempts if self._taken.isdisjoint(each[1]))
        self._taken.update(drawn)
        return drawn, f"{group[:57]}-{self._suffix(group, 'replica', place, attempt)}"

    def _suffix(self, *parts: str) -> str:
        """Return five characters that depend on the cluster, its season and the parts, and on nothing else."""
        digest = hashlib.sha256(msgspec.json.encode((*self._seed, *parts))).digest()
        return names.suffix(int.from_bytes(digest[:8], "big"))
