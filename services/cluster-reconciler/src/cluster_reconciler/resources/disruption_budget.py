"""The PodDisruptionBudgets of a cluster: how many of its pods a drain of nodes leaves, for the head and for the workers.

Off unless an annotation, or the operator's configuration, asks for them: KubeRay has none, a protected head blocks `kubectl drain`, and
a pod under two budgets cannot be evicted at all (ADR 26). Kubernetes counts the pods of a controller that it cannot scale only for a
`minAvailable` that is a number. Pods that are not ready may always be evicted.
"""

from datetime import datetime, timedelta
from typing import Final

from cluster_reconciler.config import Config
from cluster_reconciler.observed import is_terminating
from cluster_reconciler.resources import owner
from common import feature_gates, labels
from common.api.core import Pod
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD_DISRUPTION_BUDGET
from common.ray import cluster_traits as traits

IDLE_AFTER: Final = timedelta(minutes=10)
"""A worker that runs and is not ready for so long does not serve: Serve has no replica there, or it is broken."""


def is_asked_for(cluster: RayCluster, config: Config) -> bool:
    """Return whether evictions of a cluster's pods are to be limited."""
    annotations, default = cluster.metadata.annotations, config.limits_disruption
    return feature_gates.is_on(annotations, labels.DISRUPTION_BUDGET, default=default)


def build(cluster: RayCluster, config: Config, *, workers: int, serving: int) -> dict[str, Body]:
    """Return the budgets that a cluster is to have, by name: none while it is suspended.

    A replaced cluster keeps them until it is deleted: it still works on requests that it got before. The head has one, unless its loss
    ends nothing. Of the workers, of which `serving` are expected to be ready, one may go at a time,
    and the last one may not.
    """
    if cluster.spec.suspend is True or not is_asked_for(cluster, config):
        return {}
    least = dict[str, int]()
    if workers == 0 or not traits.is_fault_tolerant(cluster):
        least[labels.HEAD] = 1
    if workers > 0:
        least[labels.WORKER] = max(serving - 1, 1)
    return {
        f"{cluster.metadata.name}-{role}": _budget(cluster, role, number)
        for role, number in least.items()
    }


def is_idle(pod: Pod, *, now: datetime) -> bool:
    """Return whether a worker is not expected to be ready, so that it counts for no budget."""
    ready = pod.condition("Ready")
    if (
        pod.status.phase != "Running"
        or is_terminating(pod)
        or ready is None
        or ready.status == "True"
    ):
        return False
    return ready.last_transition_time is not None and now - ready.last_transition_time >= IDLE_AFTER


def _budget(cluster: RayCluster, role: str, least: int) -> Body:
    name = cluster.metadata.name
    pods = {labels.CLUSTER: name, labels.NODE_TYPE: role}
    spec: Body = {
        "minAvailable": least,
        "selector": {"matchLabels": pods},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    own = {**pods, **labels.BY_OPERATOR}
    return owner.child(cluster, POD_DISRUPTION_BUDGET, name=f"{name}-{role}", labels=own, spec=spec)
