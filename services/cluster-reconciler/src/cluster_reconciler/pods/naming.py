"""The names of new pods.

A name is computed from a pod's place and not from what else was observed, so that a create that is repeated, by us or by
another owner of the key with other observations, meets AlreadyExists instead of making a second pod.

A name is not used again while a component may remember it: names of pods that exist, that the state has tombstones of, and
that the autoscaler has in `workersToDelete` are skipped. The state remembers a deletion for an hour, so the hour is part
of the seed (design rule 5; spec raycluster §2.7, §22). Of a cluster that has no status yet it is the hour in which the cluster
was made: its first pods are made without asking which there are, so an owner before us must have drawn the same names.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import Final

import msgspec

from cluster_reconciler.observed import Observed
from common import names
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits

SEASON_SECONDS: Final = 3600
"""No longer than tombstones stay in the state stream."""


class Namer:
    """Draws the names of one plan, each once."""

    def __init__(self, observed: Observed, *, now: datetime) -> None:
        named = (group.scale_strategy.workers_to_delete or () for group in traits.worker_groups(observed.cluster))
        self._taken = (
            {pod.metadata.name for pod in observed.pods} | observed.taken | {each for few in named for each in few}
        )
        self._seed = (observed.cluster.metadata.uid, str(_season(observed.cluster, now)))
        self._attempts: dict[tuple[str, str], int] = {}

    def pod(self, prefix: str, group: str, place: str = "") -> str:
        """Return the name of a pod that is a replica of its own: `prefix` and a suffix that depends on its place."""
        attempt = self._draw(lambda attempt: [self._name(prefix, group, place, "0", attempt)])
        return self._name(prefix, group, place, "0", attempt)

    def host(self, prefix: str, group: str, index: int, host: int, hosts: int) -> tuple[str, str]:
        """Return the name of one host's pod, and of the replica that it is a part of; they are drawn together."""
        place = str(index)
        if (group, place) not in self._attempts:
            self._attempts[group, place] = self._draw(
                lambda attempt: [self._name(prefix, group, place, str(each), attempt) for each in range(hosts)]
            )
        attempt = self._attempts[group, place]
        replica = f"{group[:57]}-{_suffix(*self._seed, group, 'replica', place, str(attempt))}"
        return self._name(prefix, group, place, str(host), attempt), replica

    def _draw(self, drawn: Callable[[int], list[str]]) -> int:
        """Return the first attempt with free names only, and take them."""
        attempt = next(each for each in count() if self._taken.isdisjoint(drawn(each)))
        self._taken.update(drawn(attempt))
        return attempt

    def _name(self, prefix: str, group: str, place: str, host: str, attempt: int) -> str:
        return prefix + _suffix(*self._seed, group, place, host, str(attempt))


def _season(cluster: RayCluster, now: datetime) -> int:
    """Return the hour that the names of a cluster's new pods depend on."""
    made = cluster.metadata.creation_timestamp
    moment = made if made is not None and cluster.status.last_update_time is None else now
    return int(moment.timestamp()) // SEASON_SECONDS


def _suffix(*parts: str) -> str:
    """Return five characters that depend on the parts and on nothing else."""
    digest = hashlib.sha256(msgspec.json.encode(parts)).digest()
    return names.suffix(int.from_bytes(digest[:8], "big"))
