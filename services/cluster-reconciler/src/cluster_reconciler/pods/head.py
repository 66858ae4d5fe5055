"""Whether the head pod is created, replaced or kept (spec raycluster §9.4; acceptance cases 43-50)."""

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, step
from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import deletion
from cluster_reconciler.reasons import ConditionType
from common import labels
from common.kube.resources import POD
from common.runtime.actions import Delete


def decide(observed: Observed) -> Continue | ClusterPlan | None:
    """Return what is done about the head now; None when it is created."""
    cluster, heads = observed.cluster, observed.heads
    if observed.is_waiting_for(heads):
        return Continue(note="head: the old head is still going")
    if len(heads) > 1:
        found = " ".join(pod.metadata.name for pod in heads)
        fault = f"{len(heads)} head pods found [{found}]. Please delete extra head pods"
        return ClusterPlan(fault=fault, note=f"head: {fault}")
    if heads and (reason := deletion.reason(heads[0])):
        meta = heads[0].metadata
        report = events.DELETED_HEAD.about(cluster, meta.name, state=deletion.state(heads[0]))
        delete = Delete(resource=POD, name=meta.name, uid=meta.uid, events=report)
        return ClusterPlan(actions=step(delete), unfinished=reason, note=f"head: {reason}")
    if heads:
        return Continue(note="head: there is a head")
    stays_dead = cluster.metadata.annotations.get(labels.DISABLE_PROVISIONED_HEAD_RESTART) == "true"
    if stays_dead and observed.holds(ConditionType.PROVISIONED):
        return ClusterPlan(note="head: a head that is lost stays lost in this cluster")
    return None
