"""Kubernetes' own workload-aware scheduling: a Workload and a PodGroup, neither of which can be changed.

A change is a deletion, PodGroup first, and a creation; no pod is made until both exist. A cluster that is no gang, or has an
autoscaler, has neither, and remaining ones are deleted (spec raycluster §17.5).
"""

from typing import Final

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, step
from cluster_reconciler.batch.schedulers import GANG, BatchScheduler
from cluster_reconciler.children import digest
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.resources import owner
from cluster_reconciler.status import compute
from common import pod_json
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource
from common.ray import cluster_traits as traits
from common.runtime.actions import Action, Delete, IfExists

GROUP_VERSION: Final = "scheduling.k8s.io/v1alpha2"
WORKLOAD: Final = Resource(group="scheduling.k8s.io", version="v1alpha2", kind="Workload", plural="workloads")
POD_GROUP: Final = Resource(group="scheduling.k8s.io", version="v1alpha2", kind="PodGroup", plural="podgroups")
TEMPLATE: Final = "cluster"
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class WorkloadAware(BatchScheduler, frozen=True):
    """Kubernetes' own scheduler of gangs."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:
        """Return Workload and PodGroup, also of a cluster that should have none."""
        wanted, name = digest({"minCount": _members(cluster), "isGang": is_gang(cluster)}), cluster.metadata.name
        policy: Body = {"schedulingPolicy": {"gang": {"minCount": _members(cluster)}}}
        reference = {"apiGroup": "ray.io", "kind": ray_cluster.KIND, "name": name}
        template = {"workload": {"workloadName": name, "podGroupTemplateName": TEMPLATE}}
        found: list[Child] = []
        for resource, own, spec in (
            (WORKLOAD, name, {"controllerRef": reference, "podGroupTemplates": [{"name": TEMPLATE, **policy}]}),
            (POD_GROUP, pod_group_name(cluster), {"podGroupTemplateRef": template, **policy}),
        ):
            problem = f"failed to create {resource.kind} {cluster.metadata.namespace}/{own}"
            report = events.POD_GROUP_FAILED.failing(cluster, problem=problem)
            body = owner.child(cluster, resource, name=own, spec=spec)
            found.append(Child(resource, own, body, report, IfExists.NEED_OWN, wanted))
        return tuple(found)

    def submit(self, observed: Observed) -> Continue | ClusterPlan:
        """Bring both objects a step nearer to what they should be: what does not fit is deleted, and what is absent is made."""
        cluster, dependent = observed.cluster, observed.found.get(POD_GROUP)
        if not is_gang(cluster):  # our PodGroup goes, then our Workload; those of other owners stay
            for resource in (POD_GROUP, WORKLOAD):
                if (have := observed.found.get(resource)) is not None and owner.controls(cluster, have):
                    what = f"{resource.kind} {_place(have)}"
                    return _delete(resource, have, waits_for=f"waiting for {what} to finish deleting")
            return Continue()
        for resource in (WORKLOAD, POD_GROUP):
            if (have := observed.found.get(resource)) is None:
                continue
            what = f"{resource.kind} {_place(have)}"
            if not owner.controls(cluster, have):
                remedy = "rename it or use a different RayCluster name to avoid the collision"
                return _wait(f"{what} already exists and is not owned by this RayCluster; {remedy}")
            if "deletionTimestamp" in have["metadata"]:
                return _delete(resource, have, waits_for=f"{what} is being deleted, will retry")
            if _fits(cluster, resource, have):
                continue
            if resource is WORKLOAD and dependent is not None and owner.controls(cluster, dependent):
                stale, what = (POD_GROUP, dependent), f"PodGroup {_place(dependent)} before replacing stale Workload"
            else:
                stale, what = (resource, have), f"stale {what}"
            return _delete(*stale, waits_for=f"deleted {what}, will retry after deletion completes")
        return super().submit(observed)

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:  # noqa: ARG002  (for others)
        """Name the PodGroup of a gang."""
        if is_gang(cluster):
            pod["spec"]["schedulingGroup"] = {"podGroupName": pod_group_name(cluster)}
            pod["spec"]["schedulerName"] = "default-scheduler"


def is_gang(cluster: RayCluster) -> bool:
    """Return whether all pods are to be placed together."""
    return cluster.metadata.labels.get(GANG, "").lower() == "true" and not traits.is_autoscaling(cluster)


def pod_group_name(cluster: RayCluster) -> str:
    """Return the PodGroup's name."""
    return f"{cluster.metadata.name}-{TEMPLATE}"


def _members(cluster: RayCluster) -> int:
    return compute.desired_workers(cluster) + 1


def _fits(cluster: RayCluster, resource: Resource, have: Body) -> bool:
    spec = pod_json.body(have, "spec")
    groups = [{**spec, "name": TEMPLATE}] if resource is POD_GROUP else pod_json.bodies(spec, "podGroupTemplates")
    gangs = [(each.get("name"), pod_json.body(pod_json.body(each, "schedulingPolicy"), "gang")) for each in groups]
    return [(name, gang.get("minCount")) for name, gang in gangs] == [(TEMPLATE, _members(cluster))]


def _delete(resource: Resource, have: Body, *, waits_for: str) -> ClusterPlan:
    """Delete an object, its protection first; for one that is being deleted, only wait."""
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


def _place(have: Body) -> str:
    return f"{have['metadata']['namespace']}/{have['metadata']['name']}"
