"""The names of new pods.

A name is computed from what was observed, so that a create that is repeated, by us or by another owner of the key, meets
AlreadyExists instead of making a second pod. And a name does not come back: the autoscaler names pods in `workersToDelete`
and does not clear the list at once, but writing it gives the RayCluster a new resourceVersion, which is part of the seed
(design rule 5; spec raycluster §2.7, §22).
"""

import hashlib
from collections.abc import Iterable

import msgspec

from cluster_reconciler.observed import Observed
from common import names
from common.api.core import Pod


class Namer:
    """Draws the names of one plan, each once."""

    def __init__(self, observed: Observed) -> None:
        meta = observed.cluster.metadata
        self._seed = (meta.uid, meta.resource_version)
        self._taken = {pod.metadata.name for pod in observed.pods} | observed.taken

    def pod(self, prefix: str, group: str, place: str, pods: Iterable[Pod]) -> str:
        """Return a pod's name: `prefix` and a suffix that depends on its place and on the pods seen in its group."""
        uids = sorted(pod.metadata.uid for pod in pods)
        for attempt in range(len(self._taken) + 1):
            name = prefix + suffix(*self._seed, group, place, *uids, str(attempt))
            if name not in self._taken:
                self._taken.add(name)
                return name
        raise AssertionError("more names are taken than there are")  # unreachable: one attempt more than taken names


def suffix(*parts: str) -> str:
    """Return five characters that depend on the parts and on nothing else."""
    digest = hashlib.sha256(msgspec.json.encode(parts)).digest()
    return names.suffix(int.from_bytes(digest[:8], "big"))
