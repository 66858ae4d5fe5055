"""The PodDisruptionBudgets of a cluster's head and workers.

A cluster gets none unless an annotation or the operator's configuration asks for them: KubeRay has
none, a protected head blocks `kubectl drain`, and a pod with two budgets cannot be evicted at all
(ADR 26). For pods of a controller without a scale subresource, Kubernetes only supports an integer
`minAvailable`. Pods that are not ready may always be evicted.
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
"""Time after which a running worker that is still not ready counts as idle.

Serve has no replica on such a worker, or the worker is broken.
"""


def is_asked_for(cluster: RayCluster, config: Config) -> bool:
    """Return whether evictions of a cluster's pods must be limited."""
    annotations, default = cluster.metadata.annotations, config.limits_disruption
    return feature_gates.is_on(annotations, labels.DISRUPTION_BUDGET, default=default)


def build(cluster: RayCluster, config: Config, *, workers: int, serving: int) -> dict[str, Body]:
    """Return the PodDisruptionBudgets of a cluster, by name; empty while it is suspended.

    A replaced cluster keeps its budgets until it is deleted, because it may still have requests in
    flight. The head has a budget unless the cluster has workers and survives the loss of the head.
    One worker at a time may be evicted, but not the last. `serving` is the number of workers
    expected to be ready.
    """
    if cluster.spec.suspend is True or not is_asked_for(cluster, config):
        return {}
    min_available = dict[str, int]()
    if workers == 0 or not traits.is_fault_tolerant(cluster):
        min_available[labels.HEAD] = 1
    if workers > 0:
        min_available[labels.WORKER] = max(serving - 1, 1)
    return {
        f"{cluster.metadata.name}-{role}": _build_budget(cluster, role, number)
        for role, number in min_available.items()
    }


def is_idle(pod: Pod, *, now: datetime) -> bool:
    """Return whether a worker is not expected to become ready, so that no budget counts it."""
    ready = pod.condition("Ready")
    if (
        pod.status.phase != "Running"
        or is_terminating(pod)
        or ready is None
        or ready.status == "True"
    ):
        return False
    return ready.last_transition_time is not None and now - ready.last_transition_time >= IDLE_AFTER


def _build_budget(cluster: RayCluster, role: str, min_available: int) -> Body:
    name = cluster.metadata.name
    pods = {labels.CLUSTER: name, labels.NODE_TYPE: role}
    spec: Body = {
        "minAvailable": min_available,
        "selector": {"matchLabels": pods},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    own = {**pods, **labels.BY_OPERATOR}
    return owner.build_child(
        cluster, POD_DISRUPTION_BUDGET, name=f"{name}-{role}", labels=own, spec=spec
    )
