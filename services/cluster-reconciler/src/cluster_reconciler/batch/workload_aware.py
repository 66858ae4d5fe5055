"""Kubernetes' own workload-aware scheduling: a Workload and a PodGroup, neither of which can be changed.

A change is a deletion, PodGroup first, and a creation; no pod is made until both exist. A cluster that is no gang, or has an
autoscaler, has neither, and remaining ones are deleted (spec raycluster §17.5).
"""

from typing import Final

from cluster_reconciler import events
from cluster_reconciler.batch.port import GANG, NOTHING, Submission
from cluster_reconciler.children import digest
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.resources import owner
from cluster_reconciler.status import counters
from common import labels, pod_json
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource
from common.ray import cluster_traits as traits
from common.runtime.actions import Action, Create, Delete, IfExists

GROUP_VERSION: Final = "scheduling.k8s.io/v1alpha2"
WORKLOAD: Final = Resource(group="scheduling.k8s.io", version="v1alpha2", kind="Workload", plural="workloads")
POD_GROUP: Final = Resource(group="scheduling.k8s.io", version="v1alpha2", kind="PodGroup", plural="podgroups")
TEMPLATE: Final = "cluster"
PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"


class WorkloadAware:
    """Implements `BatchScheduler`."""

    def looked_up(self, cluster: RayCluster) -> tuple[Child, ...]:
        """Return Workload and PodGroup, also of a cluster that should have none."""
        wanted = digest({"minCount": _members(cluster), "isGang": is_gang(cluster)})
        return (
            Child(WORKLOAD, cluster.metadata.name, wanted),
            Child(POD_GROUP, pod_group_name(cluster), wanted),
        )

    def submit(self, observed: Observed) -> Submission:
        """Bring both objects a step nearer to what they should be."""
        cluster = observed.cluster
        if not is_gang(cluster):
            return _clean_up(observed)
        return _workload(observed) or _pod_group(observed) or _missing(observed)

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:  # noqa: ARG002  (the port's parameter)
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


def workload(cluster: RayCluster) -> Body:
    """Build the Workload."""
    reference = {"apiGroup": "ray.io", "kind": ray_cluster.KIND, "name": cluster.metadata.name}
    spec: Body = {"controllerRef": reference, "podGroupTemplates": [{"name": TEMPLATE, **_policy(cluster)}]}
    return owner.child(cluster, WORKLOAD, name=cluster.metadata.name, labels=_labels(cluster), spec=spec)


def pod_group(cluster: RayCluster) -> Body:
    """Build the PodGroup."""
    template = {"workloadName": cluster.metadata.name, "podGroupTemplateName": TEMPLATE}
    spec: Body = {"podGroupTemplateRef": {"workload": template}, **_policy(cluster)}
    return owner.child(cluster, POD_GROUP, name=pod_group_name(cluster), labels=_labels(cluster), spec=spec)


def _labels(cluster: RayCluster) -> dict[str, str]:
    return {labels.CLUSTER: cluster.metadata.name}


def _policy(cluster: RayCluster) -> Body:
    return {"schedulingPolicy": {"gang": {"minCount": _members(cluster)}}}


def _members(cluster: RayCluster) -> int:
    return counters.desired(cluster) + 1


def _workload(observed: Observed) -> Submission | None:
    """Replace a Workload that does not fit; None when it does, or is not there."""
    cluster, have = observed.cluster, observed.found.get(WORKLOAD)
    if have is None:
        return None
    if problem := _in_the_way(cluster, WORKLOAD, have):
        return problem
    templates = pod_json.bodies(pod_json.body(have, "spec"), "podGroupTemplates")
    if [(each.get("name"), _count(each)) for each in templates] == [(TEMPLATE, _members(cluster))]:
        return None
    dependent = observed.found.get(POD_GROUP)
    if dependent is not None and owner.controls(cluster, dependent):
        what = f"PodGroup {_place(dependent)} before replacing stale Workload"
        return _delete(POD_GROUP, dependent, waits_for=f"deleted {what}, will retry after deletion completes")
    waits_for = f"deleted stale Workload {_place(have)}, will retry after deletion completes"
    return _delete(WORKLOAD, have, waits_for=waits_for)


def _pod_group(observed: Observed) -> Submission | None:
    """Replace a PodGroup that does not fit; None when it does, or is not there."""
    cluster, have = observed.cluster, observed.found.get(POD_GROUP)
    if have is None:
        return None
    if problem := _in_the_way(cluster, POD_GROUP, have):
        return problem
    if _count(pod_json.body(have, "spec")) == _members(cluster):
        return None
    waits_for = f"deleted stale PodGroup {_place(have)}, will retry after deletion completes"
    return _delete(POD_GROUP, have, waits_for=waits_for)


def _missing(observed: Observed) -> Submission:
    """Make what is absent."""
    cluster = observed.cluster
    absent = {child.resource for child in observed.absent}
    made: list[Action] = []
    for resource, body in ((WORKLOAD, workload(cluster)), (POD_GROUP, pod_group(cluster))):
        if resource in absent:
            where = f"{cluster.metadata.namespace}/{body['metadata']['name']}"
            report = events.pod_group_failed(f"failed to create {resource.kind} {where}")
            made.append(Create(resource=resource, body=body, events=report, if_exists=IfExists.NEED_OWN))
    return Submission(actions=tuple(made))


def _clean_up(observed: Observed) -> Submission:
    """Delete our PodGroup, then our Workload; those of other owners stay."""
    for resource in (POD_GROUP, WORKLOAD):
        have = observed.found.get(resource)
        if have is not None and owner.controls(observed.cluster, have):
            return _delete(resource, have, waits_for=f"waiting for {resource.kind} {_place(have)} to finish deleting")
    return NOTHING


def _in_the_way(cluster: RayCluster, resource: Resource, have: Body) -> Submission | None:
    what = f"{resource.kind} {_place(have)}"
    if not owner.controls(cluster, have):
        remedy = "rename it or use a different RayCluster name to avoid the collision"
        return Submission(waits_for=f"{what} already exists and is not owned by this RayCluster; {remedy}")
    if "deletionTimestamp" not in have["metadata"]:
        return None
    return _delete(resource, have, waits_for=f"{what} is being deleted, will retry")


def _delete(resource: Resource, have: Body, *, waits_for: str) -> Submission:
    """Delete an object, its protection first; for one that is being deleted, only wait."""
    meta = have["metadata"]
    left = [each for each in pod_json.strings(meta, "finalizers") if each != PROTECTION]
    is_held = left != pod_json.strings(meta, "finalizers")
    if "deletionTimestamp" in meta and not is_held:
        return Submission(waits_for=waits_for)
    released = {**have, "metadata": {**meta, "finalizers": left}} if is_held else None
    action = Delete(resource=resource, name=meta["name"], uid=meta["uid"], released=released)
    return Submission(actions=(action,), waits_for=waits_for)


def _count(holder: Body) -> object:
    return pod_json.body(pod_json.body(holder, "schedulingPolicy"), "gang").get("minCount")


def _place(have: Body) -> str:
    return f"{have['metadata']['namespace']}/{have['metadata']['name']}"
