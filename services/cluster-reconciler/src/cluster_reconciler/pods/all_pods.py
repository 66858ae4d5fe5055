"""Delete all pods at once: for a suspension, or for a changed spec with strategy Recreate.

A suspension is atomic: first the condition is written, then all pods are deleted, then the cluster
counts as suspended (spec raycluster §9.2; acceptance cases 73-79). Pods that appear later, because
a replica created them before it handed the cluster over, are deleted too.

For Recreate, the head pod is annotated with the hash of the spec and the version of the operator. A
hash from another version is refreshed and never causes a deletion (spec raycluster §9.3; acceptance
cases 80-84). Workers have both annotations too, for a cluster that has lost its head, and keep them
unchanged. Pods that are being deleted already are not deleted again.
"""

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, make_step
from cluster_reconciler.observed import Observed, find_irrecoverable_reason, is_terminating
from cluster_reconciler.reasons import ConditionType
from common import labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.feature_gates import FeatureGate
from common.kube.resources import POD
from common.ray import spec_hash
from common.runtime.actions import DeleteCollection, Patch


def suspend(observed: Observed) -> Continue | ClusterPlan:
    """Delete all pods of a cluster that is to be suspended, even if its spec is invalid."""
    if not observed.is_to_be_suspended:
        return Continue()
    has_conditions = FeatureGate.STATUS_CONDITIONS in observed.config.gates
    is_suspending = has_conditions and observed.holds(ConditionType.SUSPENDING)
    is_suspended = has_conditions and observed.holds(ConditionType.SUSPENDED)
    owners = (
        reference
        for pod in observed.pods
        for reference in pod.metadata.owner_references
        if reference.controller
    )
    is_late = is_suspended and any(
        reference.uid == observed.cluster.metadata.uid for reference in owners
    )
    may_delete = is_suspending or not has_conditions or is_late
    if may_delete and not all(map(is_terminating, observed.pods)):
        report = events.DELETED_ALL.about(observed.cluster, what="Pods", why="suspension")
        selector = {labels.CLUSTER: observed.cluster.metadata.name}
        delete = DeleteCollection(resource=POD, selector=selector, events=report)
        return ClusterPlan(actions=make_step(delete), note="suspending: all pods go")
    return Continue()


def recreate(observed: Observed) -> Continue | ClusterPlan:
    """Delete all pods if the spec changed and `upgradeStrategy` is Recreate."""
    cluster, version = observed.cluster, observed.config.version
    if not is_recreated(cluster) or not observed.pods:
        return Continue()
    expected = build_marks(cluster, version)
    head = observed.heads[0].metadata if observed.heads else None
    if head and head.annotations.get(labels.KUBERAY_VERSION) not in {None, "", version}:
        # The head is deleted, and its annotations with it.
        if find_irrecoverable_reason(observed.heads[0], cluster):
            return Continue()
        changed = {"resourceVersion": head.resource_version, "annotations": expected}
        return Continue(
            actions=make_step(
                Patch(resource=POD, name=head.name, patch={"metadata": changed}), is_side=True
            )
        )
    current = {None, "", expected[labels.RECREATE_HASH]}
    workers = (pod for pod in observed.present if pod not in observed.heads)
    marked = (
        pod
        for pod in observed.heads[:1] or workers
        if pod.metadata.annotations.get(labels.KUBERAY_VERSION) in {None, "", version}
    )
    if all(pod.metadata.annotations.get(labels.RECREATE_HASH) in current for pod in marked):
        return Continue()
    if all(map(is_terminating, observed.present)):
        return ClusterPlan(note="the spec changed: waiting for the old pods to go")
    reason = "spec change with Recreate upgradeStrategy"
    report = events.DELETED_ALL.about(cluster, what="all Pods", why=reason)
    own = {labels.CLUSTER: cluster.metadata.name}
    # The head goes last: if KubeRay made the workers, only the head has the annotations.
    actions = (
        *make_step(
            DeleteCollection(
                resource=POD,
                selector={**own, labels.NODE_TYPE: labels.WORKER},
                events=msgspec.structs.replace(report, success=None),
            )
        ),
        *make_step(DeleteCollection(resource=POD, selector=own, events=report)),
    )
    return ClusterPlan(actions=actions, note="the spec changed: all pods go")


def is_recreated(cluster: RayCluster) -> bool:
    """Return whether a changed spec deletes all pods of the cluster (strategy Recreate)."""
    strategy = cluster.spec.upgrade_strategy
    return strategy is not None and strategy.type == "Recreate"


def build_marks(cluster: RayCluster, version: str) -> dict[str, str]:
    """Return the annotations with the hash of the spec and the version of the operator."""
    raw = cluster.raw_spec
    spec: Json = {**raw, "headGroupSpec": _fill_params(raw.get("headGroupSpec") or {})}
    if groups := raw.get("workerGroupSpecs"):
        spec["workerGroupSpecs"] = [_fill_params(group) for group in groups]
    return {
        labels.RECREATE_HASH: spec_hash.cluster_spec_hash(spec),
        labels.KUBERAY_VERSION: version,
    }


def _fill_params(group: Json) -> Json:
    """Return a head or worker group as KubeRay hashes it, with `rayStartParams` even if empty."""
    return {**group, "rayStartParams": group.get("rayStartParams") or {}}
