"""What a batch scheduler wants of us: its own object beside a cluster, and marks on the cluster's pods."""

from typing import Final, Protocol

import msgspec

from cluster_reconciler.observed import Child, Observed
from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.runtime.actions import Action


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What is done before pods are made."""

    actions: tuple[Action, ...] = ()
    waits_for: str = ""
    """Why no pods may be made yet; the key is requeued soon."""


NOTHING = Submission()
GANG: Final = "ray.io/gang-scheduling-enabled"
"""A label of the RayCluster: all its pods are placed together, or none."""


class BatchScheduler(Protocol):
    """One scheduler that places the pods of a cluster together."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:
        """Return the scheduler's own objects, which are looked up at the API server."""
        ...

    def submit(self, observed: Observed) -> Submission:
        """Announce the cluster to the scheduler."""
        ...

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:
        """Put the scheduler's marks on a pod to be; `group` is `headgroup` or a worker group."""
        ...


class Unannounced:
    """The part of a scheduler that wants no object of its own."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:  # noqa: ARG002  (the port's parameter)
        """Look up nothing."""
        return ()

    def submit(self, observed: Observed) -> Submission:  # noqa: ARG002  (the port's parameter)
        """Announce nothing."""
        return NOTHING


class KubernetesDefault(Unannounced):
    """The scheduler of Kubernetes itself, pod by pod."""

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:
        """Leave the pod as it is."""


def copy_label(cluster: RayCluster, pod: Body, label: str, *, into: str | None = None) -> None:
    """Copy a label of the cluster to a pod, unless it is empty."""
    value = cluster.metadata.labels.get(label, "")
    if value:
        pod_json.ensure_body(pod["metadata"], "labels")[into or label] = value
