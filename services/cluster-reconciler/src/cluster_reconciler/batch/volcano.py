"""Volcano: a PodGroup with the number of pods that must be scheduled at once (spec raycluster §17.1; acceptance case 116)."""

from typing import Final

from cluster_reconciler import events
from cluster_reconciler.batch.schedulers import NOTHING, BatchScheduler, Submission, copy_label, pod_group_failed
from cluster_reconciler.children import digest
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.resources import owner
from cluster_reconciler.status import compute
from common import labels, pod_json, quantity
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource
from common.ray import cluster_traits as traits
from common.ray import desired_resources
from common.runtime.actions import Create, IfExists, Refuse, Replace

POD_GROUP: Final = Resource(group="scheduling.volcano.sh", version="v1beta1", kind="PodGroup", plural="podgroups")
QUEUE: Final = "volcano.sh/queue-name"
PRIORITY_CLASS: Final = "ray.io/priority-class-name"
TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
TOPOLOGY_TIER: Final = "volcano.sh/network-topology-highest-tier-allowed"


class Volcano(BatchScheduler):
    """Volcano; a RayJob's clusters share the PodGroup of the job, which is not ours."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:
        if traits.creator_kind(cluster) == "RayJob":
            return ()
        return (Child(POD_GROUP, name(cluster), digest(_numbers(cluster))),)

    def submit(self, observed: Observed) -> Submission:
        """Make the PodGroup, or bring its two numbers up to date."""
        cluster = observed.cluster
        if problem := _tier_problem(cluster):
            event = events.INVALID_SPEC.about(cluster, what="spec", problem=problem)
            return Submission(actions=(Refuse(event=event),))
        report = pod_group_failed(cluster, f"Failed creating pod group {cluster.metadata.namespace}/{name(cluster)}")
        if any(child.resource == POD_GROUP for child in observed.absent):
            create = Create(resource=POD_GROUP, body=build(cluster), events=report, if_exists=IfExists.ACCEPT)
            return Submission(actions=(create,))
        have = observed.found.get(POD_GROUP)
        changed = None if have is None else _updated(cluster, have)
        if changed is None:
            return NOTHING
        return Submission(actions=(Replace(resource=POD_GROUP, body=changed, events=report),))

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:
        """Name PodGroup, group and scheduler."""
        copy_label(cluster, pod, QUEUE)
        copy_label(cluster, pod, PRIORITY_CLASS)
        marks = {"scheduling.k8s.io/group-name": name(cluster), "volcano.sh/task-spec": group}
        pod_json.ensure_body(pod["metadata"], "annotations").update(marks)
        pod["spec"]["schedulerName"] = "volcano"


def name(cluster: RayCluster) -> str:
    """Return the PodGroup's name: the cluster's, or that of the RayJob which made it."""
    of = cluster.metadata.name
    if traits.creator_kind(cluster) == "RayJob":
        of = cluster.metadata.labels.get(labels.ORIGIN_NAME, of)
    return f"ray-{of}-pg"


def build(cluster: RayCluster) -> Body:
    """Build the PodGroup."""
    own, spec = cluster.metadata.labels, _numbers(cluster)
    if queue := own.get(QUEUE):
        spec["queue"] = queue
    if priority := own.get(PRIORITY_CLASS):
        spec["priorityClassName"] = priority
    if mode := own.get(TOPOLOGY_MODE):
        tier = own.get(TOPOLOGY_TIER)
        spec["networkTopology"] = {"mode": mode, **({"highestTierAllowed": int(tier)} if tier else {})}
    group = owner.child(cluster, POD_GROUP, name=name(cluster), labels={}, spec=spec, status={"phase": "Pending"})
    group["metadata"]["annotations"] = dict(cluster.metadata.annotations)
    return group


def _numbers(cluster: RayCluster) -> Body:
    """Return how many pods and how much room a start needs: all of it, or the least when the autoscaler adds the rest."""
    if not traits.is_autoscaling(cluster):
        return {"minMember": compute.desired_workers(cluster) + 1, "minResources": desired_resources.totals(cluster)}
    room = desired_resources.totals(cluster, lambda group: group.min_replicas or 0)
    return {"minMember": compute.least_workers(cluster) + 1, "minResources": room}


def _updated(cluster: RayCluster, have: Body) -> Body | None:
    """Return the PodGroup as read with our two numbers; None when it has them."""
    numbers, spec = _numbers(cluster), pod_json.body(have, "spec")
    current = pod_json.mapping(spec, "minResources")
    is_same = current.keys() == numbers["minResources"].keys() and all(
        quantity.parse(current[key]).compare(quantity.parse(value)) == 0
        for key, value in numbers["minResources"].items()
    )
    if is_same and spec.get("minMember") == numbers["minMember"]:
        return None
    return {**have, "spec": {**spec, **numbers}}


def _tier_problem(cluster: RayCluster) -> str:
    own = cluster.metadata.labels
    tier = own.get(TOPOLOGY_TIER, "")
    if not own.get(TOPOLOGY_MODE) or not tier or tier.lstrip("+-").isdecimal():
        return ""
    return (
        f'failed to convert {TOPOLOGY_TIER} label to int: strconv.Atoi: parsing "{tier}": invalid syntax '
        f"for podgroup {name(cluster)} in namespace {cluster.metadata.namespace}"
    )
