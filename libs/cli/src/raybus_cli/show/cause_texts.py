"""Finds the code of a cause in the text by which service-reconciler reports the cause.

The conditions Ready and UpgradeInProgress have KubeRay's reasons. Only the end of their message
names a cause. The texts of causes are in `service_reconciler.problems`.
"""

from enum import StrEnum
from itertools import islice
from typing import Final

import re2

from raybus_cli.linting import serve_schema

PAGE: Final = "docs/troubleshooting.md"


class Code(StrEnum):
    """Why a RayService does not serve its spec, or why a RayJob does not start or has failed.

    A condition or Event that reports the same problem has the code as its reason.
    """

    INVALID_SPEC = "InvalidRayServiceSpec"
    TIMED_OUT = "InitializingTimeout"
    SUSPENDED = "Suspended"
    DELETING = "Deleting"
    PAUSED = "UpgradePaused"
    ABORTED = "UpgradeAborted"
    INVALID_ANNOTATIONS = "InvalidAnnotations"
    MANAGED_BY = "ManagedByAnotherController"
    NOT_RECONCILED = "NotReconciled"
    QUOTA_EXCEEDED = "QuotaExceeded"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    INSUFFICIENT_REPLICAS = "InsufficientReplicas"
    GATE_INCONCLUSIVE = "GateInconclusive"
    PODS_NOT_STARTING = "PodsNotStarting"
    OUT_OF_MEMORY = "OOMKilled"
    VOLUME_NOT_MOUNTED = "FailedMount"
    UNHEALTHY = "Unhealthy"
    EVICTED = "Evicted"
    CLUSTER_NOT_RUNNING = "RayClusterNotRunning"
    EMPTY_SERVE_CONFIG = "EmptyServeConfig"
    SERVE_CONFIG_REFUSED = "FailedToUpdateServeApplications"
    SERVE_CONFIG_UNKNOWN = "ServeConfigUnknown"
    NO_SERVE_PORT = "NoServePort"
    DASHBOARD_UNREACHABLE = "RayDashboardUnreachable"
    DASHBOARD_UNAUTHORIZED = "RayDashboardUnauthorized"
    APPLICATION_NOT_RUNNING = "ServeApplicationNotRunning"
    GATEWAY_NOT_READY = "GatewayNotReady"
    ROUTE_NOT_READY = "HTTPRouteNotReady"
    ROUTE_NOT_PERMITTED = "HTTPRouteNotPermitted"
    ROUTE_OVERWRITTEN = "HTTPRouteOverwritten"
    GRPC_ROUTE_NOT_READY = "GRPCRouteNotReady"
    STALLED = "ProgressDeadlineExceeded"
    WARNING = "WarningEvent"

    INVALID_JOB = "InvalidRayJobSpec"
    INVALID_CRON_JOB = "InvalidRayCronJobSpec"
    QUEUED = "ClusterSuspended"
    RUN_WAITS = "JobAlreadyActive"
    WEBHOOK_SILENT = "WebhookSilent"
    CLUSTER_NOT_FOUND = "RayClusterNotFound"
    WAITING_FOR_JOB = "RayJobWaiting"
    JOB_STOPPED = "RayJobStopped"
    APPLICATION_FAILED = "AppFailed"
    SUBMISSION_FAILED = "SubmissionFailed"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    START_DEADLINE_EXCEEDED = "PreRunningDeadlineExceeded"
    STATUS_CHECKS_FAILED = "JobStatusCheckTimeoutExceeded"
    GRACE_PERIOD_EXCEEDED = "JobDeploymentStatusTransitionGracePeriodExceeded"

    @property
    def anchor(self) -> str:
        """Link to the section of the documentation about this code."""
        return f"{PAGE}#{self.lower()}"


_BY_TEXT: Final = (
    (re2.compile(r"exceeded quota"), Code.QUOTA_EXCEEDED),
    (re2.compile(r"^pod \S+: the image .* cannot be pulled"), Code.IMAGE_PULL_FAILED),
    (re2.compile(r"^pod \S+ cannot be placed on a node"), Code.INSUFFICIENT_CAPACITY),
    (re2.compile(r"^pod \S+: container "), Code.PODS_NOT_STARTING),
    (re2.compile(r"^RayCluster \S+ cannot get its capacity back"), Code.SERVE_CONFIG_UNKNOWN),
    (re2.compile(r"^RayCluster \S+ does not have the Serve config"), Code.SERVE_CONFIG_REFUSED),
    (re2.compile(r"^RayCluster \S+(?: is suspended|: )"), Code.CLUSTER_NOT_RUNNING),
    (re2.compile(r"^spec\.serveConfigV2 is empty"), Code.EMPTY_SERVE_CONFIG),
    (
        re2.compile(r"^(spec\.serveConfigV2 |Ray refused |the Serve config could )"),
        Code.SERVE_CONFIG_REFUSED,
    ),
    (re2.compile(r"^application .* is (DEPLOY_FAILED|UNHEALTHY)"), Code.APPLICATION_NOT_RUNNING),
    (re2.compile(r"port named serve|^the only proxy is on the head"), Code.NO_SERVE_PORT),
    (
        re2.compile(
            r"^(the dashboard at \S+ refuses raybus|failed to get auth secret |auth token key "
            r"|the auth token in secret |"
            r"ServiceAccount \S+ (does not exist|cannot be issued a "
            r"token)|authOptions\.secretName )"
        ),
        Code.DASHBOARD_UNAUTHORIZED,
    ),
    (re2.compile(r"^the dashboard"), Code.DASHBOARD_UNREACHABLE),
    (re2.compile(r"^waiting: of the UpgradePolicy "), Code.GATE_INCONCLUSIVE),
    (re2.compile(r"^waiting: Gateway "), Code.GATEWAY_NOT_READY),
    (re2.compile(r"^waiting: GRPCRoute "), Code.GRPC_ROUTE_NOT_READY),
    (re2.compile(r"^waiting: HTTPRoute "), Code.ROUTE_NOT_READY),
    (re2.compile(r"^HTTPRoute .* replaced spec\.rules"), Code.ROUTE_OVERWRITTEN),
)
_REFUSAL: Final = re2.compile(
    r"(?s)(Ray refused the Serve config|the Serve config could not be sent): (.*)"
)
_LOCATIONS: Final = (
    re2.compile(r"'loc': \(([^)]*)\), 'msg': '(?P<why>.*?)', 'type': '(?P<kind>[\w.]+)'"),
    re2.compile(r"'loc': \(([^)]*)\), 'msg': \"(?P<why>.*?)\", 'type': '(?P<kind>[\w.]+)'"),
    re2.compile(r"(?m)^(\w+(?: -> \w+)+)\n\s+(?P<why>.+?) \(type=(?P<kind>[\w.]+)"),
    re2.compile(r"(?m)^(\w+(?:\.\w+)+)\n\s+(?P<why>.+?) \[type=(?P<kind>\w+)"),
)
"""The formats in which versions of pydantic report the fields that they refuse."""
_MAX_ANSWER_SIZE: Final = 32 * 2**10
"""Maximum characters of Ray's response that are searched for fields.

A condition's message has at most 32 KiB."""

_CAUSE_PREFIXES: Final = (
    "RayService is initializing after resuming from suspend: ",
    "RayService is initializing: ",
    "Number of serve endpoints is greater than 0: ",
    "Number of serve endpoints dropped to 0: ",
    "Both active and pending Ray clusters exist: ",
)
"""Prefixes of messages to which service-reconciler appends a cause."""


def find_code(cause: str) -> Code | None:
    """Return the code of the cause that service-reconciler reports as `cause`; None if unknown."""
    return next((code for pattern, code in _BY_TEXT if pattern.search(cause)), None)


def summarize_refusal(message: str, config: str) -> str:
    """Replace Ray's response to a Serve config (`config`) by the fields that Ray refuses.

    The result is `message` itself if the fields cannot be found.
    """
    match = _REFUSAL.search(message)
    if match is None:
        return message
    fields = _find_fields(match[2]) or (
        serve_schema.summarize_refused_fields(config) if match[1].startswith("Ray") else ()
    )
    return f"{message[: match.start()]}{match[1]}: {'; '.join(fields)}" if fields else message


def _find_fields(answer: str) -> list[str]:
    """Return the fields that Ray's response names, each with its reason."""
    return [
        _format_field(location=match[1], why=match["why"], kind=match["kind"])
        for pattern in _LOCATIONS
        for match in islice(pattern.finditer(answer[:_MAX_ANSWER_SIZE]), serve_schema.MAX_FIELDS)
    ]


def _format_field(*, location: str, why: str, kind: str) -> str:
    parts = re2.findall(r"\w+", location)
    place = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).lstrip(".")
    is_missing = kind.rpartition(".")[2] == "missing"
    return f"{place}: {serve_schema.REQUIRED if is_missing else 'Invalid value: ' + why}"


def split_cause(message: str) -> str | None:
    """Return the cause at the end of a condition's message; None if there is none."""
    prefixes = (prefix for prefix in _CAUSE_PREFIXES if message.startswith(prefix))
    return next((message.removeprefix(prefix) for prefix in prefixes), None)
