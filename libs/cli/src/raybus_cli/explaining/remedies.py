"""Causes, findings and remedies of blocking issues.

If several objects have the same cause, it is merged into one finding. A finding's remedy is one
line of advice and one command to copy, both chosen for the situation.
"""

import shlex
from collections.abc import Iterable, Set
from enum import IntEnum
from typing import Final

import msgspec
import re2

from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show.cause_texts import Code
from raybus_cli.show.phase import ServicePhase


class Rank(IntEnum):
    """The order in which causes should be corrected, first to last."""

    SPEC = 0
    """The spec is invalid; nothing progresses before it is corrected."""
    REQUESTED = 1
    """A user, a deadline or a gate caused this state."""
    UNMANAGED = 2
    """No controller manages the object."""
    QUOTA = 3
    IMAGE = 4
    CAPACITY = 5
    PODS = 6
    GATEWAY = 7
    SERVE = 8
    OTHER = 9
    EVENT = 10


class BlockingCause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a RayService is not ready or a RayJob does not run, found on one object."""

    rank: Rank
    code: Code
    what: str
    """The cause in words, without the name of the pod."""
    remedy: str
    image: str = ""
    """The image that cannot be pulled. Causes with the same image are merged, even if containers or
    registry messages differ.
    """
    pod: str = ""
    """The name of the affected pod; empty if no single pod is affected."""
    cluster: str = ""
    container: str = ""
    origin: str = ""
    """The text in which service-reconciler or job-reconciler reports the same cause."""
    job: str = ""
    """The failed RayJob of a RayCronJob; empty for any other cause."""
    evidence: tuple[str, ...] = ()
    detail: str = ""

    def is_named_in(self, text: str) -> bool:
        """Return whether `text`, the message of a condition or Event, contains this cause."""
        return any(part and part in text for part in (self.what, self.origin))


class BlockingFinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cause and all objects that have it."""

    rank: Rank
    code: Code
    message: str
    evidence: list[str] = []
    """Other affected objects, Events and conditions, one line each."""
    remedy: str
    command: str
    """A shell command to copy."""
    anchor: str
    """Link to the documentation section about the code."""
    detail: str = ""
    """The text from which `message` is taken, such as a whole traceback."""


def merge_causes(causes: Iterable[BlockingCause]) -> list[list[BlockingCause]]:
    """Sort the causes by rank and group equal ones; each group lists an object once."""
    groups: dict[tuple[Code, str], dict[tuple[str, str], BlockingCause]] = {}
    for cause in sorted(causes, key=lambda cause: cause.rank):
        same = groups.setdefault((cause.code, cause.image or cause.what), {})
        known = same.setdefault((cause.pod, cause.cluster), cause)
        new = tuple(line for line in cause.evidence if line not in known.evidence)
        same[cause.pod, cause.cluster] = msgspec.structs.replace(
            known, evidence=known.evidence + new
        )
    return [[*group.values()] for group in groups.values()]


def build_finding(same: list[BlockingCause], command: str) -> BlockingFinding:
    """Build the finding for a group of equal causes; `command` is its shell command to copy."""
    first, *others = same
    more = f" and {len(others)} more" if others else ""
    pods = [f"Pod {cause.pod}" for cause in others if cause.pod]
    evidence = dict.fromkeys([*pods, *(line for cause in same for line in cause.evidence)])
    return BlockingFinding(
        rank=first.rank,
        code=first.code,
        message=f"Pod {first.pod}{more}: {first.what}" if first.pod else first.what,
        evidence=[*evidence],
        remedy=first.remedy,
        command=command,
        anchor=first.code.anchor,
        detail=first.detail,
    )


DEADLINE: Final = "ProgressDeadlineExceeded"
GATE: Final = "GateFailed"
LOGS: Final = "see the log of the container's last run"
_DESCRIBE: Final = "see 'kubectl describe' of that object"
MAKE_ROOM: Final = "add nodes, or request less: smaller pods, fewer replicas, other selectors"
_SURGE: Final = (
    "add nodes, or request less: a smaller maxSurgePercent, smaller pods, other selectors"
)
_INSUFFICIENT: Final = re2.compile(r"Insufficient ([A-Za-z0-9./_-]*[A-Za-z0-9])")

BY_PHASE: Final = {
    ServicePhase.DELETING: Code.DELETING,
    ServicePhase.SUSPENDED: Code.SUSPENDED,
    ServicePhase.SUSPENDING: Code.SUSPENDED,
    ServicePhase.TIMED_OUT: Code.TIMED_OUT,
}
_BY_CODE: Final = {
    Code.INVALID_SPEC: (
        "correct the named field and apply again; 'raybus lint -f FILE' checks before you apply"
    ),
    Code.TIMED_OUT: (
        "correct the cause, then set spec.suspend to true, and to false again when RayService "
        "{name} is suspended"
    ),
    Code.SUSPENDED: "set spec.suspend to false to start it again, once everything is deleted",
    Code.DELETING: (
        "wait; metadata.finalizers of the RayService and its RayClusters names what blocks the "
        "deletion"
    ),
    Code.PAUSED: "'raybus resume {name}' resumes it",
    Code.ABORTED: (
        "'raybus retry {name}' retries the same spec; any other spec starts a new upgrade"
    ),
    Code.INVALID_ANNOTATIONS: (
        "correct the named annotation: 'kubectl annotate rayservice {name} …'"
    ),
    Code.MANAGED_BY: (
        "leave it to that controller, or create it again without spec.managedBy (the field is "
        "immutable)"
    ),
    Code.NOT_RECONCILED: "see 'raybus doctor'; check that raybus runs and watches this namespace",
    Code.QUOTA_EXCEEDED: (
        "raise the ResourceQuota of the namespace, or request less: 'raybus plan -f FILE' shows "
        "the peak"
    ),
    Code.IMAGE_PULL_FAILED: (
        "check the image's name and tag, imagePullSecrets, and that the nodes reach the registry"
    ),
    Code.INSUFFICIENT_REPLICAS: (
        "raise min_replicas in spec.serveConfigV2, or set raybus.io/capacity-parity to false"
    ),
    Code.GATE_INCONCLUSIVE: (
        "wait for requests; or lower minRequests of the gate in the next upgrade, or 'raybus "
        "promote {name}'"
    ),
    Code.PODS_NOT_STARTING: "see 'kubectl describe pod' of that pod, and its logs",
    Code.OUT_OF_MEMORY: (
        "the container used more than its memory limit: raise resources.limits.memory, or load "
        "less per replica"
    ),
    Code.VOLUME_NOT_MOUNTED: (
        "check that the named volume, Secret or ConfigMap exists in this namespace and is "
        "attached to no other node"
    ),
    Code.UNHEALTHY: (
        "the pod's probe fails: see its log, and whether its CPU suffices to answer in time"
    ),
    Code.EVICTED: "the node ran out of memory or disk: raise the pod's requests",
    Code.CLUSTER_NOT_RUNNING: "see 'kubectl describe raycluster' of that cluster",
    Code.EMPTY_SERVE_CONFIG: "put applications into spec.serveConfigV2",
    Code.SERVE_CONFIG_REFUSED: (
        "correct spec.serveConfigV2; 'raybus lint -f FILE' checks it before you apply"
    ),
    Code.SERVE_CONFIG_UNKNOWN: "restore the spec of the pending cluster to continue the upgrade",
    Code.NO_SERVE_PORT: (
        "add a port named serve to the head's first container, with the number of Serve's "
        "http_options.port (8000)"
    ),
    Code.DASHBOARD_UNREACHABLE: (
        "check that the head runs, and that no NetworkPolicy blocks raybus from port 8265 of its "
        "Service"
    ),
    Code.DASHBOARD_UNAUTHORIZED: (
        "follow the message; docs/how-to/authentication.md lists the Secret, or the "
        "ServiceAccounts and rights, that are needed"
    ),
    Code.APPLICATION_NOT_RUNNING: (
        "see the application's log in the Ray dashboard, or 'kubectl logs' of the head"
    ),
    Code.GATEWAY_NOT_READY: (
        "check that the Gateway API is installed and a controller serves that gatewayClassName: "
        "'raybus doctor'"
    ),
    Code.STALLED: (
        "correct the cause, or 'raybus abort {name}'; 'raybus promote {name}' skips the steps"
    ),
}
_BY_REASON: Final = {
    (
        Code.PAUSED,
        DEADLINE,
    ): "correct the cause, then 'raybus promote {name}', or set raybus.io/on-deadline to Wait",
    (
        Code.ABORTED,
        DEADLINE,
    ): "correct the cause and edit the spec, or 'raybus promote {name}' to retry the same one",
    (
        Code.PAUSED,
        GATE,
    ): "'raybus abort {name}' rolls back, 'raybus promote {name}' continues without gates",
    (
        Code.ABORTED,
        GATE,
    ): (
        "correct the model and edit the spec, or 'raybus promote {name}' to repeat the same one "
        "without gates"
    ),
    (
        Code.ABORTED,
        "EarlierGateFailed",
    ): (
        "wait: an upgrade to this Serve config starts when that cluster is gone; 'raybus status "
        "{name}' waits for it"
    ),
    (
        Code.PAUSED,
        "InvalidUpgradePolicy",
    ): "create or correct the named UpgradePolicy, or remove raybus.io/upgrade-policy",
}
"""Remedies for conditions that were set by a deadline or a gate instead of a user's request, by
code and reason.
"""
_EDIT: Final = "kubectl -n {namespace} edit rayservice {name}"
_POD: Final = "kubectl -n {namespace} describe pod {pod}"
_DESCRIBED: Final = "kubectl -n {namespace} describe rayservice {name}"
_ROUTES: Final = "kubectl -n {namespace} describe httproute,grpcroute"
_COMMANDS: Final = {
    **dict.fromkeys(
        (
            Code.INVALID_SPEC,
            Code.TIMED_OUT,
            Code.SUSPENDED,
            Code.INVALID_ANNOTATIONS,
            Code.EMPTY_SERVE_CONFIG,
            Code.SERVE_CONFIG_REFUSED,
            Code.SERVE_CONFIG_UNKNOWN,
            Code.NO_SERVE_PORT,
            Code.INSUFFICIENT_REPLICAS,
        ),
        _EDIT,
    ),
    **dict.fromkeys(
        (
            Code.ROUTE_NOT_READY,
            Code.ROUTE_NOT_PERMITTED,
            Code.ROUTE_OVERWRITTEN,
            Code.GRPC_ROUTE_NOT_READY,
        ),
        _ROUTES,
    ),
    Code.DELETING: (
        "kubectl -n {namespace} get rayservice,raycluster -o "
        "custom-columns=NAME:.metadata.name,FINALIZERS:.metadata.finalizers"
    ),
    Code.PAUSED: "raybus resume {name} -n {namespace}",
    Code.ABORTED: "raybus retry {name} -n {namespace}",
    Code.MANAGED_BY: "kubectl -n {namespace} get rayservice {name} -o yaml",
    Code.NOT_RECONCILED: "raybus doctor",
    Code.QUOTA_EXCEEDED: "kubectl -n {namespace} describe resourcequota",
    Code.UNHEALTHY: "kubectl -n {namespace} logs {pod} --all-containers",
    Code.CLUSTER_NOT_RUNNING: "kubectl -n {namespace} describe raycluster {cluster}",
    Code.DASHBOARD_UNREACHABLE: (
        "kubectl -n {namespace} get pods -l ray.io/cluster={cluster},ray.io/node-type=head"
    ),
    Code.DASHBOARD_UNAUTHORIZED: "kubectl -n {namespace} get serviceaccount,secret,rolebinding",
    Code.APPLICATION_NOT_RUNNING: (
        "kubectl -n {namespace} logs -l ray.io/cluster={cluster},ray.io/node-type=head "
        "--all-containers"
    ),
    Code.GATE_INCONCLUSIVE: "kubectl -n {namespace} get upgradepolicies",
    Code.GATEWAY_NOT_READY: "raybus doctor",
    Code.STALLED: "raybus get rayservice {name} -n {namespace} -w",
}
PREVIOUS_LOGS: Final = "kubectl -n {namespace} logs {pod} -c {container} --previous"


def find_remedy(code: Code, name: str, *, reason: str = "") -> str:
    """Return the remedy for a code of the RayService `name`.

    `reason` is the reason of the condition that has the code, empty if there is no such condition.
    """
    text = _BY_REASON.get((code, reason)) or _BY_CODE.get(code, _DESCRIBE)
    return text.format(name=name)


def find_capacity_remedy(snapshot: Snapshot, message: str, offered: Set[str] | None) -> str:
    """Return the remedy for an unschedulable pod of a RayService.

    `message` is the scheduler's message. `offered` are the names of the resources that the
    cluster's nodes have; None if they are unknown.
    """
    missing = find_resource_remedy(message, offered)
    return missing or (_SURGE if snapshot.active and snapshot.pending else MAKE_ROOM)


def find_resource_remedy(message: str, offered: Set[str] | None) -> str:
    """Return the remedy for the resources in a scheduler's message that no node offers.

    The result is empty if nodes offer all of them, or if `offered` is unknown (None).
    """
    missing = [
        resource
        for resource in dict.fromkeys(_INSUFFICIENT.findall(message))
        if offered is not None and resource not in offered
    ]
    if not missing:
        return ""
    names = ", ".join(missing)
    return (
        f"No node offers {names}: add nodes that have it, with its device plugin, or remove "
        "the request"
    )


def find_event_remedy(snapshot: Snapshot, code: Code) -> str:
    """Return the remedy for a Warning Event with the code `code`, which matches no other cause."""
    return (
        find_capacity_remedy(snapshot, "", None)
        if code is Code.INSUFFICIENT_CAPACITY
        else find_remedy(code, snapshot.service.metadata.name)
    )


def build_command(snapshot: Snapshot, cause: BlockingCause) -> str:
    """Return the shell command for a cause; names in it are quoted."""
    meta = snapshot.service.metadata
    template = _POD if cause.pod else _COMMANDS.get(cause.code, _DESCRIBED)
    if cause.pod and cause.code is Code.UNHEALTHY:
        template = _COMMANDS[cause.code]
    if cause.container and cause.code is Code.PODS_NOT_STARTING:
        template = PREVIOUS_LOGS
    verb = next(
        (verb for verb in ("abort", "promote", "status") if f"raybus {verb}" in cause.remedy), ""
    )
    if cause.code in {Code.PAUSED, Code.ABORTED} and verb:
        template = f"raybus {verb} {{name}} -n {{namespace}}"
    fields = {
        "name": meta.name,
        "namespace": meta.namespace,
        "pod": cause.pod,
        "container": cause.container,
        "cluster": cause.cluster or snapshot.pending or snapshot.active,
    }
    return template.format(**{key: shlex.quote(value) for key, value in fields.items()})
