"""The blocking issues of a RayService, most likely first, each with evidence and a remedy.

service-reconciler's own rules (`service_reconciler.problems`) find the causes. The service applies
the rules to the first pod; this module applies them to every pod. A condition or Warning Event is
evidence for such a cause, or a cause of its own if the rules found none.
"""

from collections.abc import Iterable, Iterator, Set
from datetime import datetime, timedelta
from typing import Final

import msgspec
import re2

from common import conditions, labels, untrusted
from common.api.core import Pod
from common.api.ray_service import AppStatus
from common.upgrade import policy as upgrade_policy
from common.upgrade import traffic_record
from common.upgrade.policy import RecordedPolicy, Stored
from common.upgrade.service_conditions import Reason
from raybus_cli.explaining import events, remedies
from raybus_cli.explaining.remedies import BlockingCause, BlockingFinding, Rank
from raybus_cli.linting import serve_schema
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import gates, phase
from raybus_cli.show.cause_texts import Code
from raybus_cli.show.gates import Gates
from raybus_cli.show.phase import ServicePhase
from service_reconciler import problems
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.problems import ServiceProblem
from service_reconciler.reasons import EventReason

UNRECONCILED_AFTER: Final = timedelta(seconds=20)
"""Time for which an object may stay unreconciled before a finding reports it."""
_BLOCKS_CLUSTER: Final = {Rank.QUOTA, Rank.IMAGE, Rank.CAPACITY, Rank.PODS, Rank.SERVE}
"""Ranks of the causes that keep a cluster from becoming ready."""
_RANKS: Final = {
    Code.QUOTA_EXCEEDED: Rank.QUOTA,
    Code.IMAGE_PULL_FAILED: Rank.IMAGE,
    Code.INSUFFICIENT_CAPACITY: Rank.CAPACITY,
    Code.INSUFFICIENT_REPLICAS: Rank.CAPACITY,
    Code.GATE_INCONCLUSIVE: Rank.CAPACITY,
    Code.PODS_NOT_STARTING: Rank.PODS,
    **dict.fromkeys(
        (
            Code.GATEWAY_NOT_READY,
            Code.ROUTE_NOT_READY,
            Code.ROUTE_NOT_PERMITTED,
            Code.ROUTE_OVERWRITTEN,
            Code.GRPC_ROUTE_NOT_READY,
        ),
        Rank.GATEWAY,
    ),
    **dict.fromkeys(
        (
            Code.EMPTY_SERVE_CONFIG,
            Code.SERVE_CONFIG_REFUSED,
            Code.DASHBOARD_UNREACHABLE,
            Code.DASHBOARD_UNAUTHORIZED,
            Code.APPLICATION_NOT_RUNNING,
        ),
        Rank.SERVE,
    ),
}
_TRACEBACK: Final = "Traceback (most recent call last)"
_EXCEPTION: Final = re2.compile(r"[A-Za-z_][\w.]*(: |$)")
"""Matches the line of a traceback that names the exception: a dotted name at the start of the line,
then a colon or the end.
"""
_CONTROLS: Final = (Code.PAUSED, Code.ABORTED, Code.INVALID_ANNOTATIONS)
"""Codes of the conditions that a user, a deadline or a gate causes."""
_POLICY_ENDING_CONDITIONS: Final = ("UpgradeAborted", "RollbackInProgress")
"""Conditions under which edits of an UpgradePolicy no longer affect the upgrade."""
_SPECIFIC_REASONS: Final = {
    Reason.QUOTA_EXCEEDED,
    Reason.IMAGE_PULL_FAILED,
    Reason.INSUFFICIENT_CAPACITY,
    Reason.INSUFFICIENT_REPLICAS,
    Reason.GATE_INCONCLUSIVE,
}
"""Reasons of problems that become the codes of findings. For other problems, the code is the reason
of the Event about the problem.
"""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The output of `raybus explain`."""

    namespace: str
    name: str
    phase: ServicePhase
    message: str
    findings: list[BlockingFinding]
    gates: Gates | None = None
    """The gates of the UpgradePolicy at the upgrade's present weight."""
    policy_edit: str | None = None
    """Note that the policy was edited after the upgrade began, and when the edit takes effect; None
    if it was not edited.
    """
    unseen: list[str] = []


def explain(
    snapshot: Snapshot,
    *,
    now: datetime,
    offered: Set[str] | None = None,
    policy: Stored | None = None,
) -> Explanation:
    """Return the blocking issues of a RayService.

    `offered` are the names of the resources that the cluster's nodes have, `policy` is the stored
    policy of the upgrade; both are None if they were not read.
    """
    current, observed = phase.derive_phase(snapshot.service), observing.observe(snapshot)
    causes = [
        *_check_spec(observed),
        *_find_requested_states(snapshot),
        *_check_manager(snapshot, now=now),
    ]
    if observed.violation is None:
        causes += [
            *_check_serve_config(snapshot),
            *_check_clusters(snapshot, observed, offered, now=now),
            *_check_applications(snapshot),
        ]
    causes = events.add_events(snapshot, _add_stall(snapshot, causes), now=now)
    meta = snapshot.service.metadata
    return Explanation(
        namespace=meta.namespace,
        name=meta.name,
        phase=current.phase,
        message=current.message,
        findings=[
            remedies.build_finding(same, remedies.build_command(snapshot, same[0]))
            for same in remedies.merge_causes(causes)
        ],
        gates=gates.read_gates(snapshot),
        policy_edit=None if policy is None else _describe_edit(snapshot, policy),
        unseen=list(snapshot.unseen),
    )


def find_followed_policy(snapshot: Snapshot) -> RecordedPolicy | None:
    """Return the policy that was recorded for the upgrade in progress; None if it follows none."""
    pending = snapshot.find_cluster(snapshot.pending)
    is_on = snapshot.active != "" and upgrade_policy.upgraded_from(pending) == snapshot.active
    return upgrade_policy.record_of(pending) if is_on and pending is not None else None


def _describe_edit(snapshot: Snapshot, stored: Stored) -> str | None:
    record, pending = find_followed_policy(snapshot), snapshot.find_cluster(snapshot.pending)
    if record is None or pending is None or not upgrade_policy.is_edited(record, stored):
        return None
    policy, accepted = (
        upgrade_policy.of_cluster(pending),
        conditions.find(stored.status.conditions, "Accepted"),
    )
    upgrade = traffic_record.upgrade_of(snapshot.record, snapshot.active, snapshot.pending)
    is_back = any(
        conditions.is_true(snapshot.service.status.conditions, kind)
        for kind in _POLICY_ENDING_CONDITIONS
    )
    if policy is None or not policy.applies_edits_at_once:
        when = "this applies to the next upgrade, for this one began with applyEdits: NextUpgrade"
    elif is_back or (upgrade is not None and upgrade.failed):
        when = (
            "this applies to the next upgrade, for this one failed a gate, is aborted or rolls back"
        )
    elif accepted is not None and accepted.status == "False":
        when = f"this is not followed: {accepted.message}"
    else:
        when = "this applies within about 10 s"
    return (
        f"UpgradePolicy {record.name} was edited (generation {stored.metadata.generation}, the "
        f"upgrade follows {record.generation}): {when}"
    )


def explain_new_cluster(snapshot: Snapshot, *, now: datetime) -> list[BlockingFinding]:
    """Return the findings that keep the pending cluster of an upgrade from becoming ready."""
    if not snapshot.pending:
        return []
    blocking = (
        finding
        for finding in explain(snapshot, now=now).findings
        if finding.rank in _BLOCKS_CLUSTER
    )
    return [
        finding for finding in blocking if f"RayCluster {snapshot.active} " not in finding.message
    ]


def is_short_of_resources(pods: Iterable[Pod]) -> bool:
    """Return whether a pod is unschedulable for lack of a resource.

    Only then does an explanation need the resources of the nodes.
    """
    placed = (pod.condition("PodScheduled") for pod in pods)
    return any(
        condition is not None
        and condition.status == "False"
        and "Insufficient " in condition.message
        for condition in placed
    )


def _check_spec(observed: Observed) -> Iterator[BlockingCause]:
    if observed.violation is not None:
        remedy = remedies.find_remedy(Code.INVALID_SPEC, observed.service.metadata.name)
        yield BlockingCause(
            rank=Rank.SPEC, code=Code.INVALID_SPEC, what=observed.violation.message, remedy=remedy
        )


def _find_requested_states(snapshot: Snapshot) -> Iterator[BlockingCause]:
    """Yield a cause for each state that a user, a deadline or a gate caused, such as a pause."""
    name, current = snapshot.service.metadata.name, phase.derive_phase(snapshot.service)
    if (code := remedies.BY_PHASE.get(current.phase)) is not None:
        yield BlockingCause(
            rank=Rank.REQUESTED,
            code=code,
            what=current.message,
            remedy=remedies.find_remedy(code, name),
        )
    for code in _CONTROLS:
        condition = conditions.find(snapshot.service.status.conditions, code)
        if condition is not None and condition.status == "True":
            remedy = remedies.find_remedy(code, name, reason=condition.reason)
            yield BlockingCause(
                rank=Rank.REQUESTED, code=code, what=condition.message, remedy=remedy
            )


def _check_manager(snapshot: Snapshot, *, now: datetime) -> Iterator[BlockingCause]:
    service = snapshot.service
    owner, name = service.manager, service.metadata.name
    if owner != labels.MANAGED_BY_US:
        text = f"spec.managedBy is {owner}, so raybus does not manage the RayService"
        yield BlockingCause(
            rank=Rank.UNMANAGED,
            code=Code.MANAGED_BY,
            what=text,
            remedy=remedies.find_remedy(Code.MANAGED_BY, name),
        )
        return
    remedy = remedies.find_remedy(Code.NOT_RECONCILED, name)
    born = service.metadata.creation_timestamp
    is_new = born is not None and now - born < UNRECONCILED_AFTER
    if not service.status.conditions and not is_new:
        text = "no service of raybus has reconciled it"
        yield BlockingCause(rank=Rank.UNMANAGED, code=Code.NOT_RECONCILED, what=text, remedy=remedy)
    for cluster in snapshot.clusters:
        meta = cluster.metadata
        is_old = (
            meta.creation_timestamp is not None
            and now - meta.creation_timestamp >= UNRECONCILED_AFTER
        )
        if is_old and not cluster.status.conditions and not snapshot.list_pods(meta.name):
            text = (
                f"RayCluster {meta.name} has neither pods nor a status: it has not been reconciled"
            )
            yield BlockingCause(
                rank=Rank.UNMANAGED, code=Code.NOT_RECONCILED, what=text, remedy=remedy
            )


def _check_serve_config(snapshot: Snapshot) -> Iterator[BlockingCause]:
    """Yield a cause if Ray's schema rejects fields of the Serve config, even before it is sent."""
    fields = serve_schema.summarize_refused_fields(snapshot.service.serve_config)
    if fields:
        code, name = Code.SERVE_CONFIG_REFUSED, snapshot.service.metadata.name
        text = f"Ray Serve refuses spec.serveConfigV2: {'; '.join(fields)}"
        yield BlockingCause(
            rank=Rank.SERVE,
            code=code,
            what=text,
            origin="Ray refused the Serve config",
            remedy=remedies.find_remedy(code, name),
        )


def _check_clusters(
    snapshot: Snapshot, observed: Observed, offered: Set[str] | None, *, now: datetime
) -> Iterator[BlockingCause]:
    """Yield the causes on the cluster that serves next, on each of its pods, and on the Gateway.

    If the RayService's status names failing applications of this cluster, the dashboard's report
    about applications is skipped, because the status has their full messages. `offered` are the
    names of the resources that the nodes have; None if they were not read.
    """
    view = (
        observed.active
        if conditions.is_true(snapshot.service.status.conditions, "RollbackInProgress")
        else observed.pending or observed.active
    )
    pods = view.pods if view is not None else ()
    is_named = view is not None and any(
        cluster == view.name for cluster, _, _ in _find_failing_applications(snapshot)
    )
    for pod in pods or (None,):
        problem = problems.of_cluster(observed, _select_pod(view, pod), now=now)
        if problem is not None and not (
            is_named and problem.event is EventReason.APPLICATION_NOT_RUNNING
        ):
            yield _build_cause(snapshot, problem, view, pod, offered)
    for pod in pods:
        yield from find_ended_containers(pod)
    problem = problems.of_gateway(observed, now=now)
    if problem is not None:
        yield _build_cause(snapshot, problem, view, None, offered)


def _select_pod(view: ClusterView | None, pod: Pod | None) -> ClusterView | None:
    if view is None or pod is None:
        return view
    return msgspec.structs.replace(view, pods=(pod,))


def _build_cause(
    snapshot: Snapshot,
    problem: ServiceProblem,
    view: ClusterView | None,
    pod: Pod | None,
    offered: Set[str] | None,
) -> BlockingCause:
    code = Code(problem.code if problem.code in _SPECIFIC_REASONS else problem.event)
    name, what, container, pulled = "", problem.message, "", ""
    if pod is not None and what.startswith(f"pod {pod.metadata.name}"):
        name = pod.metadata.name
        what = what.removeprefix(f"pod {name}").lstrip(": ")
        pull = (
            observing.find_image_pull(pod, snapshot.events)
            if code is Code.IMAGE_PULL_FAILED
            else None
        )
        what, pulled = (what, "") if pull is None else (str(pull), pull.image)
        container = next(
            (status.name for status in pod.status.container_statuses if status.restart_count), ""
        )
    is_capacity = code is Code.INSUFFICIENT_CAPACITY
    service = snapshot.service.metadata.name
    return BlockingCause(
        rank=_RANKS.get(code, Rank.OTHER),
        code=code,
        what=" ".join(what.split()),
        image=pulled,
        pod=name,
        cluster=view.name if view is not None else "",
        container=container,
        origin=problem.message,
        remedy=remedies.find_capacity_remedy(snapshot, what, offered)
        if is_capacity
        else remedies.find_remedy(code, service),
    )


def find_ended_containers(pod: Pod) -> Iterator[BlockingCause]:
    """Yield a cause for each container of a pod that exited and was not restarted."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = status.state.terminated
        if ended is None or (ended.exit_code == 0 and not ended.reason):
            continue
        if ended.reason == "Completed":
            continue
        why = ended.reason or f"exit code {ended.exit_code}"
        is_memory = ended.reason == "OOMKilled"
        code = Code.OUT_OF_MEMORY if is_memory else Code.PODS_NOT_STARTING
        yield BlockingCause(
            rank=Rank.PODS,
            code=code,
            what=f"container {status.name} ended: {why}",
            pod=pod.metadata.name,
            container=status.name,
            remedy=remedies.find_remedy(code, "") if is_memory else remedies.LOGS,
        )


def _check_applications(snapshot: Snapshot) -> Iterator[BlockingCause]:
    """Yield a cause for each application that the RayService's status reports as not running.

    The status is available even if the dashboard is not.
    """
    code = Code.APPLICATION_NOT_RUNNING
    for cluster, name, app in _find_failing_applications(snapshot):
        why = f": {_format_last_exception(app.message)}" if app.message else ""
        yield BlockingCause(
            rank=Rank.SERVE,
            code=code,
            what=f"application {name} on RayCluster {cluster} is {app.status}{why}",
            cluster=cluster,
            origin=f"application {name} is {app.status}",
            remedy=remedies.find_remedy(code, snapshot.service.metadata.name),
            detail=app.message,
        )


def _find_failing_applications(snapshot: Snapshot) -> Iterator[tuple[str, str, AppStatus]]:
    """Yield (cluster, application, status) of each application that is reported as not running."""
    status = snapshot.service.status
    for side in (status.active_service_status, status.pending_service_status):
        for name, app in sorted((side.applications or {}).items()):
            if app.status not in {"RUNNING", ""}:
                yield side.ray_cluster_name, name, app


def _format_last_exception(message: str) -> str:
    """Format a message as one line; a traceback is reduced to its last exception."""
    lines = [line for line in untrusted.plain(message).splitlines() if line.strip()]
    if any(line.startswith(_TRACEBACK) for line in lines):
        lines = [line for line in lines if _EXCEPTION.match(line)][-1:] or lines[-1:]
    return " ".join(" ".join(lines).split())


def _add_stall(snapshot: Snapshot, causes: list[BlockingCause]) -> list[BlockingCause]:
    """Add the condition UpgradeStalled to the causes.

    If the condition names a cause in `causes`, it becomes evidence of that cause, otherwise a cause
    of its own.
    """
    stalled = conditions.find(snapshot.service.status.conditions, "UpgradeStalled")
    if stalled is None or stalled.status != "True":
        return causes
    line = f"condition UpgradeStalled: {stalled.message}"
    at = [
        cause
        for cause in causes
        if cause.code == stalled.reason or cause.is_named_in(stalled.message)
    ]
    if at:
        return [
            msgspec.structs.replace(cause, evidence=(*cause.evidence, line))
            if cause is at[0]
            else cause
            for cause in causes
        ]
    known = {str(code): code for code in Code}
    remedy = remedies.find_remedy(Code.STALLED, snapshot.service.metadata.name)
    code = known.get(stalled.reason, Code.STALLED)
    return [*causes, BlockingCause(rank=Rank.OTHER, code=code, what=stalled.message, remedy=remedy)]
