"""Batch schedulers: the objects that they need, and the fields that they read from pods.

Spec raycluster §17. A gang is a set of pods that are scheduled all at once or not at all. The
workload-aware scheduling of Kubernetes needs a Workload and a PodGroup for a gang. They cannot be
changed, so raybus deletes and recreates them, the PodGroup first. No pod is created until both
exist. A cluster that is no gang, or that has an autoscaler, has neither object: raybus deletes
objects that are left from an earlier spec (§17.5).
"""

from collections.abc import Callable
from typing import Final

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, make_step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import ChildAddress, ChildCreation, Observed
from cluster_reconciler.resources import head_pod, owner, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from common import feature_gates, labels, pod_json
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import FeatureGate
from common.kube.resources import Resource
from common.ray import batch_schedulers, desired_resources
from common.ray import cluster_traits as traits
from common.ray.batch_schedulers import (
    GANG,
    TASK_GROUPS,
    VOLCANO_POD_GROUP,
    Copies,
    TaskGroup,
    copy_labels,
    encode_task_groups,
)
from common.runtime.actions import Action, Delete, IfExists, Refuse, Replace
from common.runtime.cache import BoundedDict

PLUGINS_POD_GROUP: Final = Resource(
    group="scheduling.x-k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups"
)
WORKLOAD: Final = Resource(
    group="scheduling.k8s.io", version="v1alpha2", kind="Workload", plural="workloads"
)
POD_GROUP: Final = Resource(
    group="scheduling.k8s.io", version="v1alpha2", kind="PodGroup", plural="podgroups"
)
COMPARED: Final = frozenset({VOLCANO_POD_GROUP, WORKLOAD, POD_GROUP})
"""Kinds of objects that `submit` compares with the desired content."""
TEMPLATE: Final = "cluster"
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class BatchScheduler(msgspec.Struct, frozen=True):
    """A scheduler that places the pods of a cluster. This base class is the default scheduler."""

    name: str = ""
    copied: Copies = ()
    """Labels to copy from a cluster to its pods, as pairs: name on the cluster, name on the pod."""

    def list_children_to_read(
        self,
        cluster: RayCluster,  # noqa: ARG002  (for others)
        config: Config,  # noqa: ARG002  (for others)
    ) -> tuple[ChildCreation, ...]:
        """Return the objects that this scheduler needs, each as the action that creates it.

        The objects are not on the bus, so the caller first reads them from the API server.
        """
        return ()

    def list_addresses(self, cluster: RayCluster) -> tuple[ChildAddress, ...]:  # noqa: ARG002  (for others)
        """Return kind and name of each object that this scheduler may create for a cluster.

        They are in the order of deletion. The names follow from the metadata alone, so the objects
        can be deleted even if the spec is invalid.
        """
        return ()

    def submit(self, observed: Observed) -> Continue | ClusterPlan:
        """Return the actions that create the scheduler's objects for the cluster.

        If no pod may be created yet, return a plan with the reason. The reconcile is then retried
        soon.
        """
        own = (
            child.resource
            for child in self.list_children_to_read(observed.cluster, observed.config)
        )
        return Continue(actions=make_step(*observed.list_creations(*own)))

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:  # noqa: ARG002  (for others)
        """Add the fields that this scheduler reads to the manifest of a pod.

        `group` is `headgroup` or the name of a worker group.
        """
        copy_labels(self.copied, cluster.metadata.labels, pod["metadata"])
        if self.name:
            pod["spec"]["schedulerName"] = self.name


class YuniKorn(BatchScheduler, frozen=True):
    """YuniKorn, which needs no objects of its own, because it reads everything from the pods.

    Spec raycluster §17.2; acceptance case 117.
    """

    name: str = batch_schedulers.YUNIKORN
    copied: Copies = batch_schedulers.YUNIKORN_COPIES

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:
        """Add YuniKorn's labels to a pod, and for a gang an annotation with all task groups."""
        super().mark(cluster, config, group, pod)
        if GANG in cluster.metadata.labels:
            task_groups = cluster.metadata.annotations.get(TASK_GROUPS) or _build_task_groups(
                cluster, config
            )
            marks = {batch_schedulers.TASK_GROUP_NAME: group, TASK_GROUPS: task_groups}
            pod_json.ensure_body(pod["metadata"], "annotations").update(marks)


def _build_task_groups(cluster: RayCluster, config: Config) -> str:
    """Return YuniKorn's description of a gang: the head, and the minimum workers of each group."""
    members = [(labels.HEAD_GROUP, cluster.spec.head_group_spec.template, 1)] + [
        (group.group_name, group.template, (group.min_replicas or 0) * traits.hosts(group))
        for group in traits.worker_groups(cluster)
    ]
    return encode_task_groups(
        TaskGroup(name=name, template=template, amounts=amounts, min_members=min_members)
        for (name, template, min_members), amounts in zip(
            members, _compute_pod_resources(cluster, config), strict=True
        )
    )


_POD_RESOURCES: Final = BoundedDict[
    str, tuple[tuple[object, ...], tuple[desired_resources.Amounts, ...]]
](max_entries=256)
"""Cache of the computed pod resources of each cluster, by the cluster's uid.

Each entry contains the inputs of the computation, so that outdated entries are recognized.
"""


def _compute_pod_resources(
    cluster: RayCluster, config: Config
) -> tuple[desired_resources.Amounts, ...]:
    """Return the resources of the head pod and of one worker of each group, in spec order.

    They are sums over the complete manifests, including containers that raybus adds to the
    template.
    """
    meta = cluster.metadata
    basis = (bytes(cluster.spec_json), meta.labels, meta.annotations, config)
    cached = _POD_RESOURCES.get(meta.uid)
    if cached is None or cached[0] != basis:
        first_replica = ReplicaIndex(0)
        pods = (
            head_pod.build(cluster, config, name=""),
            *(
                worker_pod.build(cluster, group, config, name="", replica=first_replica)
                for group in traits.worker_groups(cluster)
            ),
        )
        cached = _POD_RESOURCES[meta.uid] = basis, tuple(map(desired_resources.of_pod, pods))
    return cached[1]


def _sum_resources(
    cluster: RayCluster, config: Config, replicas: Callable[[WorkerGroupSpec], int]
) -> dict[str, str]:
    """Return the resources of the head and of `replicas(group)` replicas of each active group."""
    head, *of_groups = _compute_pod_resources(cluster, config)
    total = dict(head)
    for group, amounts in zip(traits.worker_groups(cluster), of_groups, strict=True):
        if not group.suspend:
            pods = traits.hosts(group) * replicas(group)
            desired_resources.add(total, amounts, times=pods)
    return desired_resources.as_text(total)


class SchedulerPlugins(BatchScheduler, frozen=True):
    """Coscheduling by Kubernetes' scheduler-plugins (§17.3); a gang has an immutable PodGroup."""

    name: str = "scheduler-plugins-scheduler"

    def list_addresses(self, cluster: RayCluster) -> tuple[ChildAddress, ...]:
        return ((PLUGINS_POD_GROUP, cluster.metadata.name),)

    def list_children_to_read(
        self, cluster: RayCluster, config: Config
    ) -> tuple[ChildCreation, ...]:
        """Return a gang's PodGroup to read; the cluster is its owner but not its controller."""
        if GANG not in cluster.metadata.labels:
            return ()
        own = cluster.metadata.name
        body = owner.build_child(
            cluster, PLUGINS_POD_GROUP, name=own, labels={}, spec=_count_all_pods(cluster, config)
        )
        for reference in body["metadata"]["ownerReferences"]:
            del reference["controller"], reference["blockOwnerDeletion"]
        report = events.POD_GROUP_FAILED.failing(cluster, problem="failed to create PodGroup")
        return (ChildCreation(resource=PLUGINS_POD_GROUP, body=body, events=report),)

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:
        """Add the scheduler's labels to a pod, and for a gang the name of its PodGroup."""
        super().mark(cluster, config, group, pod)
        if GANG in cluster.metadata.labels:
            pod_json.ensure_body(pod["metadata"], "labels")["scheduling.x-k8s.io/pod-group"] = (
                cluster.metadata.name
            )


class Volcano(BatchScheduler, frozen=True):
    """Volcano, with a PodGroup that says how many pods must be scheduled at once.

    Spec raycluster §17.1; acceptance case 116. The clusters of a RayJob share the job's PodGroup,
    which job-reconciler writes.
    """

    name: str = batch_schedulers.VOLCANO
    copied: Copies = batch_schedulers.VOLCANO_COPIES

    def list_addresses(self, cluster: RayCluster) -> tuple[ChildAddress, ...]:
        """Return kind and name of the PodGroup; empty for the cluster of a RayJob."""
        is_jobs = traits.creator_kind(cluster) == "RayJob"
        return () if is_jobs else ((VOLCANO_POD_GROUP, format_volcano_name(cluster)),)

    def list_children_to_read(
        self, cluster: RayCluster, config: Config
    ) -> tuple[ChildCreation, ...]:
        """Return the PodGroup to read, with its desired content; empty for the cluster of a RayJob.

        The network topology is not checked here: `submit` refuses an unusable topology.
        """
        if traits.creator_kind(cluster) == "RayJob":
            return ()
        own, name, min_available = (
            cluster.metadata.labels,
            format_volcano_name(cluster),
            _count_required_pods(cluster, config),
        )
        spec = batch_schedulers.build_volcano_spec(own, min_available)
        status = {"phase": "Pending"}
        body = owner.build_child(
            cluster, VOLCANO_POD_GROUP, name=name, labels={}, spec=spec, status=status
        )
        body["metadata"]["annotations"] = dict(cluster.metadata.annotations)
        problem = f"Failed creating pod group {cluster.metadata.namespace}/{name}"
        report = events.POD_GROUP_FAILED.failing(cluster, problem=problem)
        return (
            ChildCreation(
                resource=VOLCANO_POD_GROUP, body=body, events=report, expected=min_available
            ),
        )

    def submit(self, observed: Observed) -> Continue | ClusterPlan:
        """Create the PodGroup, or update its number of pods and its resources."""
        cluster, config, meta = observed.cluster, observed.config, observed.cluster.metadata
        if traits.creator_kind(cluster) == "RayJob":
            return Continue()
        violation = batch_schedulers.find_topology_violation(
            meta.labels, meta.namespace, format_volcano_name(cluster)
        )
        if violation is not None:
            event = events.INVALID_SPEC.about(cluster, what="spec", problem=violation)
            return Continue(actions=make_step(Refuse(event=event)))
        if (have := observed.live_children.get(VOLCANO_POD_GROUP)) is None:
            return super().submit(observed)
        changed = batch_schedulers.resize_volcano_group(have, _count_required_pods(cluster, config))
        if changed is None:
            return Continue()
        (child,) = self.list_children_to_read(cluster, config)
        return Continue(
            actions=make_step(
                Replace(resource=VOLCANO_POD_GROUP, body=changed, events=child.events)
            )
        )

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:
        """Add Volcano's labels to a pod, and annotations that name its PodGroup and Ray group."""
        super().mark(cluster, config, group, pod)
        marks = batch_schedulers.volcano_marks(format_volcano_name(cluster), group)
        pod_json.ensure_body(pod["metadata"], "annotations").update(marks)


def format_volcano_name(cluster: RayCluster) -> str:
    """Return the name of Volcano's PodGroup, which a RayJob shares with its clusters."""
    of = cluster.metadata.name
    if traits.creator_kind(cluster) == "RayJob":
        of = cluster.metadata.labels.get(labels.ORIGIN_NAME, of)
    return batch_schedulers.volcano_group_name(of)


def _count_all_pods(cluster: RayCluster, config: Config) -> Body:
    return {
        "minMember": traits.desired_workers(cluster) + 1,
        "minResources": _sum_resources(cluster, config, lambda group: group.replicas or 0),
    }


def _count_required_pods(cluster: RayCluster, config: Config) -> Body:
    """Return `minMember` and `minResources` for the pods that must be scheduled at once.

    With an autoscaler these are the head and the minimum number of workers, otherwise all pods.
    """
    if not traits.is_autoscaling(cluster):
        return _count_all_pods(cluster, config)
    resources = _sum_resources(cluster, config, lambda group: group.min_replicas or 0)
    return {"minMember": traits.least_workers(cluster) + 1, "minResources": resources}


class WorkloadAware(BatchScheduler, frozen=True):
    """The gang scheduling of Kubernetes itself, with a Workload and a PodGroup."""

    def list_addresses(self, cluster: RayCluster) -> tuple[ChildAddress, ...]:
        name = cluster.metadata.name
        return (POD_GROUP, f"{name}-{TEMPLATE}"), (WORKLOAD, name)

    def list_children_to_read(
        self,
        cluster: RayCluster,
        config: Config,  # noqa: ARG002  (for others)
    ) -> tuple[ChildCreation, ...]:
        """Return the Workload and the PodGroup to read, with their desired content.

        Both are returned even for a cluster that needs neither, so that leftover objects are found
        and deleted.
        """
        count, name = {"minCount": traits.desired_workers(cluster) + 1}, cluster.metadata.name
        workload_template, policy = (
            {**count, "isGang": is_gang(cluster)},
            {"schedulingPolicy": {"gang": count}},
        )
        reference = {"apiGroup": "ray.io", "kind": ray_cluster.KIND, "name": name}
        template = {"workload": {"workloadName": name, "podGroupTemplateName": TEMPLATE}}
        children: list[ChildCreation] = []
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
            body = owner.build_child(cluster, resource, name=own, spec=spec)
            need = IfExists.NEED_OWN
            children.append(
                ChildCreation(
                    resource=resource,
                    body=body,
                    events=report,
                    if_exists=need,
                    expected=workload_template,
                )
            )
        return tuple(children)

    def submit(self, observed: Observed) -> Continue | ClusterPlan:
        """Return the plan that brings Workload and PodGroup one step closer to the desired state.

        An outdated object is deleted; missing objects are created.
        """
        cluster, dependent = observed.cluster, observed.live_children.get(POD_GROUP)
        if not is_gang(cluster):
            return withdraw(observed) or Continue()
        for resource in (WORKLOAD, POD_GROUP):
            if (have := observed.live_children.get(resource)) is None:
                continue
            description = _describe(resource, have)
            if not owner.controls(cluster, have):
                remedy = "rename it or use a different RayCluster name to avoid the collision"
                return _wait(
                    f"{description} already exists and is not owned by this RayCluster; {remedy}"
                )
            if "deletionTimestamp" in have["metadata"]:
                return _delete(
                    resource, have, waits_for=f"{description} is being deleted, will retry"
                )
            if _is_current(cluster, resource, have):
                continue
            if (
                resource is WORKLOAD
                and dependent is not None
                and owner.controls(cluster, dependent)
            ):
                stale, description = (
                    (POD_GROUP, dependent),
                    f"{_describe(POD_GROUP, dependent)} before replacing stale Workload",
                )
            else:
                stale, description = (resource, have), f"stale {description}"
            return _delete(
                *stale, waits_for=f"deleted {description}, will retry after deletion completes"
            )
        return super().submit(observed)

    def mark(self, cluster: RayCluster, config: Config, group: str, pod: Body) -> None:  # noqa: ARG002  (for others)
        """Add the name of the PodGroup to the pods of a gang."""
        if is_gang(cluster):
            pod["spec"]["schedulingGroup"] = {"podGroupName": f"{cluster.metadata.name}-{TEMPLATE}"}
            pod["spec"]["schedulerName"] = "default-scheduler"


def is_gang(cluster: RayCluster) -> bool:
    """Return whether all pods must be scheduled at once; False for a cluster with an autoscaler."""
    return feature_gates.is_on(cluster.metadata.labels, GANG) and not traits.is_autoscaling(cluster)


def _is_current(cluster: RayCluster, resource: Resource, have: Body) -> bool:
    spec = pod_json.body(have, "spec")
    groups = (
        [{**spec, "name": TEMPLATE}]
        if resource is POD_GROUP
        else pod_json.bodies(spec, "podGroupTemplates")
    )
    gangs = [
        (group.get("name"), pod_json.body(pod_json.body(group, "schedulingPolicy"), "gang"))
        for group in groups
    ]
    count = traits.desired_workers(cluster) + 1
    return [(name, gang.get("minCount")) for name, gang in gangs] == [(TEMPLATE, count)]


def list_children_to_read(observed: Observed) -> tuple[ChildCreation, ...]:
    """Return the scheduler's objects that must be read from the API server.

    The objects of a suspended cluster are deleted after its pods are gone, and are read only then.
    """
    cluster, own = observed.cluster, get_scheduler(observed.config)
    if not observed.is_to_be_suspended:
        return own.list_children_to_read(cluster, observed.config) if observed.is_valid else ()
    if observed.pods:
        return ()
    return tuple(
        ChildCreation(
            resource=resource, body={"metadata": {"name": name}}, expected={"isSuspended": True}
        )
        for resource, name in own.list_addresses(cluster)
    )


def withdraw(observed: Observed) -> ClusterPlan | None:
    """Return the plan that deletes one of the scheduler's objects; None if none is left.

    A PodGroup without pods would keep resources reserved. Objects of other owners are not deleted.
    """
    cluster = observed.cluster
    for resource, _ in get_scheduler(observed.config).list_addresses(cluster):
        if (have := observed.live_children.get(resource)) is not None and owner.owns(cluster, have):
            waits_for = f"waiting for {_describe(resource, have)} to finish deleting"
            return _delete(resource, have, waits_for=waits_for)
    return None


def _delete(resource: Resource, have: Body, *, waits_for: str) -> ClusterPlan:
    """Return the plan that removes an object's protection finalizer and deletes the object.

    `waits_for` is the reason that the plan reports. If the object is being deleted and has no such
    finalizer, the plan only waits.
    """
    meta = have["metadata"]
    remaining = [
        finalizer for finalizer in pod_json.strings(meta, "finalizers") if finalizer != PROTECTION
    ]
    is_held = remaining != pod_json.strings(meta, "finalizers")
    if "deletionTimestamp" in meta and not is_held:
        return _wait(waits_for)
    released = {**have, "metadata": {**meta, "finalizers": remaining}} if is_held else None
    action = Delete(resource=resource, name=meta["name"], uid=meta["uid"], released=released)
    return _wait(waits_for, action)


def _wait(problem: str, *actions: Action) -> ClusterPlan:
    return ClusterPlan(actions=make_step(*actions), problem=problem, note=problem)


def _describe(resource: Resource, have: Body) -> str:
    return f"{resource.kind} {have['metadata']['namespace']}/{have['metadata']['name']}"


SCHEDULERS: Final[dict[str, BatchScheduler]] = {
    "": BatchScheduler(),
    batch_schedulers.VOLCANO: Volcano(),
    batch_schedulers.YUNIKORN: YuniKorn(),
    batch_schedulers.SCHEDULER_PLUGINS: SchedulerPlugins(),
    batch_schedulers.KAI: BatchScheduler(batch_schedulers.KAI, batch_schedulers.KAI_COPIES),
}
"""Batch schedulers by their names in KubeRay's configuration."""
_WORKLOAD_AWARE: Final = WorkloadAware()


def get_scheduler(config: Config) -> BatchScheduler:
    """Return the batch scheduler that the operator is configured to use."""
    return (
        _WORKLOAD_AWARE
        if FeatureGate.KUBERNETES_WAS in config.gates
        else SCHEDULERS[config.batch_scheduler]
    )
