"""Derives the phase of a RayService, and the reason of a blocking issue, from its conditions.

If several conditions are true, the first one in `_BY_CONDITION` decides. Each reason has a section
of that name in docs/troubleshooting.md.

service-reconciler adds a known cause to the message of `Ready` or `UpgradeInProgress`; its texts
are in `serve.problems` and `serve.gateway_problems`. The cause then becomes the reason and the
message of the phase, and a first start becomes `Degraded`.
"""

from enum import StrEnum
from itertools import islice
from typing import Final

import msgspec
import re2

from common import conditions
from common.api.meta import Condition
from common.api.ray_service import RayService
from raybus_cli.linting import serve_schema

PAGE: Final = "docs/troubleshooting.md"


class Code(StrEnum):
    """Why a RayService does not serve its spec.

    If a condition or an Event reports the same, its reason has the same value.
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

    @property
    def anchor(self) -> str:
        """The section of the documentation about this reason."""
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
"""Characters of Ray's response that are searched for fields; a condition's message has at most 32
KiB.
"""


def of_text(text: str) -> Code | None:
    """Return the reason of a cause, given service-reconciler's text; None if it is unknown."""
    return next((code for pattern, code in _BY_TEXT if pattern.search(text)), None)


def by_field(message: str, config: str) -> str:
    """Replace Ray's response to a Serve config by the fields that it refuses.

    The message is unchanged if the fields cannot be found.
    """
    found = _REFUSAL.search(message)
    if found is None:
        return message
    fields = _located(found[2]) or (
        serve_schema.shown_fields(config) if found[1].startswith("Ray") else ()
    )
    return f"{message[: found.start()]}{found[1]}: {'; '.join(fields)}" if fields else message


def _located(answer: str) -> list[str]:
    """Return the fields that Ray's response names, each with its reason."""
    return [
        _field(location=match[1], why=match["why"], kind=match["kind"])
        for pattern in _LOCATIONS
        for match in islice(pattern.finditer(answer[:_MAX_ANSWER_SIZE]), serve_schema.MAX_FIELDS)
    ]


def _field(*, location: str, why: str, kind: str) -> str:
    parts = re2.findall(r"\w+", location)
    place = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).lstrip(".")
    is_missing = kind.rpartition(".")[2] == "missing"
    return f"{place}: {serve_schema.REQUIRED if is_missing else 'Invalid value: ' + why}"


class Phase(StrEnum):
    """The most important state of a RayService for its user."""

    DELETING = "Deleting"
    INVALID = "Invalid"
    TIMED_OUT = "TimedOut"
    SUSPENDED = "Suspended"
    SUSPENDING = "Suspending"
    ABORTED = "Aborted"
    STALLED = "Stalled"
    ROLLING_BACK = "RollingBack"
    PAUSED = "Paused"
    UPGRADING = "Upgrading"
    READY = "Ready"
    STARTING = "Starting"
    DEGRADED = "Degraded"
    """The first cluster cannot start, and the cause is known."""
    NOT_READY = "NotReady"


class Tone(StrEnum):
    """The severity of a phase."""

    GOOD = "good"
    BUSY = "busy"
    BAD = "bad"


class CurrentPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The phase of a RayService, with its reason and message."""

    phase: Phase
    reason: str = ""
    message: str = ""


_BAD: Final = {
    Phase.INVALID,
    Phase.TIMED_OUT,
    Phase.STALLED,
    Phase.ABORTED,
    Phase.NOT_READY,
    Phase.DEGRADED,
}
_BY_CONDITION: Final = (
    ("Suspended", Phase.SUSPENDED),
    ("Suspending", Phase.SUSPENDING),
    ("UpgradeStalled", Phase.STALLED),
    ("RollbackInProgress", Phase.ROLLING_BACK),
    ("UpgradeAborted", Phase.ABORTED),
    ("UpgradePaused", Phase.PAUSED),
    ("UpgradeInProgress", Phase.UPGRADING),
    ("Ready", Phase.READY),
)
"""The first true condition decides the phase."""
_NOT_READY: Final = {
    "ValidationFailed": Phase.INVALID,
    "InitializingTimeout": Phase.TIMED_OUT,
    "Initializing": Phase.STARTING,
}
_EARLIER_GATE: Final = "EarlierGateFailed"
"""Reason of UpgradeAborted while a version that failed a gate is rolled back. The upgrade to the
present spec follows, so it has not ended.
"""
_NEVER_SERVES: Final = {"ValidationFailed", "InitializingTimeout"}
_CAUSED: Final = (
    "RayService is initializing after resuming from suspend: ",
    "RayService is initializing: ",
    "Number of serve endpoints is greater than 0: ",
    "Number of serve endpoints dropped to 0: ",
    "Both active and pending Ray clusters exist: ",
)
"""Prefixes of messages to which service-reconciler appends a cause."""


def is_aborted(service: RayService) -> bool:
    """Return whether the upgrade to the present spec was aborted."""
    found = conditions.find(service.status.conditions, "UpgradeAborted")
    return found is not None and found.status == "True" and found.reason != _EARLIER_GATE


def of(service: RayService, *, is_brief: bool = False) -> CurrentPhase:
    """Return the phase of a RayService.

    If `is_brief`, Ray's response to a Serve config is shown unchanged, so that the config need not
    be parsed.
    """
    config = "" if is_brief else service.serve_config
    held = service.status.conditions
    if service.metadata.deletion_timestamp is not None:
        return CurrentPhase(phase=Phase.DELETING, message="its clusters are deleted first")
    ready = conditions.find(held, "Ready")
    if ready is not None and ready.status != "True" and ready.reason in _NEVER_SERVES:
        return CurrentPhase(
            phase=_NOT_READY[ready.reason], reason=ready.reason, message=ready.message
        )
    for kind, phase in _BY_CONDITION:
        found = conditions.find(held, kind)
        if found is not None and found.status == "True":
            return _caused(
                config, found, Phase.ROLLING_BACK if found.reason == _EARLIER_GATE else phase
            )
    if ready is None:
        return CurrentPhase(
            phase=Phase.STARTING,
            message="no service of raybus has reconciled it yet: see 'raybus doctor'",
        )
    return _caused(config, ready, _NOT_READY.get(ready.reason, Phase.NOT_READY))


def _caused(config: str, held: Condition, phase: Phase) -> CurrentPhase:
    """Return the phase with the cause in the condition's message.

    Without a known cause, the phase has the condition's own reason.
    """
    message = by_field(held.message, config)
    cause = next((message.removeprefix(each) for each in _CAUSED if message.startswith(each)), None)
    if cause is None:
        return CurrentPhase(phase=phase, reason=held.reason, message=message)
    reason = of_text(cause) or held.reason
    return CurrentPhase(
        phase=Phase.DEGRADED if phase is Phase.STARTING else phase, reason=reason, message=cause
    )


def order(service: RayService) -> tuple[bool, str, str]:
    """Return a sort key: RayServices that need an action first, then by namespace and name."""
    meta = service.metadata
    return tone(of(service).phase) is not Tone.BAD, meta.namespace, meta.name


def tone(phase: Phase) -> Tone:
    """Return the severity of a phase."""
    if phase is Phase.READY:
        return Tone.GOOD
    return Tone.BAD if phase in _BAD else Tone.BUSY
