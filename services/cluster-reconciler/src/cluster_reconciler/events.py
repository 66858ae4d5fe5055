"""The texts of all Events about children and pods (spec raycluster §8, §9, §15).

A note is the text of an Event. In it, `{cluster}` and `{child}` stand for `<namespace>/<name>`. The
note about a failed write is followed by the text of the error.
"""

from typing import Final, Literal

import msgspec

from cluster_reconciler.reasons import ReplicaFailure
from cluster_reconciler.resources.ingress import ROUTE
from common.api.ray_cluster import RayCluster
from common.kube import resources as kinds
from common.kube.resources import POD_DISRUPTION_BUDGET as BUDGET
from common.runtime.actions import ActionEvents, EventTemplate, KubeEvent


class EventSpec(msgspec.Struct, frozen=True):
    """Template for an Event that reports something other than a write, such as an invalid spec."""

    reason: str
    note: str
    action: str = "Validate"
    type: Literal["Normal", "Warning"] = "Warning"

    def about(self, cluster: RayCluster, child: str = "", **more: str) -> KubeEvent:
        """Return the Event about a cluster and a child; `more` are other values for its text."""
        note = self.note.format(**_format_values(cluster, child), **more)
        return KubeEvent(type=self.type, reason=self.reason, action=self.action, note=note)

    def failing(self, cluster: RayCluster, child: str = "", **more: str) -> ActionEvents:
        """Return the Event for an action that fails; the text of the error follows the note."""
        return ActionEvents(failure=self.about(cluster, child, **more))


class ClusterEventTemplate(EventTemplate, frozen=True):
    """Template for the Events about a write, with the reason of condition ReplicaFailure."""

    end: str = ", "
    condition_reason: str = ""

    def about(self, cluster: RayCluster, child: str = "", **more: str) -> ActionEvents:
        """Return the Events about a write of `child`; `more` are other values for their texts."""
        events = self.format(**_format_values(cluster, child), **more)
        return msgspec.structs.replace(events, condition_reason=self.condition_reason)


def _format_values(cluster: RayCluster, child: str) -> dict[str, str]:
    namespace = cluster.metadata.namespace
    return {
        "namespace": namespace,
        "cluster": f"{namespace}/{cluster.metadata.name}",
        "child": f"{namespace}/{child}",
    }


_INVALID: Final = "The RayCluster {what} is invalid {cluster}: {problem}"
INVALID_METADATA: Final = EventSpec("InvalidRayClusterMetadata", _INVALID)
INVALID_SPEC: Final = EventSpec("InvalidRayClusterSpec", _INVALID)
INVALID_STATUS: Final = EventSpec(
    "InvalidRayClusterStatus", "The RayCluster status is invalid {cluster}, {problem}"
)
SPEC_WARNING: Final = EventSpec(
    "InvalidRayClusterSpec", "RayCluster spec warning {cluster}: {problem}"
)
LIMIT_EXCEEDED: Final = EventSpec(
    "LimitExceeded", "No pod of RayCluster {cluster} is created or deleted: {problem}"
)
SERVICE_ACCOUNT_MISSING: Final = EventSpec(
    "AutoscalerServiceAccountNotFound",
    "Failed to reconcile RayCluster {cluster}. If users specify ServiceAccountName for the head "
    "Pod, they "
    "need to create a ServiceAccount themselves. However, ServiceAccount {account} is not found. "
    "Please create one. "
    "See the PR description of https://github.com/ray-project/kuberay/pull/1128 for more details.",
)
NO_DRAIN: Final = EventSpec(
    "GracefulDrainUnavailable", "The RayCluster {cluster} cannot drain gracefully: {problem}"
)
TAKEN: Final = {
    kinds.NETWORK_POLICY: EventSpec(
        "NetworkPolicyNameCollision",
        "NetworkPolicy {child} already exists and is not owned by this RayCluster, network "
        "isolation "
        "will not be applied. Rename the existing NetworkPolicy or use a different RayCluster "
        "name to avoid the collision",
    ),
    BUDGET: EventSpec(
        "PodDisruptionBudgetNameCollision",
        "PodDisruptionBudget {child} already exists and is not owned by RayCluster {cluster}, so "
        "evictions of its pods are not limited; "
        "rename it, or set the annotation raybus.io/disruption-budget to false",
    ),
}
MTLS_FAILED: Final = EventSpec(
    "MTLSFailedToReconcile", "Failed to reconcile mTLS {step}: {problem}", "Reconcile"
)
CERTIFICATES_AWAITED: Final = EventSpec(
    "MTLSCertsNotReady",
    "Waiting for cert-manager to issue mTLS certificates",
    "Reconcile",
    "Normal",
)
PKI_READY: Final = EventSpec(
    "MTLSPKIReady",
    "mTLS PKI is ready: CA, head, and worker certificates issued",
    "Reconcile",
    "Normal",
)
UPDATED_CERTIFICATE: Final = EventSpec(
    "MTLSCertificatesUpdated", "Updated {step} SANs (IPs: [{addresses}])", "Update", "Normal"
)
EXPIRES_SOON: Final = EventSpec(
    "MTLSCertificateExpiringSoon",
    "TLS certificate {name} expires in {hours} hours; "
    "Ray does not hot-reload certs so a pod restart will be needed after renewal",
    "Reconcile",
)
CLAIM_MISSING: Final = EventSpec(
    "FailedToCreatePVC",
    'GcsFaultToleranceOptions.Storage.ClaimName "{claim}" not found in namespace {namespace}; '
    "the head Pod will not start until it exists",
)
CLAIM_DIFFERS: Final = EventSpec(
    "FailedToCreatePVC",
    "GCS storage PVC {child} already exists and cannot be reconfigured in place "
    "({drift}); delete the PVC to recreate it with the new settings",
    "Update",
)
CLAIM_TAKEN: Final = EventSpec(
    "FailedToCreatePVC",
    "GCS storage PVC {child} is controlled by {owner}; "
    "delete the PVC, or name another in gcsFaultToleranceOptions.storage.claimName",
    "Update",
)
ROLE_TAKEN: Final = EventSpec(
    "FailedToCreateRole",
    "Role {child} exists and is not owned by RayCluster {cluster}; "
    "a RoleBinding would grant its rules to the head pod: delete or rename the Role, or rename "
    "the RayCluster",
    "Create",
)
INGRESS_TAKEN: Final = EventSpec(
    "FailedToCreateIngress",
    "Ingress {child} already exists and is not owned by this RayCluster; not modifying it",
    "Create",
)
NO_SERVE_PORT: Final = EventSpec("FailedToCreateService", "{problem}", "Create")
POD_GROUP_FAILED: Final = EventSpec("FailedToCreatePodGroup", "{problem}, ", "Create")
FORCE_DELETED: Final = EventSpec(
    "ForceDeletedStuckCluster",
    "Force-removed GCS FT finalizer after {waited} due to {problem}; "
    "{left} may need manual cleanup: delete these keys",
    "Cleanup",
)
NOT_ENDING: Final = EventSpec(
    "PodsNotEnding",
    "Pods of RayCluster {cluster} are still there after their grace period: {pods}. Workers are "
    "replaced; a head is not, for it may still run. Where the node is gone, delete the Node, or "
    "the pod by kubectl delete pod --force --grace-period=0",
    "Reconcile",
)
CLEANUP_FAILED: Final = EventSpec(
    "RedisCleanupFailed",
    "Redis cleanup Job {child} failed and RayCluster {cluster} is deleted all the same; "
    "{left} needs manual cleanup: delete these keys",
    "Cleanup",
)
CLEANUP_BLOCKED: Final = EventSpec(
    "RedisCleanupBlocked",
    "Redis cannot be cleaned for the deleted RayCluster {cluster}: {problem}; correct it within "
    "{limit} of the deletion, or delete by hand {left}",
    "Cleanup",
)

CREATED: Final = {
    resource: ClusterEventTemplate(
        "Create",
        resource.kind,
        f"{object_text} {{child}}",
        failed=f"Failed creating {object_text} {{child}}, ",
    )
    for resource, object_text in (
        (kinds.SERVICE, "service"),
        (kinds.SERVICE_ACCOUNT, "service account"),
        (kinds.ROLE, "role"),
        (kinds.ROLE_BINDING, "role binding"),
        (kinds.INGRESS, "ingress"),
        (ROUTE, "route"),
    )
} | {
    kinds.NETWORK_POLICY: ClusterEventTemplate(
        "Create", "NetworkPolicy", "NetworkPolicy {child}", end=": "
    ),
    BUDGET: ClusterEventTemplate("Create", BUDGET.kind, "PodDisruptionBudget {child}", end=": "),
    kinds.PERSISTENT_VOLUME_CLAIM: ClusterEventTemplate("Create", "PVC", "GCS storage PVC {child}"),
}
CREATED_CLEANUP_JOB: Final = ClusterEventTemplate(
    "Create", "RedisCleanupJob", "Redis cleanup Job {child}"
)
UPDATED_INGRESS: Final = ClusterEventTemplate(
    "Update", "Ingress", "ingress {child}", failed="Failed updating ingress {child}, "
)
CORRECTED_SELECTOR: Final = ClusterEventTemplate(
    "Update", "Service", "selector of head service {child}"
)
UPDATED: Final = {
    kind: ClusterEventTemplate("Update", kind.kind, f"{kind.kind} {{child}}", end=": ")
    for kind in (kinds.NETWORK_POLICY, BUDGET)
}
DELETED: Final = {
    kind: ClusterEventTemplate("Delete", kind.kind, f"{kind.kind} {{child}}", end=": ")
    for kind in UPDATED
}
CREATED_HEAD: Final = ClusterEventTemplate(
    "Create",
    "HeadPod",
    "head Pod {child}",
    failed="Failed to create head Pod {namespace}/, ",
    condition_reason=ReplicaFailure.CREATE_HEAD_POD,
)
"""Event template for a created head pod.

As in KubeRay, the text about a failure names no pod, because a pod that is not created has no name.
"""
CREATED_WORKER: Final = ClusterEventTemplate(
    "Create",
    "WorkerPod",
    "worker Pod {child}",
    failed="Failed to create worker Pod for the cluster {cluster}, ",
    condition_reason=ReplicaFailure.CREATE_WORKER_POD,
)
DELETED_HEAD: Final = ClusterEventTemplate(
    "Delete",
    "HeadPod",
    "head Pod {child}; {state}",
    failed="Failed deleting head Pod {child}; {state}, ",
    condition_reason=ReplicaFailure.DELETE_HEAD_POD,
)
DELETED_WORKER: Final = ClusterEventTemplate(
    "Delete",
    "WorkerPod",
    "{what} {child}{more}",
    failed="Failed deleting {what} {child}{failed_more}, ",
    condition_reason=ReplicaFailure.DELETE_WORKER_POD,
)
DELETED_GROUP: Final = ClusterEventTemplate(
    "Delete",
    "WorkerPod",
    "all pods for suspended worker group {group} in RayCluster {cluster}",
    failed="Failed deleting worker Pods for suspended group {group} in RayCluster {cluster}, ",
    failed_kind="WorkerPodCollection",
    condition_reason=ReplicaFailure.DELETE_WORKER_POD,
)
DELETED_ALL: Final = ClusterEventTemplate(
    "Delete",
    "Pod",
    "{what} for RayCluster {cluster} due to {why}",
    failed="Failed deleting Pods due to {why} for RayCluster {cluster}, ",
    failed_kind="PodCollection",
    condition_reason=ReplicaFailure.DELETE_ALL_PODS,
)
