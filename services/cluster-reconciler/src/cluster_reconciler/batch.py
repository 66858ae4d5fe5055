"""Batch schedulers: their objects beside a cluster and their marks on its pods.

Spec raycluster §17. The workload-aware scheduling of Kubernetes needs a Workload and a PodGroup,
which are immutable. A change deletes both, the PodGroup first, and creates them again; no pod is
created until both exist. A cluster that is no gang or has an autoscaler needs neither, and
remaining ones are deleted (§17.5).
"""

from collections.abc import Callable
from typing import Final

import msgspec
import re2

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Child, Observed, Place
from cluster_reconciler.resources import head_pod, owner, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from cluster_reconciler.status import compute
from common import feature_gates, labels, pod_json, quantity
from common.api import go_json, ray_cluster
from common.api.go_types import POD_SPEC
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import Gate
from common.kube.resources import Resource
from common.ray import cluster_traits as traits
from common.ray import desired_resources
from common.runtime.actions import Action, Delete, IfExists, Refuse, Replace
from common.runtime.cache import BoundedDict

GANG: Final = "ray.io/gang-scheduling-enabled"
"""Label of a RayCluster whose pods are placed all together or not at all."""
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
_INTEGER: Final = re2.compile(r"[+-]?[0-9]+")
WORKLOAD: Final = Resource(
    group="scheduling.k8s.io", version="v1alpha2", kind="Workload", plural="workloads"
)
POD_GROUP: Final = Resource(
    group="scheduling.k8s.io", version="v1alpha2", kind="PodGroup", plural="podgroups"
)
COMPARED: Final = frozenset({VOLCANO_POD_GROUP, WORKLOAD, POD_GROUP})
"""Kinds whose objects `submit` compares with the wanted content."""
TEMPLATE: Final = "cluster"
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class BatchScheduler(msgspec.Struct, frozen=True):
    """A scheduler that places the pods of a cluster; without a name the default scheduler."""

    name: str = ""
    copied: tuple[tuple[str, str], ...] = ()
    """Labels of the cluster that are copied to its pods: name on the cluster, name on the pods."""

    def looked_up(self, cluster: RayCluster, config: Config) -> tuple[Child, ...]:  # noqa: ARG002  (for others)
        """Return the scheduler's objects, which must be read from the API server."""
        return ()

    def places(self, cluster: RayCluster) -> tuple[Place, ...]:  # noqa: ARG002  (for others)
        """Return kind and name of the objects that the scheduler may have, in deletion order.

        The names follow from the metadata alone, so that an invalid spec does not prevent the
        deletion.
        """
        return ()

    def submit(self, observed: Observed) -> Continue | ClusterPlan:
        """Create the scheduler's objects for the cluster.

        Returns a plan with the reason if no pod may be created yet; the key is then requeued soon.
        """
        own = (child.resource for child in self.looked_up(observed.cluster, observed.config))
        return Continue(actions=step(*observed.creations(*own)))

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:  # noqa: ARG002  (for others)
        """Add the scheduler's marks to a pod's body; `group` is `headgroup` or a worker group."""
        for label, into in self.copied:
            if value := cluster.metadata.labels.get(label):
                pod_json.ensure_body(pod["metadata"], "labels")[into] = value
        if self.name:
            pod["spec"]["schedulerName"] = self.name


class YuniKorn(BatchScheduler, frozen=True):
    """YuniKorn, which reads everything from the pods (§17.2; acceptance case 117)."""

    name: str = "yunikorn"
    copied: tuple[tuple[str, str], ...] = (
        ("yunikorn.apache.org/app-id", "applicationId"),
        ("yunikorn.apache.org/queue", "queue"),
    )

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:
        """Add the marks, and for a gang the description of its groups."""
        super().mark(cluster, config, group, pod)
        if GANG in cluster.metadata.labels:
            known = cluster.metadata.annotations.get(TASK_GROUPS) or _task_groups(cluster, config)
            marks = {"yunikorn.apache.org/task-group-name": group, TASK_GROUPS: known}
            pod_json.ensure_body(pod["metadata"], "annotations").update(marks)


def _task_groups(cluster: RayCluster, config: Config) -> str:
    """Return YuniKorn's description of a gang: the head, and each group's minimum of workers."""
    members = [(labels.HEAD_GROUP, cluster.spec.head_group_spec.template, 1)] + [
        (group.group_name, group.template, (group.min_replicas or 0) * traits.hosts(group))
        for group in traits.worker_groups(cluster)
    ]
    described, room = list[Body](), _room_of_pods(cluster, config)
    for (name, template, least), amounts in zip(members, room, strict=True):
        placing = pod_json.shared(
            pod_json.spec(template), "nodeSelector", "affinity", "tolerations"
        )
        placed: Json = msgspec.json.decode(go_json.encode(POD_SPEC, placing))
        found: Body = {"minResource": desired_resources.as_text(amounts)}
        found |= {field: placed[field] for field in ("nodeSelector", "affinity") if field in placed}
        found["name"] = name
        if "tolerations" in placed:
            found["tolerations"] = placed["tolerations"]
        described.append({**found, "minMember": least})
    return go_json.escaped(msgspec.json.encode(described).decode())


_ROOM: Final = BoundedDict[str, tuple[tuple[object, ...], tuple[desired_resources.Amounts, ...]]](
    max_entries=256
)
"""The last computed resources of a cluster, by its uid.

Each entry has the inputs of the computation.
"""


def _room_of_pods(cluster: RayCluster, config: Config) -> tuple[desired_resources.Amounts, ...]:
    """Return the resources of the head pod and of one worker of each group, in spec order.

    The pods are measured as they are built, including containers that the template does not have.
    """
    meta = cluster.metadata
    basis = (bytes(cluster.spec_json), meta.labels, meta.annotations, config)
    known = _ROOM.get(meta.uid)
    if known is None or known[0] != basis:
        place = ReplicaIndex(0)
        pods = (
            head_pod.build(cluster, config, name=""),
            *(
                worker_pod.build(cluster, group, config, name="", replica=place)
                for group in traits.worker_groups(cluster)
            ),
        )
        known = _ROOM[meta.uid] = basis, tuple(map(desired_resources.of_pod, pods))
    return known[1]


def _room(
    cluster: RayCluster, config: Config, replicas: Callable[[WorkerGroupSpec], int]
) -> dict[str, str]:
    """Return the total resources of the head and of `replicas(group)` replicas of each group."""
    head, *of_groups = _room_of_pods(cluster, config)
    total = dict(head)
    for group, amounts in zip(traits.worker_groups(cluster), of_groups, strict=True):
        if not group.suspend:
            pods = traits.hosts(group) * replicas(group)
            desired_resources.add(total, amounts, times=pods)
    return desired_resources.as_text(total)


class SchedulerPlugins(BatchScheduler, frozen=True):
    """The coscheduling of scheduler-plugins (§17.3), with an immutable PodGroup for a gang."""

    name: str = "scheduler-plugins-scheduler"

    def places(self, cluster: RayCluster) -> tuple[Place, ...]:
        return ((PLUGINS_POD_GROUP, cluster.metadata.name),)

    def looked_up(self, cluster: RayCluster, config: Config) -> tuple[Child, ...]:
        """Return the PodGroup, which the cluster owns but does not control."""
        if GANG not in cluster.metadata.labels:
            return ()
        own = cluster.metadata.name
        body = owner.child(
            cluster, PLUGINS_POD_GROUP, name=own, labels={}, spec=_all_at_once(cluster, config)
        )
        for reference in body["metadata"]["ownerReferences"]:
            del reference["controller"], reference["blockOwnerDeletion"]
        report = events.POD_GROUP_FAILED.failing(cluster, problem="failed to create PodGroup")
        return (Child(resource=PLUGINS_POD_GROUP, body=body, events=report),)

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:
        """Add the marks, and for a gang the name of its PodGroup."""
        super().mark(cluster, config, group, pod)
        if GANG in cluster.metadata.labels:
            pod_json.ensure_body(pod["metadata"], "labels")["scheduling.x-k8s.io/pod-group"] = (
                cluster.metadata.name
            )


class Volcano(BatchScheduler, frozen=True):
    """Volcano, with a PodGroup that tells how many pods must be scheduled at once.

    Spec raycluster §17.1; acceptance case 116. The clusters of a RayJob share the job's PodGroup,
    which raybus does not write.
    """

    name: str = "volcano"
    copied: tuple[tuple[str, str], ...] = (
        (VOLCANO_QUEUE, VOLCANO_QUEUE),
        (PRIORITY_CLASS, PRIORITY_CLASS),
    )

    def places(self, cluster: RayCluster) -> tuple[Place, ...]:
        """Return kind and name of the PodGroup; empty for the cluster of a RayJob."""
        is_jobs = traits.creator_kind(cluster) == "RayJob"
        return () if is_jobs else ((VOLCANO_POD_GROUP, volcano_name(cluster)),)

    def looked_up(self, cluster: RayCluster, config: Config) -> tuple[Child, ...]:
        """Return the PodGroup.

        A topology tier that is no number is left out; `submit` refuses it.
        """
        if traits.creator_kind(cluster) == "RayJob":
            return ()
        own, name, wanted = (
            cluster.metadata.labels,
            volcano_name(cluster),
            _numbers(cluster, config),
        )
        tier = own.get(TOPOLOGY_TIER, "")
        highest = {"highestTierAllowed": int(tier)} if _INTEGER.fullmatch(tier) else {}
        topology = {"mode": own[TOPOLOGY_MODE], **highest} if own.get(TOPOLOGY_MODE) else None
        marks = {"queue": own.get(VOLCANO_QUEUE), "priorityClassName": own.get(PRIORITY_CLASS)}
        given = {
            field: value for field, value in {**marks, "networkTopology": topology}.items() if value
        }
        status = {"phase": "Pending"}
        body = owner.child(
            cluster, VOLCANO_POD_GROUP, name=name, labels={}, spec=wanted | given, status=status
        )
        body["metadata"]["annotations"] = dict(cluster.metadata.annotations)
        problem = f"Failed creating pod group {cluster.metadata.namespace}/{name}"
        report = events.POD_GROUP_FAILED.failing(cluster, problem=problem)
        return (Child(resource=VOLCANO_POD_GROUP, body=body, events=report, wanted=wanted),)

    def submit(self, observed: Observed) -> Continue | ClusterPlan:
        """Create the PodGroup, or update its number of pods and its resources."""
        cluster, own = observed.cluster, observed.cluster.metadata.labels
        if traits.creator_kind(cluster) == "RayJob":
            return Continue()
        tier = own.get(TOPOLOGY_TIER, "")
        if own.get(TOPOLOGY_MODE) and tier and not _INTEGER.fullmatch(tier):
            problem = (
                f'failed to convert {TOPOLOGY_TIER} label to int: strconv.Atoi: parsing "{tier}": '
                "invalid syntax "
                f"for podgroup {volcano_name(cluster)} in namespace {cluster.metadata.namespace}"
            )
            event = events.INVALID_SPEC.about(cluster, what="spec", problem=problem)
            return Continue(actions=step(Refuse(event=event)))
        if (have := observed.found.get(VOLCANO_POD_GROUP)) is None:
            return super().submit(observed)
        config = observed.config
        numbers, spec = _numbers(cluster, config), pod_json.body(have, "spec")
        current, room = pod_json.mapping(spec, "minResources"), numbers["minResources"]
        has_room = current.keys() == room.keys() and all(
            quantity.parse(current[key]).compare(quantity.parse(value)) == 0
            for key, value in room.items()
        )
        if has_room and spec.get("minMember") == numbers["minMember"]:
            return Continue()
        changed, (child,) = {**have, "spec": {**spec, **numbers}}, self.looked_up(cluster, config)
        return Continue(
            actions=step(Replace(resource=VOLCANO_POD_GROUP, body=changed, events=child.events))
        )

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:
        """Add the marks, and the names of PodGroup and group."""
        super().mark(cluster, config, group, pod)
        marks = {
            "scheduling.k8s.io/group-name": volcano_name(cluster),
            "volcano.sh/task-spec": group,
        }
        pod_json.ensure_body(pod["metadata"], "annotations").update(marks)


def volcano_name(cluster: RayCluster) -> str:
    """Return the name of Volcano's PodGroup, which a RayJob shares with its clusters."""
    of = cluster.metadata.name
    if traits.creator_kind(cluster) == "RayJob":
        of = cluster.metadata.labels.get(labels.ORIGIN_NAME, of)
    return f"ray-{of}-pg"


def _all_at_once(cluster: RayCluster, config: Config) -> Body:
    """Return the number of all pods of a cluster and their resources."""
    return {
        "minMember": compute.desired_workers(cluster) + 1,
        "minResources": _room(cluster, config, lambda group: group.replicas or 0),
    }


def _numbers(cluster: RayCluster, config: Config) -> Body:
    """Return the number and the resources of the pods that must be scheduled at once.

    With an autoscaler these are the minimum, as the autoscaler adds the rest; else all pods.
    """
    if not traits.is_autoscaling(cluster):
        return _all_at_once(cluster, config)
    room = _room(cluster, config, lambda group: group.min_replicas or 0)
    return {"minMember": compute.least_workers(cluster) + 1, "minResources": room}


class WorkloadAware(BatchScheduler, frozen=True):
    """The gang scheduling of Kubernetes itself."""

    def places(self, cluster: RayCluster) -> tuple[Place, ...]:
        name = cluster.metadata.name
        return (POD_GROUP, f"{name}-{TEMPLATE}"), (WORKLOAD, name)

    def looked_up(self, cluster: RayCluster, config: Config) -> tuple[Child, ...]:  # noqa: ARG002
        """Return Workload and PodGroup, also for a cluster that should have neither."""
        count, name = {"minCount": compute.desired_workers(cluster) + 1}, cluster.metadata.name
        wanted, policy = (
            {**count, "isGang": is_gang(cluster)},
            {"schedulingPolicy": {"gang": count}},
        )
        reference = {"apiGroup": "ray.io", "kind": ray_cluster.KIND, "name": name}
        template = {"workload": {"workloadName": name, "podGroupTemplateName": TEMPLATE}}
        found: list[Child] = []
        for resource, own, spec in (
            (
                WORKLOAD,
                name,
                {"controllerRef": reference, "podGroupTemplates": [{"name": TEMPLATE, **policy}]},
            ),
            (POD_GROUP, f"{name}-{TEMPLATE}", {"podGroupTemplateRef": template, **policy}),
        ):
            problem = f"failed to create {resource.kind} {cluster.metadata.namespace}/{own}"
            report = events.POD_GROUP_FAILED.failing(cluster, problem=problem)
            body = owner.child(cluster, resource, name=own, spec=spec)
            need = IfExists.NEED_OWN
            found.append(
                Child(resource=resource, body=body, events=report, if_exists=need, wanted=wanted)
            )
        return tuple(found)

    def submit(self, observed: Observed) -> Continue | ClusterPlan:
        """Bring Workload and PodGroup one step closer to the wanted state.

        An outdated object is deleted; missing objects are created.
        """
        cluster, dependent = observed.cluster, observed.found.get(POD_GROUP)
        if not is_gang(cluster):
            return withdraw(observed) or Continue()
        for resource in (WORKLOAD, POD_GROUP):
            if (have := observed.found.get(resource)) is None:
                continue
            what = _named(resource, have)
            if not owner.controls(cluster, have):
                remedy = "rename it or use a different RayCluster name to avoid the collision"
                return _wait(f"{what} already exists and is not owned by this RayCluster; {remedy}")
            if "deletionTimestamp" in have["metadata"]:
                return _delete(resource, have, waits_for=f"{what} is being deleted, will retry")
            if _fits(cluster, resource, have):
                continue
            if (
                resource is WORKLOAD
                and dependent is not None
                and owner.controls(cluster, dependent)
            ):
                stale, what = (
                    (POD_GROUP, dependent),
                    f"{_named(POD_GROUP, dependent)} before replacing stale Workload",
                )
            else:
                stale, what = (resource, have), f"stale {what}"
            return _delete(*stale, waits_for=f"deleted {what}, will retry after deletion completes")
        return super().submit(observed)

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:  # noqa: ARG002  (for others)
        """Add the name of the PodGroup to the pods of a gang."""
        if is_gang(cluster):
            pod["spec"]["schedulingGroup"] = {"podGroupName": f"{cluster.metadata.name}-{TEMPLATE}"}
            pod["spec"]["schedulerName"] = "default-scheduler"


def is_gang(cluster: RayCluster) -> bool:
    """Return whether all pods are placed together; an autoscaler rules that out."""
    return feature_gates.is_on(cluster.metadata.labels, GANG) and not traits.is_autoscaling(cluster)


def _fits(cluster: RayCluster, resource: Resource, have: Body) -> bool:
    spec = pod_json.body(have, "spec")
    groups = (
        [{**spec, "name": TEMPLATE}]
        if resource is POD_GROUP
        else pod_json.bodies(spec, "podGroupTemplates")
    )
    gangs = [
        (each.get("name"), pod_json.body(pod_json.body(each, "schedulingPolicy"), "gang"))
        for each in groups
    ]
    count = compute.desired_workers(cluster) + 1
    return [(name, gang.get("minCount")) for name, gang in gangs] == [(TEMPLATE, count)]


def looked_up(observed: Observed) -> tuple[Child, ...]:
    """Return the scheduler's objects that must be read from the API server.

    For a suspended cluster these are read when its pods are gone, to be deleted then.
    """
    cluster, own = observed.cluster, scheduler(observed.config)
    if not observed.is_to_be_suspended:
        return own.looked_up(cluster, observed.config) if observed.is_valid else ()
    if observed.pods:
        return ()
    return tuple(
        Child(resource=resource, body={"metadata": {"name": name}}, wanted={"isSuspended": True})
        for resource, name in own.places(cluster)
    )


def withdraw(observed: Observed) -> ClusterPlan | None:
    """Return the plan that deletes the scheduler's first object of this cluster; None without one.

    Objects of other owners stay. An object of a cluster without pods would keep resources reserved.
    """
    cluster = observed.cluster
    for resource, _ in scheduler(observed.config).places(cluster):
        if (have := observed.found.get(resource)) is not None and owner.owns(cluster, have):
            waits_for = f"waiting for {_named(resource, have)} to finish deleting"
            return _delete(resource, have, waits_for=waits_for)
    return None


def _delete(resource: Resource, have: Body, *, waits_for: str) -> ClusterPlan:
    """Return the plan that deletes an object, after its protection finalizer is removed.

    The plan only waits if the object is being deleted already.
    """
    meta = have["metadata"]
    left = [each for each in pod_json.strings(meta, "finalizers") if each != PROTECTION]
    is_held = left != pod_json.strings(meta, "finalizers")
    if "deletionTimestamp" in meta and not is_held:
        return _wait(waits_for)
    released = {**have, "metadata": {**meta, "finalizers": left}} if is_held else None
    action = Delete(resource=resource, name=meta["name"], uid=meta["uid"], released=released)
    return _wait(waits_for, action)


def _wait(problem: str, *actions: Action) -> ClusterPlan:
    return ClusterPlan(actions=step(*actions), fault=problem, note=problem)


def _named(resource: Resource, have: Body) -> str:
    return f"{resource.kind} {have['metadata']['namespace']}/{have['metadata']['name']}"


SCHEDULERS: Final[dict[str, BatchScheduler]] = {
    "": BatchScheduler(),
    "volcano": Volcano(),
    "yunikorn": YuniKorn(),
    "scheduler-plugins": SchedulerPlugins(),
    "kai-scheduler": BatchScheduler(
        "kai-scheduler", (("kai.scheduler/queue", "kai.scheduler/queue"),)
    ),
}
"""Schedulers by their names in KubeRay's configuration."""
_WORKLOAD_AWARE: Final = WorkloadAware()


def scheduler(config: Config) -> BatchScheduler:
    """Return the scheduler for which the operator is configured."""
    return (
        _WORKLOAD_AWARE
        if Gate.KUBERNETES_WAS in config.gates
        else SCHEDULERS[config.batch_scheduler]
    )
