"""The names of new pods.

A name is computed from what was observed, so that a create that is repeated, by us or by another owner of the key, meets
AlreadyExists instead of making a second pod. And a name does not come back: the autoscaler names pods in `workersToDelete`
and does not clear the list at once, but writing it gives the RayCluster a new resourceVersion, which is part of the seed
(design rule 5; spec raycluster §2.7, §22).
"""

import hashlib
from itertools import count

import msgspec

from cluster_reconciler.observed import Observed
from common import names


class Namer:
    """Draws the names of one plan, each once."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._taken = {pod.metadata.name for pod in observed.pods} | observed.taken
        self._seeds: dict[str, str] = {}

    def pod(self, prefix: str, group: str, place: str) -> str:
        """Return a pod's name: `prefix` and a suffix that depends on its place and on the pods seen in its group."""
        drawn = (prefix + _suffix(self._seed(group), place, str(attempt)) for attempt in count())
        name = next(each for each in drawn if each not in self._taken)
        self._taken.add(name)
        return name

    def replica(self, group: str, index: int) -> str:
        """Return the name of a multi-host replica."""
        return f"{group}-{_suffix(self._seed(group), 'replica', str(index))}"

    def _seed(self, group: str) -> str:
        """Return what all names of a group depend on: the cluster at this version, and the group's pods."""
        if group not in self._seeds:
            meta = self._observed.cluster.metadata
            uids = sorted(pod.metadata.uid for pod in self._observed.group(group))
            self._seeds[group] = _digest(meta.uid, meta.resource_version, group, *uids).hex()
        return self._seeds[group]


def _suffix(*parts: str) -> str:
    """Return five characters that depend on the parts and on nothing else."""
    return names.suffix(int.from_bytes(_digest(*parts)[:8], "big"))


def _digest(*parts: str) -> bytes:
    return hashlib.sha256(msgspec.json.encode(parts)).digest()
