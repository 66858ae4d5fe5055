"""The coscheduling of Kubernetes' scheduler-plugins (spec raycluster §17.3)."""

from typing import Final

from cluster_reconciler import events
from cluster_reconciler.batch.port import GANG, NOTHING, Submission
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.resources import owner
from cluster_reconciler.status import counters
from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource
from common.ray import desired_resources
from common.runtime.actions import Create, IfExists

POD_GROUP: Final = Resource(group="scheduling.x-k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups")
MEMBER: Final = "scheduling.x-k8s.io/pod-group"
_CONTROL: Final = ("controller", "blockOwnerDeletion")


class SchedulerPlugins:
    """Implements `BatchScheduler`."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:
        """Return the PodGroup of a gang."""
        return (Child(POD_GROUP, cluster.metadata.name),) if GANG in cluster.metadata.labels else ()

    def submit(self, observed: Observed) -> Submission:
        """Make the PodGroup of a gang; it is never changed."""
        if not any(child.resource == POD_GROUP for child in observed.absent):
            return NOTHING
        report = events.pod_group_failed("failed to create PodGroup")
        body = build(observed.cluster)
        return Submission(actions=(Create(resource=POD_GROUP, body=body, events=report, if_exists=IfExists.ACCEPT),))

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:  # noqa: ARG002  (the port's parameter)
        """Name the scheduler, and the PodGroup of a gang."""
        if GANG in cluster.metadata.labels:
            pod_json.ensure_body(pod["metadata"], "labels")[MEMBER] = cluster.metadata.name
        pod["spec"]["schedulerName"] = "scheduler-plugins-scheduler"


def build(cluster: RayCluster) -> Body:
    """Build the PodGroup; the cluster owns it without controlling it."""
    spec = {"minMember": counters.desired(cluster) + 1, "minResources": desired_resources.totals(cluster)}
    group = owner.child(cluster, POD_GROUP, name=cluster.metadata.name, labels={}, spec=spec)
    reference = owner.reference(cluster)
    group["metadata"]["ownerReferences"] = [{key: value for key, value in reference.items() if key not in _CONTROL}]
    return group
