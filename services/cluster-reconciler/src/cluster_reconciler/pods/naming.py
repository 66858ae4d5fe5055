"""The names of new pods.

A name is computed from a pod's place and not from what else was observed, so that a create that is repeated, by us or by
another owner of the key with other observations, meets AlreadyExists instead of making a second pod.

A name is not used again while a component may remember it: names of pods that exist, that the state has tombstones of, and
that the autoscaler has in `workersToDelete` are skipped. The state remembers a deletion for an hour, so the hour is part
of the seed (design rule 5; spec raycluster §2.7, §22). Of a cluster that has no status yet it is the hour in which the cluster
was made: its first pods are made without asking which there are, so an owner before us must have drawn the same names.
"""

import hashlib
from datetime import datetime
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

    def __init__(self, observed: Observed, *, now: datetime) -> None:
        cluster = observed.cluster
        named = (group.scale_strategy.workers_to_delete or () for group in traits.worker_groups(cluster))
        self._taken = {pod.metadata.name for pod in observed.pods}.union(observed.taken, *named)
        made = cluster.metadata.creation_timestamp
        moment = made if made is not None and cluster.status.last_update_time is None else now
        self._seed = (cluster.metadata.uid, str(int(moment.timestamp()) // SEASON_SECONDS))
        self._attempts: dict[tuple[str, str], str] = {}

    def pod(self, prefix: str, group: str, place: str = "") -> str:
        """Return the name of a pod that is a replica of its own: `prefix` and a suffix that depends on its place."""
        return prefix + self._suffix(group, place, "0", self._draw(prefix, group, place, hosts=1))

    def host(self, prefix: str, group: str, index: int, host: int, hosts: int) -> tuple[str, str]:
        """Return the name of one host's pod, and of the replica that it is a part of; they are drawn together."""
        place = str(index)
        if (group, place) not in self._attempts:
            self._attempts[group, place] = self._draw(prefix, group, place, hosts)
        attempt = self._attempts[group, place]
        replica = f"{group[:57]}-{self._suffix(group, 'replica', place, attempt)}"
        return prefix + self._suffix(group, place, str(host), attempt), replica

    def _draw(self, prefix: str, group: str, place: str, hosts: int) -> str:
        """Return the first attempt in which the names of all hosts are free, and take them."""
        attempts = (
            (attempt, [prefix + self._suffix(group, place, str(host), attempt) for host in range(hosts)])
            for attempt in map(str, count())
        )
        attempt, drawn = next(each for each in attempts if self._taken.isdisjoint(each[1]))
        self._taken.update(drawn)
        return attempt

    def _suffix(self, *parts: str) -> str:
        """Return five characters that depend on the cluster, its season and the parts, and on nothing else."""
        digest = hashlib.sha256(msgspec.json.encode((*self._seed, *parts))).digest()
        return names.suffix(int.from_bytes(digest[:8], "big"))
