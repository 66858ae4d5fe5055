"""docs/reference/conditions.md: every condition, its reasons, and every Kubernetes Event that the services write.

The words are the code's enums; what each means stands here. A word without a meaning, or a meaning without its word, is an error of the
page's test, and so is a cause of trouble that docs/troubleshooting.md does not name.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from cluster_reconciler import reasons as of_clusters
from service_reconciler import reasons as of_services
from support.docs import markdown
from traffic_manager import reasons as of_traffic


class Meaning(msgspec.Struct, frozen=True):
    """What a condition says while it is True, the reasons that it may have, and when it is there at all."""

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
    "GatewayNotReady",
    "ProgressDeadlineExceeded",
)
SERVICES: Final = {
    "Ready": Meaning(
        "Requests can be served: at least one endpoint is there.",
        ("NonZeroServeEndpoints", *_INITIALIZING, "ZeroServeEndpoints", "ValidationFailed", *_GOING),
    ),
    "UpgradeInProgress": Meaning(
        "A second cluster gets ready, or traffic moves; the message names what is waited for. Unknown: there is no active cluster.",
        ("BothActivePendingClustersExist", "NoPendingCluster", "NoActiveCluster", "Initializing", *_GOING),
    ),
    "RollbackInProgress": Meaning("Traffic goes back to the active cluster, in steps.", ("DesiredClusterSpecChanged", *_GOING)),
    "Suspending": Meaning("Everything is being deleted.", ("SuspendRequested", *_GOING)),
    "Suspended": Meaning("Everything is deleted.", ("SuspendComplete", "RayServiceResumed")),
    "UpgradePaused": Meaning("The way forward is closed.", ("PauseRequested", "ProgressDeadlineExceeded", "PauseOver"), is_ours=True),
    "UpgradeStalled": Meaning("The upgrade made no progress for as long as its deadline says.", _STALLS, is_ours=True),
    "UpgradeAborted": Meaning(
        "The service stays on its active cluster, whatever the spec asks for.", ("AbortRequested", "ProgressDeadlineExceeded"), is_ours=True
    ),
    "InvalidAnnotations": Meaning("A value of an annotation cannot be meant; the message says which is legal.", ("InvalidValue",), is_ours=True),
}  # fmt: skip
CLUSTERS: Final = {
    "HeadPodReady": Meaning(
        "The head runs and is ready. A reason that is not listed is the pod's own, such as `ContainersNotReady`.",
        ("HeadPodRunningAndReady", "HeadPodNotFound", "Unknown"),
    ),
    "RayClusterProvisioned": Meaning(
        "All pods were ready together once; it stays True when one is lost later.",
        ("AllPodRunningAndReadyFirstTime", "RayClusterPodsProvisioning"),
    ),
    "RayClusterSuspending": Meaning("All pods are being deleted.", ("RayClusterSuspending",)),
    "RayClusterSuspended": Meaning("All pods are deleted.", ("RayClusterSuspended",)),
    "ReplicaFailure": Meaning(
        "The last attempt to create or delete a pod or another child failed; gone when it worked. For other children the reason is "
        "`FailedCreate` and their kind, such as `FailedCreateService`.",
        tuple(of_clusters.ReplicaFailure),
    ),
    "UnsupportedFeatures": Meaning(
        "The spec asks for what raybus does not do yet; the message says which field, and what to do.", ("UnsupportedRayClusterSpec",), is_ours=True
    ),
}  # fmt: skip

NORMAL: Final = {
    "UpgradeStarted": "A new cluster is prepared; the message says why.",
    "UpgradePromoted": "The new cluster is the active one.",
    "UpgradeCancelled": "The pending cluster is given up before it got traffic.",
    "UpgradePaused": "The way forward is closed.",
    "UpgradeResumed": "It is open again.",
    "UpgradeAborted": "By its user: Normal. At the deadline: Warning.",
    "RollbackStarted": "Traffic goes back; the message says why.",
    "RollbackCompleted": "All traffic is back.",
    "RollbackCancelled": "Traffic goes forward again.",
    "TrafficShifted": "A move of traffic in steps, and why so much.",
    "DrainStarted": "The old cluster drains; the message says until when. A Warning where the time-out cannot be read.",
    "DrainEnded": "It is deleted; the message says what was in flight. A Warning when anything was.",
    "UpgradeReceipt": "What the upgrade came to.",
}
"""Events that tell how it goes."""
WARNINGS: Final = {
    "TrafficNotCarried": "A cluster cannot carry its share of the traffic, and the other one cannot take it over; why of both.",
    "InvalidRayServiceMetadata": "Name or annotations break a rule.",
    "InvalidRayServiceSpec": "The spec breaks a rule.",
    "InvalidRayClusterMetadata": "The name breaks a rule.",
    "InvalidRayClusterSpec": "The spec breaks a rule, or is unwise.",
    "InvalidRayClusterStatus": "The status contradicts itself.",
    "InvalidAnnotation": "A value of an annotation cannot be meant.",
    "UnsupportedRayClusterSpec": "The spec asks for what raybus does not do yet.",
    "RayServiceInitializingTimeout": "The service was not ready within its time limit.",
    "UpgradeStalled": "An upgrade made no progress; the cause comes first.",
    "UpgradeEventLost": "NATS refused an upgrade event.",
    "DrainNotTold": "A pod cannot be marked as draining; its cluster is deleted at its time all the same.",
    "FailedToLabelPod": "A pod cannot be labelled for the Serve Service of an upgrade in steps.",
    "OldClusterKept": "A cluster that is neither active nor pending still gets requests after 30 s; the message says through what.",
    "ReceiptNotWritten": "The receipt of an upgrade is refused, and is lost.",
    "StatusTruncated": "What Ray Serve says of applications is too long for the status; a part is left out.",
    "StatusNotWritten": "The status is refused; nothing that depends on it goes on.",
    "FinalizerNotSet": "The finalizer is refused; nothing is created without it.",
    "SpecNotRecorded": "An earlier spec could not be kept, so `raybus undo` cannot go back to it later.",
    "UpgradeCannotProgress": "Surge and step must both be more than 0.",
    "RollbackImpossible": "The active cluster is gone.",
    "GatewayNotReady": "The Gateway is missing, not accepted or not programmed.",
    "HTTPRouteNotReady": "The route is missing or refused.",
    "HTTPRouteOverwritten": "Another tool replaced the rules of the route; our backends were written again.",
    "HTTPRouteNotPermitted": "The owner of the route did not agree that this RayService uses it, or somebody else owns it.",
    "GRPCRouteNotReady": "The route for gRPC is refused.",
    "GatewayAPIMissing": "The API server knows no Gateways.",
    "GRPCRouteUnsupported": "gRPC calls are not routed.",
    "IncrementalUpgradeDisabled": "The gate of upgrades in steps is off; it goes as blue/green.",
    "EmptyServeConfig": "There is no application to serve.",
    "PodsNotStarting": "A pod of the cluster does not start.",
    "InsufficientReplicas": "A step waits until Ray's autoscaler has started more replicas of a deployment.",
    "ServeApplicationNotRunning": "An application failed to deploy, or is unhealthy.",
    "ServeConfigDrifted": "Serve ran another config than the recorded one, which was sent again; the note names the option.",
    "ServeConfigNotRecorded": "Ray took a Serve config, and its ControllerRevision could not be completed.",
    "ServeConfigUnknown": "Nobody recorded what the active cluster serves.",
    "RayDashboardUnreachable": "The head's dashboard does not answer.",
    "RayClusterNotRunning": "The cluster cannot have its pods, or is suspended.",
    "NoServePort": "The head has no port for Serve.",
    "ServiceNotOwned": "Another RayService has the Service of that name.",
    "GracefulDrainUnavailable": "Pods of this cluster cannot be told to drain.",
    "LimitExceeded": "The cluster asks for more pods, groups or hosts than the operator allows; none of its pods is created or deleted.",
    "AutoscalerServiceAccountNotFound": "The head names a ServiceAccount that does not exist.",
    "ForceDeletedStuckCluster": "The cluster went before Redis was clean.",
}
"""Events that somebody may have to act on; those that begin with `FailedTo` come besides."""

_EVENTS: Final[dict[str, type[StrEnum]]] = {
    "service-reconciler, about a RayService": of_services.EventReason,
    "traffic-manager, about a RayService": of_traffic.EventReason,
    "cluster-reconciler, about a RayCluster": of_clusters.EventReason,
}
_FAMILY: Final = re.compile(r"(FailedTo)?(Create|Update|Delete)d?([A-Z]\w*)")
_THINGS: Final = {
    "ServeApplications": "Serve config",
    "ServeTargetCapacity": "capacity that Serve is to have",
    "TargetCapacity": "capacity that Serve is to have",
    "HeadPodServeLabel": "label `ray.io/serve` of the head",
    "HeadPod": "head pod",
    "WorkerPod": "worker pod",
    "WorkerPodCollection": "worker pods of a group",
    "Pod": "pods of the cluster",
    "PodCollection": "pods of the cluster",
    "RedisCleanupJob": "Job that empties Redis",
    "PVC": "volume claim of the GCS",
}
"""What is not called by its kind."""
_EITHER: Final = {"UpgradeAborted", "DrainStarted", "DrainEnded"}
"""Events that are Normal or a Warning, as their texts say."""
_HEAD: Final = f"""\
# Conditions and Events

What stands in `status.conditions`, and what `kubectl describe` and `kubectl events` show. {markdown.WRITTEN}

Names, reasons and texts are KubeRay's, but for the conditions marked *ours*, which are there only while they hold. What to do about each:
[troubleshooting](../troubleshooting.md). Steps of an upgrade are told to programs on NATS: [upgrade events](../events/README.md).
"""


def page() -> str:
    """Write the page."""
    lines = [_HEAD]
    for title, held in (("Conditions of a RayService", SERVICES), ("Conditions of a RayCluster", CLUSTERS)):
        rows = [
            (_name(name, each), each.text, ", ".join(f"`{reason}`" for reason in each.reasons))
            for name, each in held.items()
        ]
        lines += [f"## {title}", "", *markdown.table(("condition", "True means", "reasons"), rows), ""]
    lines += [
        "## Events",
        "",
        "An Event is written once when something begins, ends or goes wrong; a repetition is counted in it.",
        "",
    ]
    for title, words in _EVENTS.items():
        lines += [f"### By {title}", "", *markdown.table(("reason", "type", "tells"), map(_event, words)), ""]
    return "\n".join(lines)


def types() -> set[str]:
    """Return every type of condition that the services write."""
    return {*of_services.ConditionType, *of_clusters.ConditionType}


def reasons() -> set[str]:
    """Return every reason of a condition that the services name."""
    return {*of_services.Reason, *of_clusters.ConditionReason, *of_clusters.ReplicaFailure}


def events() -> set[str]:
    """Return every reason of an Event."""
    return {reason for words in _EVENTS.values() for reason in words}


def trouble() -> set[str]:
    """Return the words that somebody may look up because something is wrong: Warnings, and reasons of conditions that tell of trouble."""
    well = {
        "NonZeroServeEndpoints", "NoPendingCluster", "BothActivePendingClustersExist", "DesiredClusterSpecChanged", "SuspendRequested",
        "SuspendInProgress", "SuspendComplete", "RayServiceResumed", "PauseOver", "HeadPodRunningAndReady", "AllPodRunningAndReadyFirstTime",
    }  # fmt: skip
    warnings = {reason for reason in events() if reason.startswith("FailedTo") or reason in WARNINGS}
    return warnings | (reasons() - well)


def is_explained(reason: str) -> bool:
    """Tell whether the page has words for an Event."""
    return reason in NORMAL or reason in WARNINGS or _FAMILY.fullmatch(reason) is not None


def _name(name: str, meaning: Meaning) -> str:
    return f"`{name}` (ours)" if meaning.is_ours else f"`{name}`"


def _event(reason: str) -> tuple[str, str, str]:
    if reason in WARNINGS:
        return f"`{reason}`", "Warning", WARNINGS[reason]
    if reason in NORMAL:
        return f"`{reason}`", "Normal or Warning" if reason in _EITHER else "Normal", NORMAL[reason]
    found = _FAMILY.fullmatch(reason)
    if found is None:
        raise KeyError(f"{reason}: give it a meaning in NORMAL or WARNINGS")
    failed, verb, what = found.groups()
    thing = _THINGS.get(what, what)
    if failed:
        return f"`{reason}`", "Warning", f"Could not {verb.lower()} the {thing}; the message says why."
    return f"`{reason}`", "Normal", f"{verb}d the {thing}."
