"""The remedies of blocking issues; one line each."""

from typing import Final

from raybus_cli.show.phase import Phase
from service_reconciler.reasons import EventReason, Reason
from service_reconciler.serve.problems import ServiceProblem

SPEC: Final = "correct the named field and apply again; 'raybus lint -f FILE' checks before you apply"
MANAGED_BY: Final = "leave it to that controller, or create it again without spec.managedBy (the field is immutable)"
UNMANAGED: Final = "see 'raybus doctor'; check that raybus runs and watches this namespace"
MEMORY: Final = "the container used more than its memory limit: raise resources.limits.memory, or load less per replica"
LOGS: Final = "see 'kubectl logs {pod} -c {container} --previous'"
APPLICATION: Final = (
    "see the application's log in the Ray dashboard, or 'kubectl logs' of the head of RayCluster {cluster}"
)
STALL: Final = "correct the cause, or 'raybus abort {name}'; 'raybus promote {name}' skips the steps"
DESCRIBE: Final = "see 'kubectl describe' of that object"

BY_PHASE: Final = {
    Phase.DELETING: "wait; metadata.finalizers of the RayService and its RayClusters names what blocks the deletion",
    Phase.SUSPENDED: "set spec.suspend to false to start it again",
    Phase.SUSPENDING: "wait until everything is deleted; then set spec.suspend to false to start it again",
    Phase.TIMED_OUT: "correct the cause, then set spec.suspend to true, and to false again when RayService {name} is suspended",
}
_CONTROLS: Final = {
    "UpgradePaused": "'raybus resume {name}' resumes it",
    "UpgradeAborted": "'raybus retry {name}' retries the same spec; any other spec starts a new upgrade",
    "InvalidAnnotations": "correct the named annotation: 'kubectl annotate rayservice {name} …'",
}
_AT_DEADLINE: Final = {
    "UpgradePaused": "correct the cause, then 'raybus promote {name}', or set raybus.io/on-deadline to Wait",
    "UpgradeAborted": "correct the cause and edit the spec, or 'raybus promote {name}' to retry the same one",
}
_BY_CAUSE: Final = {
    Reason.QUOTA_EXCEEDED: "raise the ResourceQuota of the namespace, or request less: 'raybus plan -f FILE' shows the peak",
    Reason.IMAGE_PULL_FAILED: "check the image's name and tag, imagePullSecrets, and that the nodes reach the registry",
    Reason.INSUFFICIENT_CAPACITY: "add nodes, or request less: a smaller maxSurgePercent, smaller pods, other selectors",
    Reason.INSUFFICIENT_REPLICAS: "raise min_replicas in spec.serveConfigV2, or set raybus.io/capacity-parity to false",
    Reason.GATEWAY_NOT_READY: "check that the Gateway API is installed and a controller serves that gatewayClassName: 'raybus doctor'",
    Reason.APPLICATION_NOT_READY: "check spec.serveConfigV2 and the application's log in the Ray dashboard",
}
_SURE: Final = {Reason.QUOTA_EXCEEDED, Reason.IMAGE_PULL_FAILED, Reason.INSUFFICIENT_CAPACITY}
_BY_REASON: Final = {
    EventReason.EMPTY_SERVE_CONFIG: "put applications into spec.serveConfigV2",
    EventReason.NO_SERVE_PORT: "add a port named serve (8000) to the head's first container",
    EventReason.DASHBOARD_UNREACHABLE: "check that the head runs, and that no NetworkPolicy blocks raybus from port 8265 of its Service",
    EventReason.CLUSTER_NOT_RUNNING: "see 'kubectl describe raycluster' of that cluster",
    EventReason.PODS_NOT_STARTING: "see 'kubectl describe pod' of that pod, and its logs",
    EventReason.SERVE_CONFIG_UNKNOWN: "restore the spec of the pending cluster to continue the upgrade",
}
_BY_EVENT: Final = {
    "FailedScheduling": _BY_CAUSE[Reason.INSUFFICIENT_CAPACITY],
    "FailedMount": "check that the named volume, Secret or ConfigMap exists in this namespace",
    "FailedAttachVolume": "check whether the volume is still attached to another node",
    "Unhealthy": "the pod's probe fails: see its log, and whether its CPU suffices to answer in time",
    "BackOff": "the container exits repeatedly, or its image cannot be pulled: see its log",
    "Failed": DESCRIBE,
    "Evicted": "the node ran out of memory or disk: raise the pod's requests",
}


def control(kind: str, reason: str) -> str:
    """Return the remedy for a condition that a user's request set."""
    is_deadline = reason == Reason.PROGRESS_DEADLINE_EXCEEDED
    return _AT_DEADLINE.get(kind, _CONTROLS[kind]) if is_deadline else _CONTROLS[kind]


def problem(found: ServiceProblem) -> str:
    """Return the remedy for a problem of a cluster; a certain cause is more specific than the Event's reason."""
    if found.code in _SURE:
        return _BY_CAUSE[found.code]
    return _BY_REASON.get(found.event) or _BY_CAUSE.get(found.code, DESCRIBE)


def event(reason: str) -> str:
    """Return the remedy for a Warning."""
    return _BY_EVENT.get(reason, DESCRIBE)
