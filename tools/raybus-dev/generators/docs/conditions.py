"""The page docs/reference/conditions.md: conditions with their reasons, and Kubernetes Events.

The reasons come from enums and tables of the code, their meanings from this module. The page's test
fails for a reason without a meaning, a meaning without a reason, and an error reason that
docs/troubleshooting.md does not mention.
"""

import re
from collections.abc import Iterable
from types import ModuleType
from typing import Final

import msgspec

from cluster_reconciler import events as cluster_events
from cluster_reconciler import reasons as of_clusters
from cluster_reconciler.events import ClusterEventTemplate, EventSpec
from common.ray.config_writer import NOT_RECORDED
from common.runtime.actions import FINALIZER_NOT_SET, STATUS_NOT_WRITTEN, EventTemplate
from common.upgrade import service_conditions
from generators.docs import markdown
from job_reconciler import events as job_events
from job_reconciler import reasons as of_jobs
from service_reconciler import events as service_events
from service_reconciler import reasons as of_services
from traffic_manager import events as of_traffic


class Meaning(msgspec.Struct, frozen=True):
    """What a condition means while it is True, and its reasons.

    `is_ours` marks conditions that KubeRay does not have.
    """

    text: str
    reasons: tuple[str, ...]
    is_ours: bool = False


_INITIALIZING: Final = ("Initializing", "InitializingTimeout")
_GOING: Final = ("SuspendInProgress", "SuspendComplete")
_STALLS: Final = (
    "InsufficientCapacity",
    "InsufficientReplicas",
    "ImagePullFailed",
    "QuotaExceeded",
    "ApplicationNotReady",
    "DashboardUnauthorized",
    "GatewayNotReady",
    "GateInconclusive",
    "ProgressDeadlineExceeded",
)
SERVICES: Final = {
    "Ready": Meaning(
        "The service can serve requests: it has at least one endpoint.",
        (
            "NonZeroServeEndpoints",
            *_INITIALIZING,
            "ZeroServeEndpoints",
            "ValidationFailed",
            *_GOING,
        ),
    ),
    "UpgradeInProgress": Meaning(
        "A pending cluster becomes ready, or traffic moves. The message names the blocking "
        "reason. Unknown: no cluster is active.",
        (
            "BothActivePendingClustersExist",
            "NoPendingCluster",
            "NoActiveCluster",
            "Initializing",
            *_GOING,
        ),
    ),
    "RollbackInProgress": Meaning(
        "Traffic returns to the active cluster, in steps.", ("DesiredClusterSpecChanged", *_GOING)
    ),
    "Suspending": Meaning(
        "raybus is deleting all objects of the service.", ("SuspendRequested", *_GOING)
    ),
    "Suspended": Meaning(
        "All objects of the service are deleted.", ("SuspendComplete", "RayServiceResumed")
    ),
    "UpgradePaused": Meaning(
        "The upgrade is paused.",
        (
            "PauseRequested",
            "PausedByPolicy",
            "GateFailed",
            "InvalidUpgradePolicy",
            "ProgressDeadlineExceeded",
            "PauseOver",
        ),
        is_ours=True,
    ),
    "UpgradeStalled": Meaning(
        "The upgrade made no progress within its deadline.", _STALLS, is_ours=True
    ),
    "UpgradeAborted": Meaning(
        "The service stays on its active cluster, regardless of the spec.",
        ("AbortRequested", "GateFailed", "EarlierGateFailed", "ProgressDeadlineExceeded"),
        is_ours=True,
    ),
    "UpgradeGatesPassed": Meaning(
        "All gates of the UpgradePolicy passed at the current weight; the message has their "
        "figures. Unknown: some gates have too little data.",
        ("GatesPassed", "GateFailed", "GateInconclusive"),
        is_ours=True,
    ),
    "ClusterSpecIgnored": Meaning(
        "A change of `rayClusterConfig` is not applied, because the upgrade strategy is None; the "
        "message lists the changed fields.",
        ("UpgradeStrategyNone",),
        is_ours=True,
    ),
    "InvalidAnnotations": Meaning(
        "An annotation has an invalid value; the message lists the valid values.",
        ("InvalidValue",),
        is_ours=True,
    ),
}
CLUSTERS: Final = {
    "HeadPodReady": Meaning(
        "The head runs and is ready. Other reasons are the pod's own, such as "
        "`ContainersNotReady`.",
        ("HeadPodRunningAndReady", "HeadPodNotFound", "Unknown"),
    ),
    "RayClusterProvisioned": Meaning(
        "All pods have been ready at the same time. The condition stays True if a pod is lost "
        "later.",
        ("AllPodRunningAndReadyFirstTime", "RayClusterPodsProvisioning"),
    ),
    "RayClusterSuspending": Meaning("raybus is deleting all pods.", ("RayClusterSuspending",)),
    "RayClusterSuspended": Meaning("All pods are deleted.", ("RayClusterSuspended",)),
    "ReplicaFailure": Meaning(
        "The last attempt to create or delete a pod or another child failed; absent after a "
        "success. For other children the reason is "
        "`FailedCreate` and their kind, such as `FailedCreateService`. "
        "`InvalidRayClusterMetadata`: the name is invalid, and no child is created. "
        "`CertManagerNotFound`: `tlsOptions` needs cert-manager, and no child is created.",
        tuple(of_clusters.ReplicaFailure),
    ),
}

NORMAL: Final = {
    "BatchSchedulerCleanedUp": "The PodGroup has the size of what is left of the job.",
    "RayJobRunning": "The cluster is ready, and the job runs or is about to be submitted.",
    "RayJobWaiting": "The cluster is ready; the user submits a job and sets `spec.jobId`.",
    "EntrypointRunsInShell": (
        "The entrypoint is more than one command or has variables. All of it runs in the Ray job, "
        "so Ray's dashboard shows `bash -c`."
    ),
    "RayJobSucceeded": "Ray reports that the job has succeeded.",
    "RayJobStopped": "Ray reports that the job was stopped.",
    "RayJobSuspended": "The job is suspended, and its cluster is deleted.",
    "RayJobResumed": "The job starts again on a new cluster.",
    "SuspendedRayCronJob": "The RayCronJob is suspended and starts no RayJobs.",
    "SuccessfulCreate": "The RayCronJob started a RayJob.",
    "SuccessfulDelete": "A newer run replaced a RayJob.",
    "JobAlreadyActive": "A run waits until an earlier RayJob has ended (`Forbid`).",
    (
        "UpgradePolicyEdited"
    ): "The upgrade now follows the edited UpgradePolicy (`applyEdits: AtOnce`).",
    "UpgradeStarted": "raybus prepares a new cluster; the message contains the cause.",
    "UpgradePromoted": "The new cluster is the active one.",
    "GatePassed": (
        "Gates of the UpgradePolicy passed at the current weight; the message has their figures."
    ),
    "UpgradeCancelled": "raybus deletes the pending cluster, which has had no traffic.",
    "UpgradePaused": "The upgrade is paused.",
    "UpgradeResumed": "The upgrade continues.",
    "UpgradeAborted": "Normal if the user aborts the upgrade; Warning at the deadline.",
    "RollbackStarted": "Traffic returns; the message contains the cause.",
    "RollbackCompleted": "All traffic has returned.",
    "RollbackCancelled": "The rollback ends, and the upgrade continues.",
    "TrafficShifted": "Traffic moved; the message has the weights and the reason.",
    "DrainStarted": (
        "The old cluster drains; the message contains the time limit. A Warning if the timeout is "
        "invalid."
    ),
    "DrainEnded": (
        "raybus deletes the old cluster; the message contains the number of requests in flight. A "
        "Warning if there are any."
    ),
    "MTLSCertsNotReady": (
        "cert-manager has not issued the cluster's certificates yet; new pods wait for them."
    ),
    "MTLSPKIReady": "The certificates are issued.",
    (
        "MTLSCertificatesUpdated"
    ): "The pod names in the certificate of the head or of the workers have changed.",
    "UpgradeReceipt": "The result of the upgrade.",
}
"""The meaning of each Event that reports progress, by its reason."""
WARNINGS: Final = {
    "TrafficNotCarried": (
        "A cluster cannot serve its share of the traffic, and the other cluster cannot or may not "
        "take it over. The message has both causes."
    ),
    "InvalidRayServiceMetadata": "The name or an annotation is invalid.",
    "InvalidRayServiceSpec": "The spec is invalid.",
    ("InvalidRayServiceStatus"): (
        "The status names a RayCluster that the RayService does not own. raybus does not touch "
        "the RayCluster, and corrects the status."
    ),
    "InvalidRayClusterMetadata": "The name is invalid.",
    "InvalidRayClusterSpec": "The spec is invalid, or discouraged.",
    "InvalidRayClusterStatus": "The status contradicts itself.",
    "ClusterSpecIgnored": (
        "A change of `rayClusterConfig` is not applied, because the upgrade strategy is None; the "
        "message lists the changed fields."
    ),
    "InvalidAnnotation": "An annotation has an invalid value.",
    ("MTLSFailedToReconcile"): (
        "An object of the cluster's certificates cannot be created, changed or read, or has "
        "another owner. The message names the step."
    ),
    ("MTLSCertificateExpiringSoon"): (
        "A certificate of the cluster expires within 24 hours; restart the pods after "
        "cert-manager has renewed it."
    ),
    "RayServiceInitializingTimeout": "The service was not ready within its time limit.",
    "UpgradeStalled": "An upgrade made no progress; the message starts with the cause.",
    "UpgradeEventLost": "NATS rejected an upgrade event.",
    "JobEventLost": "NATS rejected an event of the RayJob.",
    "DrainNotTold": (
        "A pod could not be marked as draining. raybus still deletes its cluster in time."
    ),
    "FailedToLabelPod": "A pod could not be labelled for the Serve Service of an upgrade in steps.",
    "OldClusterKept": (
        "A cluster that is neither active nor pending still gets requests after 30 s; the message "
        "names the route or Service."
    ),
    "ReceiptNotWritten": "The API server rejects the receipt of an upgrade; the receipt is lost.",
    "StatusTruncated": (
        "Ray Serve's application messages are too long for the status; raybus shortens them."
    ),
    "FailedToCleanupBatchScheduler": "The PodGroup could not get another size.",
    "FailedToSubmitRayJob": "A submission to Ray's dashboard had no answer (HTTPMode).",
    "RayClusterNotFound": "The cluster that `clusterSelector` names does not exist.",
    "RayJobFailed": "The job has failed for good; the message has the reason.",
    "RayJobRetrying": "An attempt has failed, and another follows; the message has the reason.",
    "RayJobNotStarted": (
        "The pods of the cluster cannot start; the message names the image, quota, webhook or "
        "missing room."
    ),
    "NoDeletionRuleMatched": (
        "The job ended in a way that no rule of `deletionStrategy` matches, so nothing is deleted."
    ),
    "InvalidRayJobMetadata": "The name of the RayJob is invalid.",
    "InvalidRayJobSpec": "The spec is invalid; the message names the field.",
    "InvalidRayJobStatus": "The status contradicts `submissionMode`.",
    "InvalidRayCronJobSpec": "The spec is invalid; the message names the field.",
    "FailedCreate": "The RayJob of a run could not be created.",
    "FailedDelete": "A RayJob that a newer run replaces could not be deleted.",
    "MissSchedule": "Runs were missed or are too late, and are not started.",
    "StatusNotWritten": "The API server rejects the status; dependent actions wait.",
    "FinalizerReleased": (
        "RayClusters of a deleted RayService still exist after 10 min, so raybus removed its "
        "finalizer from the RayService. The message names the RayClusters, or their label if an "
        "object was in quarantine. On a RayJob: an object in "
        "quarantine kept raybus from stopping the Ray job."
    ),
    "FinalizerNotSet": "The API server rejects the finalizer; raybus creates nothing without it.",
    "SpecNotRecorded": (
        "raybus could not record an earlier spec, so `raybus undo` cannot restore that spec."
    ),
    (
        "UpgradeCannotProgress"
    ): "The upgrade cannot progress, because `maxSurgePercent` or `stepSizePercent` is 0.",
    "RollbackImpossible": "The active cluster no longer exists.",
    "GatewayNotReady": "The Gateway is missing, not accepted or not programmed.",
    "HTTPRouteNotReady": "The route is missing or rejected.",
    (
        "HTTPRouteOverwritten"
    ): "Another tool replaced the rules of the route; raybus restored its backends.",
    ("HTTPRouteNotPermitted"): (
        "The owner of the route has not permitted this RayService, or another object owns the "
        "route."
    ),
    "GRPCRouteNotReady": "The gRPC route is rejected.",
    "GatewayAPIMissing": "The API server has no Gateway API.",
    "GateFailed": "A gate of the UpgradePolicy failed; the message has its figures.",
    "MirrorUnsupported": "Requests are not mirrored: the CRD of HTTPRoute is too old, or the "
    "controller of the Gateway does not copy a percentage of the requests.",
    "GRPCRouteUnsupported": "gRPC calls are not routed.",
    (
        "IncrementalUpgradeDisabled"
    ): "The gate of upgrades in steps is off; the upgrade is blue/green.",
    "EmptyServeConfig": "The Serve config contains no application.",
    "PodsNotStarting": "A pod of the cluster does not start.",
    "GateInconclusive": (
        "A step waits until the gates of the UpgradePolicy have observed enough requests."
    ),
    (
        "InsufficientReplicas"
    ): "A step waits until Ray's autoscaler has started more replicas of a deployment.",
    "ServeApplicationNotRunning": "An application failed to deploy, or is unhealthy.",
    "ServeConfigDrifted": (
        "Serve ran a config that differs from the recorded one. raybus sent the recorded config "
        "again; the message names the option."
    ),
    ("ServeConfigNotRecorded"): (
        "Ray accepted a Serve config, but raybus could not complete the ControllerRevision that "
        "records it."
    ),
    "ServeConfigUnknown": "The Serve config of the active cluster is not recorded.",
    "RayDashboardUnreachable": "The head's dashboard does not answer.",
    (
        "RayDashboardUnauthorized"
    ): "The head's dashboard rejects raybus's token, or raybus has no token to send.",
    "RayClusterNotRunning": "The cluster cannot create its pods, or is suspended.",
    "ObjectNotOwned": (
        "An object with the expected name has another owner, so raybus leaves it alone: a Gateway "
        "or route on suspend, or an object that a RayJob needs."
    ),
    "NoServePort": "No pod takes requests at the port where Serve listens.",
    "ServiceNotOwned": "Another owner has the Service with the expected name.",
    ("NetworkPolicyNameCollision"): (
        "The NetworkPolicy with the expected name has another owner; the pods run without this "
        "isolation."
    ),
    ("PodDisruptionBudgetNameCollision"): (
        "The PodDisruptionBudget with the expected name has another owner; evictions are not "
        "limited."
    ),
    "GracefulDrainUnavailable": "Pods of this cluster cannot drain.",
    "LimitExceeded": (
        "The cluster has more pods, groups or hosts than the operator allows; raybus creates and "
        "deletes none of its pods."
    ),
    "AutoscalerServiceAccountNotFound": "The head names a missing ServiceAccount.",
    (
        "ForceDeletedStuckCluster"
    ): "raybus deleted the cluster before Redis was cleaned; the message names the remaining keys.",
    "PodsNotEnding": (
        "Pods still exist after their grace period, for example on a lost node. raybus replaces "
        "workers, but not a head."
    ),
    "RedisCleanupFailed": (
        "The Redis clean-up Job failed, and raybus deleted the cluster; the message names the "
        "remaining keys."
    ),
    ("RedisCleanupBlocked"): (
        "Redis of the deleted cluster cannot be cleaned. Correct the field in the message before "
        "the time limit."
    ),
}
"""The meaning of each Event that may need an action, by its reason.

Events whose reason begins with `FailedTo` are Warnings too.
"""

_OF_CLUSTERS: Final = [
    reason
    for each in (
        *vars(cluster_events).values(),
        *cluster_events.CREATED.values(),
        *cluster_events.UPDATED.values(),
        *cluster_events.DELETED.values(),
        *cluster_events.TAKEN.values(),
    )
    if isinstance(each, EventSpec | ClusterEventTemplate)
    for reason in (each.reasons if isinstance(each, ClusterEventTemplate) else (each.reason,))
]
_OF_WRITES: Final = (STATUS_NOT_WRITTEN, FINALIZER_NOT_SET)


def _reasons_of_templates(module: ModuleType) -> list[str]:
    templates = (
        attribute for attribute in vars(module).values() if isinstance(attribute, EventTemplate)
    )
    return [reason for template in templates for reason in template.reasons]


_OF_TRAFFIC: Final = [
    reason
    for each in of_traffic.CREATED
    for table in (of_traffic.CREATED, of_traffic.UPDATED, of_traffic.DELETED)
    for reason in table[each].reasons
]
_OF_SUBMITS: Final = (
    "UpdatedServeApplications",
    "FailedToUpdateServeApplications",
    "ServeConfigDrifted",
)
_EVENTS: Final[dict[str, Iterable[str]]] = {
    "service-reconciler, about a RayService": dict.fromkeys(
        (
            *_reasons_of_templates(service_events),
            *_OF_SUBMITS,
            NOT_RECORDED,
            *of_services.EventReason,
            *_OF_WRITES,
        )
    ),
    "job-reconciler, about a RayJob": dict.fromkeys(
        (*_reasons_of_templates(job_events), *of_jobs.EventReason, *_OF_WRITES)
    ),
    "job-reconciler, about a RayCronJob": of_jobs.CronEventReason,
    "traffic-manager, about a RayService": dict.fromkeys(
        (
            *_OF_TRAFFIC,
            *_OF_SUBMITS,
            *of_traffic.CAPACITY_SENT.reasons,
            NOT_RECORDED,
            *of_traffic.EventReason,
        )
    ),
    "cluster-reconciler, about a RayCluster": dict.fromkeys(_OF_CLUSTERS),
}
_FAMILY: Final = re.compile(r"(FailedTo)?(Create|Update|Delete)d?([A-Z]\w*)")
_THINGS: Final = {
    "ServeApplications": "Serve config",
    "ServeTargetCapacity": "target capacity of Serve",
    "TargetCapacity": "target capacity of Serve",
    "HeadPodServeLabel": "label `ray.io/serve` of the head",
    "HeadPod": "head pod",
    "WorkerPod": "worker pod",
    "WorkerPodCollection": "worker pods of a group",
    "Pod": "pods of the cluster",
    "PodCollection": "pods of the cluster",
    "RedisCleanupJob": "Redis clean-up Job",
    "RayJobSubmitter": "Kubernetes Job that submits the job",
    "PVC": "volume claim of the GCS",
}
"""Texts for those parts of Event reasons, such as `HeadPod`, that are not names of kinds."""
_EITHER: Final = {"UpgradeAborted", "DrainStarted", "DrainEnded"}
"""Reasons of Events whose type can be Normal or Warning."""
_HEAD: Final = f"""\
# Conditions and Events

This page lists the conditions in `status.conditions` and the Events that `kubectl describe` and
`kubectl events` show. {markdown.WRITTEN}

Names, reasons and texts are KubeRay's, except for the conditions marked *raybus*. Those are present
only while they are True. [Troubleshooting](../troubleshooting.md) lists the actions to take. For
programs, raybus publishes [upgrade events](../events/README.md) on NATS.
"""


def page() -> str:
    """Return the text of the page about conditions and Events."""
    lines = [_HEAD]
    for title, held in (
        ("Conditions of a RayService", SERVICES),
        ("Conditions of a RayCluster", CLUSTERS),
    ):
        rows = [
            (
                _name(name, meaning),
                meaning.text,
                ", ".join(f"`{reason}`" for reason in meaning.reasons),
            )
            for name, meaning in held.items()
        ]
        lines += [
            f"## {title}",
            "",
            *markdown.table(("condition", "True means", "reasons"), rows),
            "",
        ]
    lines += [
        "## Events",
        "",
        "raybus writes one Event for a start, an end or an error. Repetitions are counted in the "
        "same Event.",
        "",
    ]
    for title, texts in _EVENTS.items():
        lines += [
            f"### By {title}",
            "",
            *markdown.table(("reason", "type", "meaning"), map(_event, texts)),
            "",
        ]
    return "\n".join(lines)


def types() -> set[str]:
    """Return all condition types that the services write."""
    return {*service_conditions.ConditionType, *of_clusters.ConditionType}


def reasons() -> set[str]:
    """Return all condition reasons that the services write."""
    return {*service_conditions.Reason, *of_clusters.ConditionReason, *of_clusters.ReplicaFailure}


def events() -> set[str]:
    """Return all Event reasons that the services write."""
    return {reason for texts in _EVENTS.values() for reason in texts}


def trouble() -> set[str]:
    """Return the reasons of Warning Events, and the condition reasons that report an error."""
    well = {
        "NonZeroServeEndpoints",
        "NoPendingCluster",
        "BothActivePendingClustersExist",
        "DesiredClusterSpecChanged",
        "SuspendRequested",
        "SuspendInProgress",
        "SuspendComplete",
        "RayServiceResumed",
        "PauseOver",
        "GatesPassed",
        "HeadPodRunningAndReady",
        "AllPodRunningAndReadyFirstTime",
    }
    warnings = {
        reason for reason in events() if reason.startswith("FailedTo") or reason in WARNINGS
    }
    return warnings | (reasons() - well)


def is_explained(reason: str) -> bool:
    """Return whether the conditions page explains an Event reason."""
    return reason in NORMAL or reason in WARNINGS or _FAMILY.fullmatch(reason) is not None


def _name(name: str, meaning: Meaning) -> str:
    return f"`{name}` (raybus)" if meaning.is_ours else f"`{name}`"


def _event(reason: str) -> tuple[str, str, str]:
    if reason in WARNINGS:
        return f"`{reason}`", "Warning", WARNINGS[reason]
    if reason in NORMAL:
        return f"`{reason}`", "Normal or Warning" if reason in _EITHER else "Normal", NORMAL[reason]
    match = _FAMILY.fullmatch(reason)
    if match is None:
        raise KeyError(f"{reason}: give it a meaning in NORMAL or WARNINGS")
    failed, verb, what = match.groups()
    thing = _THINGS.get(what, what)
    if failed:
        return (
            f"`{reason}`",
            "Warning",
            f"Could not {verb.lower()} the {thing}; the message contains the reason.",
        )
    return f"`{reason}`", "Normal", f"{verb}d the {thing}."
