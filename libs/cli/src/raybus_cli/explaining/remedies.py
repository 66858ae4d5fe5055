"""What to do about each kind of trouble; one line each."""

from typing import Final

from raybus_cli.show.phase import Phase
from service_reconciler.reasons import EventReason, Reason
from service_reconciler.serve.problems import Problem

SPEC: Final = "mend the named field and apply again; 'raybus lint -f FILE' checks before you apply"
MANAGED_BY: Final = "leave it to that controller, or make it anew without spec.managedBy (the field cannot be changed)"
NOBODY: Final = "see 'raybus doctor'; does raybus watch this namespace, and is it up?"
MEMORY: Final = "the container used more than its memory limit: raise resources.limits.memory, or load less per replica"
LOGS: Final = "see 'kubectl logs {pod} -c {container} --previous'"
APPLICATION: Final = (
    "see the application's log in the Ray dashboard, or 'kubectl logs' of the head of RayCluster {cluster}"
)
STALL: Final = "mend the cause, or 'raybus abort {name}'; 'raybus promote {name}' skips the steps"
LOOK: Final = "see 'kubectl describe' of that object"

BY_PHASE: Final = {
    Phase.DELETING: "wait; what holds it up is in metadata.finalizers of the RayService and its RayClusters",
    Phase.SUSPENDED: "set spec.suspend to false to start it again",
    Phase.SUSPENDING: "wait until everything is deleted; then set spec.suspend to false to start it again",
    Phase.TIMED_OUT: "mend the cause, then set spec.suspend to true, and to false again when RayService {name} is suspended",
}
_CONTROLS: Final = {
    "UpgradePaused": "'raybus resume {name}' lets it go on",
    "UpgradeAborted": "'raybus retry {name}' tries the same spec again; any other spec is an upgrade like any other",
    "InvalidAnnotations": "mend the named annotation: 'kubectl annotate rayservice {name} …'",
}
_AT_DEADLINE: Final = {
    "UpgradePaused": "mend the cause, then 'raybus promote {name}', or set raybus.io/on-deadline to Wait",
    "UpgradeAborted": "mend the cause and edit the spec, or 'raybus promote {name}' to try the same one again",
}
_BY_CAUSE: Final = {
    Reason.QUOTA_EXCEEDED: "raise the ResourceQuota of the namespace, or ask for less: 'raybus plan -f FILE' shows the peak",
    Reason.IMAGE_PULL_FAILED: "check the image's name and tag, imagePullSecrets, and that the nodes reach the registry",
    Reason.INSUFFICIENT_CAPACITY: "add nodes, or ask for less: a smaller maxSurgePercent, smaller pods, other selectors",
    Reason.INSUFFICIENT_REPLICAS: "raise min_replicas in spec.serveConfigV2, or set raybus.io/capacity-parity to false",
    Reason.GATEWAY_NOT_READY: "is the Gateway API installed, and does a controller serve that gatewayClassName? 'raybus doctor'",
    Reason.APPLICATION_NOT_READY: "check spec.serveConfigV2 and the application's log in the Ray dashboard",
}
_SURE: Final = {Reason.QUOTA_EXCEEDED, Reason.IMAGE_PULL_FAILED, Reason.INSUFFICIENT_CAPACITY}
_BY_REASON: Final = {
    EventReason.EMPTY_SERVE_CONFIG: "put applications into spec.serveConfigV2",
    EventReason.NO_SERVE_PORT: "add a port named serve (8000) to the head's first container",
    EventReason.DASHBOARD_UNREACHABLE: "is the head up, and does a NetworkPolicy let raybus reach port 8265 of its Service?",
    EventReason.CLUSTER_NOT_RUNNING: "see 'kubectl describe raycluster' of that cluster",
    EventReason.PODS_NOT_STARTING: "see 'kubectl describe pod' of that pod, and its logs",
    EventReason.SERVE_CONFIG_UNKNOWN: "ask for the spec of the pending cluster again, to go forward",
}
_BY_EVENT: Final = {
    "FailedScheduling": _BY_CAUSE[Reason.INSUFFICIENT_CAPACITY],
    "FailedMount": "does the named volume, Secret or ConfigMap exist in this namespace?",
    "FailedAttachVolume": "is the volume attached to another node still?",
    "Unhealthy": "the pod's probe fails: see its log, and whether it has CPU enough to answer in time",
    "BackOff": "the container ends again and again, or its image cannot be pulled: see its log",
    "Failed": LOOK,
    "Evicted": "the node ran out of memory or disk: raise the pod's requests",
}


def control(kind: str, reason: str) -> str:
    """Return what to do about a condition that somebody's order made."""
    is_deadline = reason == Reason.PROGRESS_DEADLINE_EXCEEDED
    return _AT_DEADLINE.get(kind, _CONTROLS[kind]) if is_deadline else _CONTROLS[kind]


def problem(found: Problem) -> str:
    """Return what to do about what keeps a cluster from serving; a cause that is sure says more than the Event's reason."""
    if found.cause in _SURE:
        return _BY_CAUSE[found.cause]
    return _BY_REASON.get(found.reason) or _BY_CAUSE.get(found.cause, LOOK)


def event(reason: str) -> str:
    """Return what to do about a Warning."""
    return _BY_EVENT.get(reason, LOOK)
