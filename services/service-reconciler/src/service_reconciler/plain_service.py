"""The Serve Service of a RayService during an upgrade in steps, where one is left from another strategy (ADR 14).

Its clients know nothing of the route. It selects pods of both clusters by a label of our own, so that they have the whole capacity at
every step: all pods of the active cluster while the route gives that one requests, and of the pending one, once the route does, those
on a node that was observed to hold a running replica.
"""

from common import labels
from common.api.core import Pod
from common.kube.resources import POD
from common.ray import owner, serve_status
from common.runtime.actions import Action, Patch
from common.upgrade.traffic_record import WHOLE
from service_reconciler import events
from service_reconciler.observed import ClusterView, Observed


def is_shared(observed: Observed) -> bool:
    """Return whether the Service selects pods of both clusters now: there are two, and enough pods have the label."""
    return _is_needed(observed) and _may_select(observed)


def label_writes(observed: Observed) -> list[Action]:
    """Return the labels that pods lack, or have no more reason to have."""
    views = [each for each in (observed.active, observed.pending) if each is not None]
    wanted = _members(observed) if _is_needed(observed) else _kept(observed)
    pods = [pod for view in views for pod in view.pods]
    pods += [pod for draining in observed.draining for pod in draining.pods]
    name = observed.service.metadata.name
    return [
        _labelled(pod, name if pod.metadata.uid in wanted else None)
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and (pod.metadata.uid in wanted) != (labels.SERVES in pod.metadata.labels)
    ]


def _is_needed(observed: Observed) -> bool:
    have = observed.serve_service
    is_ours = have is not None and owner.other(have.metadata, observed.service.metadata) is None
    return is_ours and observed.is_incremental and observed.active is not None and observed.pending is not None


def _may_select(observed: Observed) -> bool:
    """Return whether no client loses a pod: all that the active cluster should offer have the label by now."""
    wanted = _members(observed)
    views = [each for each in (observed.active, observed.pending) if each is not None]
    offered = [pod for view in views for pod in view.pods if pod.metadata.uid in wanted and pod.is_running_and_ready]
    have = observed.serve_service
    is_on = have is not None and labels.SERVES in have.spec.selector
    return bool(offered) and (is_on or all(labels.SERVES in pod.metadata.labels for pod in offered))


def _kept(observed: Observed) -> frozenset[str]:
    """Return, by uid, the pods that stay labelled although there is one cluster: the Service still selects by the label."""
    have = observed.serve_service
    if have is None or labels.SERVES not in have.spec.selector or observed.active is None:
        return frozenset()
    return frozenset(pod.metadata.uid for pod in observed.active.pods)


def _members(observed: Observed) -> frozenset[str]:
    """Return, by uid, the pods that clients of the Service may reach."""
    active, pending = observed.active, observed.pending
    found: list[Pod] = []
    if active is not None and _weight(observed, active, WHOLE) > 0:
        found += active.pods
    if pending is not None and _weight(observed, pending, 0) > 0:
        found += _proven(pending)
    return frozenset(pod.metadata.uid for pod in found)


def _proven(view: ClusterView) -> list[Pod]:
    """Return the pods with a running replica on their node, and those that had one: their readiness follows their replicas."""
    nodes = serve_status.serving_nodes(view.serve.details) if view.serve.details is not None else frozenset[str]()
    return [pod for pod in view.pods if pod.status.pod_ip in nodes or labels.SERVES in pod.metadata.labels]


def _weight(observed: Observed, view: ClusterView, default: int) -> int:
    share = observed.record.clusters.get(view.name)
    return default if share is None else share.weight


def _labelled(pod: Pod, value: str | None) -> Action:
    meta = pod.metadata
    patch = {"metadata": {"resourceVersion": meta.resource_version, "labels": {labels.SERVES: value}}}
    report = events.pod_not_labelled(f"{meta.namespace}/{meta.name}")
    return Patch(resource=POD, name=meta.name, patch=patch, events=report, is_side=True)
