"""What a batch scheduler wants of us: its own object beside a cluster, and marks on the cluster's pods; and those that want little."""

from typing import Final

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, step
from cluster_reconciler.children import digest
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.pods import workers
from cluster_reconciler.resources import owner
from cluster_reconciler.status import compute
from common import labels, pod_json, quantity
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource
from common.ray import cluster_traits as traits
from common.ray import desired_resources
from common.runtime.actions import Create, IfExists, Refuse, Replace

GANG: Final = "ray.io/gang-scheduling-enabled"
"""A label of the RayCluster: all its pods are placed together, or none."""
PLUGINS_POD_GROUP: Final = Resource(
    group="scheduling.x-k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups"
)
VOLCANO_POD_GROUP: Final = Resource(
    group="scheduling.volcano.sh", version="v1beta1", kind="PodGroup", plural="podgroups"
)
VOLCANO_QUEUE: Final = "volcano.sh/queue-name"
PRIORITY_CLASS: Final = "ray.io/priority-class-name"
TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
TOPOLOGY_TIER: Final = "volcano.sh/network-topology-highest-tier-allowed"
TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"


class BatchScheduler:
    """One scheduler that places the pods of a cluster; this one is that of Kubernetes itself, pod by pod."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:  # noqa: ARG002  (for others)
        """Return the scheduler's own objects, which are looked up at the API server."""
        return ()

    def submit(self, observed: Observed) -> Continue | ClusterPlan:  # noqa: ARG002  (for others)
        """Announce the cluster to the scheduler; a plan has the reason why no pods may be made yet, and the key is requeued soon."""
        return Continue()

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:
        """Put the scheduler's marks on a pod to be; `group` is `headgroup` or a worker group."""


class Kai(BatchScheduler):
    """NVIDIA's KAI scheduler: a queue on the pods is all (§17.4)."""

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:  # noqa: ARG002  (for others)
        copy_label(cluster, pod, "kai.scheduler/queue")
        pod["spec"]["schedulerName"] = "kai-scheduler"


class YuniKorn(BatchScheduler):
    """YuniKorn: everything it needs is on the pods (§17.2; acceptance case 117)."""

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:
        """Name application, queue and scheduler, and for a gang its groups."""
        copy_label(cluster, pod, "yunikorn.apache.org/app-id", into="applicationId")
        copy_label(cluster, pod, "yunikorn.apache.org/queue", into="queue")
        pod["spec"]["schedulerName"] = "yunikorn"
        if GANG in cluster.metadata.labels:
            known = cluster.metadata.annotations.get(TASK_GROUPS) or _task_groups(cluster)
            marks = {"yunikorn.apache.org/task-group-name": group, TASK_GROUPS: known}
            pod_json.ensure_body(pod["metadata"], "annotations").update(marks)


def _task_groups(cluster: RayCluster) -> str:
    """Describe the gang: the head, then every worker group with the pods that it must have at least."""
    members = [(labels.HEAD_GROUP, cluster.spec.head_group_spec.template, 1)] + [
        (group.group_name, group.template, (group.min_replicas or 0) * workers.hosts(group))
        for group in traits.worker_groups(cluster)
    ]
    described: list[Body] = []
    for name, template, least in members:
        spec = pod_json.spec(template)
        found: Body = {"minResource": desired_resources.of_template(template)}
        found |= {field: spec[field] for field in ("nodeSelector", "affinity") if spec.get(field)}
        found["name"] = name
        if spec.get("tolerations"):
            found["tolerations"] = spec["tolerations"]
        described.append({**found, "minMember": least})
    return msgspec.json.encode(described).decode()


class SchedulerPlugins(BatchScheduler):
    """The coscheduling of Kubernetes' scheduler-plugins (§17.3)."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:
        return (Child(PLUGINS_POD_GROUP, cluster.metadata.name),) if GANG in cluster.metadata.labels else ()

    def submit(self, observed: Observed) -> Continue:
        """Make the PodGroup of a gang; it is never changed. The cluster owns it without controlling it."""
        if not any(child.resource == PLUGINS_POD_GROUP for child in observed.absent):
            return Continue()
        cluster = observed.cluster
        room = {"minMember": compute.desired_workers(cluster) + 1, "minResources": desired_resources.totals(cluster)}
        body = owner.child(cluster, PLUGINS_POD_GROUP, name=cluster.metadata.name, labels={}, spec=room)
        for reference in body["metadata"]["ownerReferences"]:
            del reference["controller"], reference["blockOwnerDeletion"]
        report = events.POD_GROUP_FAILED.failing(cluster, problem="failed to create PodGroup")
        create = Create(resource=PLUGINS_POD_GROUP, body=body, events=report, if_exists=IfExists.ACCEPT)
        return Continue(actions=step(create))

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:  # noqa: ARG002  (for others)
        """Name the scheduler, and the PodGroup of a gang."""
        if GANG in cluster.metadata.labels:
            pod_json.ensure_body(pod["metadata"], "labels")["scheduling.x-k8s.io/pod-group"] = cluster.metadata.name
        pod["spec"]["schedulerName"] = "scheduler-plugins-scheduler"


class Volcano(BatchScheduler):
    """Volcano: a PodGroup with the number of pods that must be scheduled at once (§17.1; acceptance case 116).

    A RayJob's clusters share the PodGroup of the job, which is not ours.
    """

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:
        if traits.creator_kind(cluster) == "RayJob":
            return ()
        return (Child(VOLCANO_POD_GROUP, volcano_name(cluster), digest(_numbers(cluster))),)

    def submit(self, observed: Observed) -> Continue:
        """Make the PodGroup, or bring its two numbers up to date."""
        cluster = observed.cluster
        own, where = cluster.metadata.labels, f"{cluster.metadata.namespace}/{volcano_name(cluster)}"
        tier = own.get(TOPOLOGY_TIER, "")
        if own.get(TOPOLOGY_MODE) and tier and not tier.lstrip("+-").isdecimal():
            problem = (
                f'failed to convert {TOPOLOGY_TIER} label to int: strconv.Atoi: parsing "{tier}": invalid syntax '
                f"for podgroup {volcano_name(cluster)} in namespace {cluster.metadata.namespace}"
            )
            event = events.INVALID_SPEC.about(cluster, what="spec", problem=problem)
            return Continue(actions=step(Refuse(event=event)))
        report = events.POD_GROUP_FAILED.failing(cluster, problem=f"Failed creating pod group {where}")
        if any(child.resource == VOLCANO_POD_GROUP for child in observed.absent):
            body = build_volcano_group(cluster)
            create = Create(resource=VOLCANO_POD_GROUP, body=body, events=report, if_exists=IfExists.ACCEPT)
            return Continue(actions=step(create))
        if (have := observed.found.get(VOLCANO_POD_GROUP)) is None:
            return Continue()
        numbers, spec = _numbers(cluster), pod_json.body(have, "spec")
        current, room = pod_json.mapping(spec, "minResources"), numbers["minResources"]
        has_room = current.keys() == room.keys() and all(
            quantity.parse(current[key]).compare(quantity.parse(value)) == 0 for key, value in room.items()
        )
        if has_room and spec.get("minMember") == numbers["minMember"]:
            return Continue()
        changed = {**have, "spec": {**spec, **numbers}}
        return Continue(actions=step(Replace(resource=VOLCANO_POD_GROUP, body=changed, events=report)))

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:
        """Name PodGroup, group and scheduler."""
        copy_label(cluster, pod, VOLCANO_QUEUE)
        copy_label(cluster, pod, PRIORITY_CLASS)
        marks = {"scheduling.k8s.io/group-name": volcano_name(cluster), "volcano.sh/task-spec": group}
        pod_json.ensure_body(pod["metadata"], "annotations").update(marks)
        pod["spec"]["schedulerName"] = "volcano"


def volcano_name(cluster: RayCluster) -> str:
    """Return the name of Volcano's PodGroup: the cluster's, or that of the RayJob which made it."""
    of = cluster.metadata.name
    if traits.creator_kind(cluster) == "RayJob":
        of = cluster.metadata.labels.get(labels.ORIGIN_NAME, of)
    return f"ray-{of}-pg"


def build_volcano_group(cluster: RayCluster) -> Body:
    """Build Volcano's PodGroup."""
    own, spec = cluster.metadata.labels, _numbers(cluster)
    if queue := own.get(VOLCANO_QUEUE):
        spec["queue"] = queue
    if priority := own.get(PRIORITY_CLASS):
        spec["priorityClassName"] = priority
    if mode := own.get(TOPOLOGY_MODE):
        tier = own.get(TOPOLOGY_TIER)
        spec["networkTopology"] = {"mode": mode, **({"highestTierAllowed": int(tier)} if tier else {})}
    group = owner.child(
        cluster, VOLCANO_POD_GROUP, name=volcano_name(cluster), labels={}, spec=spec, status={"phase": "Pending"}
    )
    group["metadata"]["annotations"] = dict(cluster.metadata.annotations)
    return group


def _numbers(cluster: RayCluster) -> Body:
    """Return how many pods and how much room a start needs: all of it, or the least when the autoscaler adds the rest."""
    if not traits.is_autoscaling(cluster):
        return {"minMember": compute.desired_workers(cluster) + 1, "minResources": desired_resources.totals(cluster)}
    room = desired_resources.totals(cluster, lambda group: group.min_replicas or 0)
    return {"minMember": compute.least_workers(cluster) + 1, "minResources": room}


def copy_label(cluster: RayCluster, pod: Body, label: str, *, into: str | None = None) -> None:
    """Copy a label of the cluster to a pod, unless it is empty."""
    if value := cluster.metadata.labels.get(label, ""):
        pod_json.ensure_body(pod["metadata"], "labels")[into or label] = value
