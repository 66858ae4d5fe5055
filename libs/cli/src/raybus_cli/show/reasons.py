"""The reasons of blocking issues, and which one a message of a service reports.

Each reason has one section in docs/troubleshooting.md, with its name as the heading. A condition has the cause in its message only;
the texts are those of service-reconciler (`serve.problems`, `serve.gateway_problems`).
"""

import re
from enum import StrEnum
from typing import Final

from raybus_cli.linting import serve_schema

PAGE: Final = "docs/troubleshooting.md"


class Code(StrEnum):
    """Why a RayService does not serve its spec; a reason of a condition or an Event where one reports it."""

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

    @property
    def anchor(self) -> str:
        """Return where the reason is described."""
        return f"{PAGE}#{self.lower()}"


_BY_TEXT: Final = (
    (re.compile(r"exceeded quota"), Code.QUOTA_EXCEEDED),
    (re.compile(r"^pod \S+: the image .* cannot be pulled"), Code.IMAGE_PULL_FAILED),
    (re.compile(r"^pod \S+ cannot be placed on a node"), Code.INSUFFICIENT_CAPACITY),
    (re.compile(r"^pod \S+: container "), Code.PODS_NOT_STARTING),
    (re.compile(r"^RayCluster \S+ cannot get its capacity back"), Code.SERVE_CONFIG_UNKNOWN),
    (re.compile(r"^RayCluster \S+ does not have the Serve config"), Code.SERVE_CONFIG_REFUSED),
    (re.compile(r"^RayCluster \S+(?: is suspended|: )"), Code.CLUSTER_NOT_RUNNING),
    (re.compile(r"^spec\.serveConfigV2 is empty"), Code.EMPTY_SERVE_CONFIG),
    (re.compile(r"^(spec\.serveConfigV2 |Ray refused |the Serve config could )"), Code.SERVE_CONFIG_REFUSED),
    (re.compile(r"^application .* is (DEPLOY_FAILED|UNHEALTHY)"), Code.APPLICATION_NOT_RUNNING),
    (re.compile(r"port named serve"), Code.NO_SERVE_PORT),
    (
        re.compile(
            r"^(the dashboard at \S+ refuses raybus|failed to get auth secret |auth token key |the auth token in secret |"
            r"ServiceAccount \S+ (does not exist|cannot be issued a token)|authOptions\.secretName )"
        ),
        Code.DASHBOARD_UNAUTHORIZED,
    ),
    (re.compile(r"^the dashboard"), Code.DASHBOARD_UNREACHABLE),
    (re.compile(r"^waiting: of the UpgradePolicy "), Code.GATE_INCONCLUSIVE),
    (re.compile(r"^waiting: Gateway "), Code.GATEWAY_NOT_READY),
    (re.compile(r"^waiting: GRPCRoute "), Code.GRPC_ROUTE_NOT_READY),
    (re.compile(r"^waiting: HTTPRoute "), Code.ROUTE_NOT_READY),
    (re.compile(r"^HTTPRoute .* replaced spec\.rules"), Code.ROUTE_OVERWRITTEN),
)
_REFUSAL: Final = re.compile(r"(Ray refused the Serve config|the Serve config could not be sent): (.*)", re.DOTALL)
_LOCATIONS: Final = (
    re.compile(r"'loc': \(([^)]*)\), 'msg': (?P<quote>['\"])(?P<why>.*?)(?P=quote), 'type': '(?P<kind>[\w.]+)'"),
    re.compile(r"^(\w+(?: -> \w+)+)\n\s+(?P<why>.+?) \(type=(?P<kind>[\w.]+)", re.MULTILINE),
    re.compile(r"^(\w+(?:\.\w+)+)\n\s+(?P<why>.+?) \[type=(?P<kind>\w+)", re.MULTILINE),
)
"""The forms in which the versions of pydantic write the fields that they refuse."""


def of_text(text: str) -> Code | None:
    """Return the reason of a cause as service-reconciler writes it."""
    return next((code for pattern, code in _BY_TEXT if pattern.search(text)), None)


def by_field(message: str, config: str) -> str:
    """Return a message in which the fields of a Serve config replace Ray's answer to it, where they can be named."""
    found = _REFUSAL.search(message)
    if found is None:
        return message
    fields = _located(found[2]) or (serve_schema.refused_fields(config) if found[1].startswith("Ray") else [])
    return f"{message[: found.start()]}{found[1]}: {'; '.join(fields)}" if fields else message


def _located(answer: str) -> list[str]:
    """Return the fields in an answer of Ray, each with the reason."""
    return [_field(each) for pattern in _LOCATIONS for each in pattern.finditer(answer)]


def _field(found: re.Match[str]) -> str:
    parts = re.findall(r"\w+", found[1])
    place = "".join(f"[{each}]" if each.isdigit() else f".{each}" for each in parts).lstrip(".")
    is_missing = found["kind"].rpartition(".")[2] == "missing"
    return f"{place}: {serve_schema.REQUIRED if is_missing else 'Invalid value: ' + found['why']}"
