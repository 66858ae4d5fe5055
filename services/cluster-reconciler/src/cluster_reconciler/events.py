"""The texts of all Events about children and pods (spec raycluster §8, §9, §15)."""

from datetime import timedelta

from cluster_reconciler.reasons import EventReason, ReplicaFailure
from common import labels
from common.api.core import Pod
from common.api.event import Event, normal, warning
from common.api.ray_cluster import RayCluster
from common.runtime.actions import ActionEvents


def invalid(cluster: RayCluster, what: str, problem: str, reason: EventReason) -> Event:
    """Return the event of a part of the RayCluster that breaks a rule."""
    note = f"The RayCluster {what} is invalid {_where(cluster)}: {problem}"
    return warning(reason, "Validate", note)


def invalid_status(cluster: RayCluster, problem: str) -> Event:
    """Return the event of a status that contradicts itself."""
    note = f"The RayCluster status is invalid {_where(cluster)}, {problem}"
    return warning(EventReason.INVALID_STATUS, "Validate", note)


def spec_warning(cluster: RayCluster, problem: str) -> Event:
    """Return the event of a spec that is allowed but unwise."""
    note = f"RayCluster spec warning {_where(cluster)}: {problem}"
    return warning(EventReason.INVALID_SPEC, "Validate", note)


def unsupported(cluster: RayCluster, problem: str) -> Event:
    """Return the event of a spec with a feature that is not supported."""
    note = f"The RayCluster {_where(cluster)} asks for what is not supported: {problem}"
    return warning(EventReason.UNSUPPORTED, "Validate", note)


def limit_exceeded(cluster: RayCluster, problem: str) -> Event:
    """Report that the cluster is larger than the operator's limits."""
    note = f"No pod of RayCluster {_where(cluster)} is created or deleted: {problem}"
    return warning(EventReason.LIMIT_EXCEEDED, "Validate", note)


def graceful_drain_unavailable(cluster: RayCluster, problem: str) -> Event:
    """Return the event of a cluster that deletes pods without closing their old connections."""
    note = f"The RayCluster {_where(cluster)} cannot drain gracefully: {problem}"
    return warning(EventReason.GRACEFUL_DRAIN_UNAVAILABLE, "Validate", note)


def drain_module_failed(cluster: RayCluster) -> ActionEvents:
    """Return the events of the ConfigMap that pods mount for a graceful drain."""
    return ActionEvents(failure=graceful_drain_unavailable(cluster, "its ConfigMap cannot be created, "))


def drain_module_of_another(cluster: RayCluster, name: str) -> Event:
    """Return the event of another owner's ConfigMap with the name that pods would mount."""
    problem = (
        f"ConfigMap {cluster.metadata.namespace}/{name} already exists and is not owned by this RayCluster; "
        f"rename it, or set {labels.GRACEFUL_DRAIN} to false"
    )
    return graceful_drain_unavailable(cluster, problem)


def foreign_role(cluster: RayCluster, name: str) -> Event:
    """Report a Role of the name that a RoleBinding would refer to, which the cluster does not own."""
    note = (
        f"Role {cluster.metadata.namespace}/{name} exists and is not owned by RayCluster {_where(cluster)}; "
        "a RoleBinding would grant its rules to the head pod: delete or rename the Role, or rename the RayCluster"
    )
    return warning(EventReason.FAILED_TO_CREATE_ROLE, "Create", note)


def service_account_missing(cluster: RayCluster, name: str) -> Event:
    """Return the event of a ServiceAccount in the spec that does not exist."""
    note = (
        f"Failed to reconcile RayCluster {_where(cluster)}. If users specify ServiceAccountName for the head Pod, they "
        f"need to create a ServiceAccount themselves. However, ServiceAccount {name} is not found. Please create one. "
        "See the PR description of https://github.com/ray-project/kuberay/pull/1128 for more details."
    )
    return warning(EventReason.SERVICE_ACCOUNT_NOT_FOUND, "Validate", note)


def created_child(cluster: RayCluster, what: str, name: str, reasons: tuple[EventReason, EventReason]) -> ActionEvents:
    """Return the events of a new Service, ServiceAccount, Role, RoleBinding or Ingress."""
    place = f"{cluster.metadata.namespace}/{name}"
    return ActionEvents(
        success=normal(reasons[0], "Create", f"Created {what} {place}"),
        failure=_creation_failed(reasons[1], f"Failed creating {what} {place}"),
    )


def updated_ingress(cluster: RayCluster, name: str) -> ActionEvents:
    """Return the events of an Ingress that is updated to the RayCluster."""
    place = f"{cluster.metadata.namespace}/{name}"
    done, failed = f"Updated ingress {place}", f"Failed updating ingress {place}, "
    return ActionEvents(
        success=normal(EventReason.UPDATED_INGRESS, "Update", done),
        failure=warning(EventReason.FAILED_TO_UPDATE_INGRESS, "Update", failed),
    )


def foreign_ingress(cluster: RayCluster, name: str) -> Event:
    """Return the event of another owner's Ingress with the name."""
    note = f"Ingress {cluster.metadata.namespace}/{name} already exists and is not owned by this RayCluster; not modifying it"
    return warning(EventReason.FAILED_TO_CREATE_INGRESS, "Create", note)


def network_policy(cluster: RayCluster, name: str, verb: str) -> ActionEvents:
    """Return the events of a NetworkPolicy; `verb` is Create, Update or Delete."""
    text = f"NetworkPolicy {cluster.metadata.namespace}/{name}"
    return ActionEvents(
        success=normal(EventReason(f"{verb}dNetworkPolicy"), verb, f"{verb}d {text}"),
        failure=warning(EventReason(f"FailedTo{verb}NetworkPolicy"), verb, f"Failed to {verb.lower()} {text}: "),
    )


def foreign_network_policy(cluster: RayCluster, name: str) -> Event:
    """Return the event of another owner's NetworkPolicy with the name."""
    note = (
        f"NetworkPolicy {cluster.metadata.namespace}/{name} already exists and is not owned by this RayCluster, network isolation "
        "will not be applied. Rename the existing NetworkPolicy or use a different RayCluster name to avoid the collision"
    )
    return warning(EventReason.NETWORK_POLICY_NAME_COLLISION, "Validate", note)


def pvc_differs(cluster: RayCluster, name: str, drift: str) -> Event:
    """Return the event of a volume claim that cannot follow the spec."""
    note = (
        f"GCS storage PVC {cluster.metadata.namespace}/{name} already exists and cannot be reconfigured in place "
        f"({drift}); delete the PVC to recreate it with the new settings"
    )
    return warning(EventReason.FAILED_TO_CREATE_PVC, "Update", note)


def pvc_of_another(cluster: RayCluster, name: str, owner: str) -> Event:
    """Return the event of a volume claim that another object controls."""
    note = (
        f"GCS storage PVC {cluster.metadata.namespace}/{name} is controlled by {owner}; "
        "delete the PVC, or name another in gcsFaultToleranceOptions.storage.claimName"
    )
    return warning(EventReason.FAILED_TO_CREATE_PVC, "Update", note)


def pod_group_failed(note: str) -> ActionEvents:
    """Return the events of a gang that cannot be created for the batch scheduler."""
    return ActionEvents(failure=_creation_failed(EventReason.FAILED_TO_CREATE_POD_GROUP, note))


def created_pvc(cluster: RayCluster, name: str) -> ActionEvents:
    """Return the events of the volume of the embedded GCS store."""
    place = f"{cluster.metadata.namespace}/{name}"
    return ActionEvents(
        success=normal(EventReason.CREATED_PVC, "Create", f"Created GCS storage PVC {place}"),
        failure=_creation_failed(EventReason.FAILED_TO_CREATE_PVC, f"Failed to create GCS storage PVC {place}"),
    )


def no_serve_port(problem: str) -> Event:
    """Return the event of a missing Serve port: there is no Service for Ray Serve, and no pods."""
    return warning(EventReason.FAILED_TO_CREATE_SERVICE, "Create", problem)


def pvc_missing(cluster: RayCluster, claim: str) -> Event:
    """Return the event of a user's volume claim that does not exist."""
    note = (
        f'GcsFaultToleranceOptions.Storage.ClaimName "{claim}" not found in namespace {cluster.metadata.namespace}; '
        "the head Pod will not start until it exists"
    )
    return warning(EventReason.FAILED_TO_CREATE_PVC, "Validate", note)


def created_cleanup_job(cluster: RayCluster, name: str) -> ActionEvents:
    """Return the events of the Job that empties Redis."""
    place = f"{cluster.metadata.namespace}/{name}"
    return ActionEvents(
        success=normal(EventReason.CREATED_CLEANUP_JOB, "Create", f"Created Redis cleanup Job {place}"),
        failure=_creation_failed(
            EventReason.FAILED_TO_CREATE_CLEANUP_JOB, f"Failed to create Redis cleanup Job {place}"
        ),
    )


def force_deleted(cluster: RayCluster, waited: timedelta) -> ActionEvents:
    """Return the events of a cluster that is deleted although Redis may not be empty."""
    namespace = cluster.metadata.annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE, "")
    note = (
        f"Force-removed GCS FT finalizer after {_go_duration(waited)} due to Redis cleanup timeout; "
        f'Redis storage namespace "{namespace}" may need manual cleanup'
    )
    return ActionEvents(success=warning(EventReason.FORCE_DELETED, "Cleanup", note))


def created_head(cluster: RayCluster, name: str) -> ActionEvents:
    """Return the events of a new head pod; one that is not made has no name in KubeRay's text."""
    namespace = cluster.metadata.namespace
    return ActionEvents(
        success=normal(EventReason.CREATED_HEAD_POD, "Create", f"Created head Pod {namespace}/{name}"),
        failure=_creation_failed(EventReason.FAILED_TO_CREATE_HEAD_POD, f"Failed to create head Pod {namespace}/"),
        condition_reason=ReplicaFailure.CREATE_HEAD_POD,
    )


def created_worker(cluster: RayCluster, name: str) -> ActionEvents:
    """Return the events of a new worker pod."""
    failed = f"Failed to create worker Pod for the cluster {_where(cluster)}"
    return ActionEvents(
        success=normal(
            EventReason.CREATED_WORKER_POD, "Create", f"Created worker Pod {cluster.metadata.namespace}/{name}"
        ),
        failure=_creation_failed(EventReason.FAILED_TO_CREATE_WORKER_POD, failed),
        condition_reason=ReplicaFailure.CREATE_WORKER_POD,
    )


def deleted_head(pod: Pod, state: str) -> ActionEvents:
    """Return the events of the deletion of a head pod that cannot recover."""
    what = f"head Pod {_place(pod)}; {state}"
    return ActionEvents(
        success=normal(EventReason.DELETED_HEAD_POD, "Delete", f"Deleted {what}"),
        failure=_deletion_failed(EventReason.FAILED_TO_DELETE_HEAD_POD, f"Failed deleting {what}"),
        condition_reason=ReplicaFailure.DELETE_HEAD_POD,
    )


def deleted_worker(pod: Pod, *, what: str = "Pod", more: str = "", failed_more: str = "") -> ActionEvents:
    """Return the events of the deletion of a worker pod; `more` and `failed_more` give the reason."""
    return ActionEvents(
        success=normal(EventReason.DELETED_WORKER_POD, "Delete", f"Deleted {what} {_place(pod)}{more}"),
        failure=_deletion_failed(
            EventReason.FAILED_TO_DELETE_WORKER_POD, f"Failed deleting {what} {_place(pod)}{failed_more}"
        ),
        condition_reason=ReplicaFailure.DELETE_WORKER_POD,
    )


def deleted_group(cluster: RayCluster, group: str) -> ActionEvents:
    """Return the events of the deletion of all pods of a suspended group."""
    done = f"Deleted all pods for suspended worker group {group} in RayCluster {_where(cluster)}"
    failed = f"Failed deleting worker Pods for suspended group {group} in RayCluster {_where(cluster)}"
    return ActionEvents(
        success=normal(EventReason.DELETED_WORKER_POD, "Delete", done),
        failure=_deletion_failed(EventReason.FAILED_TO_DELETE_WORKER_PODS, failed),
        condition_reason=ReplicaFailure.DELETE_WORKER_POD,
    )


def suspended(cluster: RayCluster) -> ActionEvents:
    """Return the events of the deletion of all pods of a suspended cluster."""
    return _deleted_all(cluster, "Pods", "suspension")


def recreated(cluster: RayCluster) -> ActionEvents:
    """Return the events of the deletion of all pods after a change of the spec."""
    return _deleted_all(cluster, "all Pods", "spec change with Recreate upgradeStrategy")


def _deleted_all(cluster: RayCluster, what: str, why: str) -> ActionEvents:
    return ActionEvents(
        success=normal(
            EventReason.DELETED_PODS, "Delete", f"Deleted {what} for RayCluster {_where(cluster)} due to {why}"
        ),
        failure=_deletion_failed(
            EventReason.FAILED_TO_DELETE_PODS, f"Failed deleting Pods due to {why} for RayCluster {_where(cluster)}"
        ),
        condition_reason=ReplicaFailure.DELETE_ALL_PODS,
    )


def _go_duration(span: timedelta) -> str:
    """Write a span as Go does: `5m0.5s`."""
    minutes, seconds = divmod(span.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{head}{seconds:g}s"


def _where(cluster: RayCluster) -> str:
    return f"{cluster.metadata.namespace}/{cluster.metadata.name}"


def _place(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _creation_failed(reason: EventReason, note: str) -> Event:
    return warning(reason, "Create", f"{note}, ")


def _deletion_failed(reason: EventReason, note: str) -> Event:
    return warning(reason, "Delete", f"{note}, ")
