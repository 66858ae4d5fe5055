"""The blocking issues of a RayService, most likely first, each with its remedy.

The causes are found by service-reconciler's own rules (`service_reconciler.serve`), applied to every pod instead of the first
one; conditions and Warning Events add what those do not detect.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

import msgspec

from common import clipping, conditions, labels
from common.api.core import Pod
from common.api.ray_service import AppStatus
from raybus_cli.explaining import remedies
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase
from raybus_cli.show.phase import Phase
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.reasons import EventReason, Reason
from service_reconciler.serve import gateway_problems, problems
from service_reconciler.serve.problems import ServiceProblem

FRESH: Final = timedelta(minutes=15)
"""Older Events explain the past."""
UNSEEN_AFTER: Final = timedelta(seconds=20)
"""A change may be unobserved for so long without a finding."""
MOST_EVENTS: Final = 5


class Rank(IntEnum):
    """The order in which causes are to be corrected."""

    SPEC = 0
    """Nothing progresses before that is corrected."""
    REQUESTED = 1
    """A user has requested it."""
    UNMANAGED = 2
    """No controller manages it."""
    QUOTA = 3
    IMAGE = 4
    CAPACITY = 5
    PODS = 6
    GATEWAY = 7
    SERVE = 8
    OTHER = 9
    EVENT = 10


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One cause."""

    rank: Rank
    what: str
    remedy: str
    detail: str = ""
    """All of a text of which `what` has the cause."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole answer."""

    namespace: str
    name: str
    phase: Phase
    message: str
    findings: list[Finding]
    unseen: list[str] = []


_BY_CAUSE: Final = {
    Reason.QUOTA_EXCEEDED: Rank.QUOTA,
    Reason.IMAGE_PULL_FAILED: Rank.IMAGE,
    Reason.INSUFFICIENT_CAPACITY: Rank.CAPACITY,
    Reason.INSUFFICIENT_REPLICAS: Rank.CAPACITY,
    Reason.GATEWAY_NOT_READY: Rank.GATEWAY,
    Reason.APPLICATION_NOT_READY: Rank.SERVE,
}
_TRACEBACK: Final = "Traceback (most recent call last)"
_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]*(: |$)")
"""How a traceback names an exception: nothing before it, and no blank in its name."""
_CONTROLS: Final = ("UpgradePaused", "UpgradeAborted", "InvalidAnnotations")


def explain(snapshot: Snapshot, *, now: datetime) -> Explanation:
    """Return the blocking issues of a RayService."""
    current, observed = phase.of(snapshot.service), observing.observe(snapshot)
    found = [*_of_the_spec(observed), *_of_requests(snapshot), *_of_unmanaged(snapshot, now=now)]
    if observed.violation is None:
        found += [*_of_clusters(snapshot, observed, now=now), *_of_applications(snapshot)]
    found += [*_of_stall(snapshot, found), *_of_events(snapshot, found, now=now)]
    meta = snapshot.service.metadata
    return Explanation(
        namespace=meta.namespace,
        name=meta.name,
        phase=current.phase,
        message=current.message,
        findings=sorted(_once(found), key=lambda each: each.rank),
        unseen=list(snapshot.unseen),
    )


def _of_the_spec(observed: Observed) -> Iterator[Finding]:
    if observed.violation is not None:
        yield Finding(rank=Rank.SPEC, what=observed.violation.message, remedy=remedies.SPEC)


def _of_requests(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield what a user, or a deadline, has requested."""
    name, current = snapshot.service.metadata.name, phase.of(snapshot.service)
    if current.phase in remedies.BY_PHASE:
        yield Finding(
            rank=Rank.REQUESTED, what=current.message, remedy=remedies.BY_PHASE[current.phase].format(name=name)
        )
    for kind in _CONTROLS:
        held = conditions.find(snapshot.service.status.conditions, kind)
        if held is not None and held.status == "True":
            text = remedies.control(kind, held.reason).format(name=name)
            yield Finding(rank=Rank.REQUESTED, what=held.message, remedy=text)


def _of_unmanaged(snapshot: Snapshot, *, now: datetime) -> Iterator[Finding]:
    service = snapshot.service
    owner = service.manager
    if owner != labels.MANAGED_BY_US:
        text = f"spec.managedBy is {owner}, so raybus does not manage the RayService"
        yield Finding(rank=Rank.UNMANAGED, what=text, remedy=remedies.MANAGED_BY)
        return
    born = service.metadata.creation_timestamp
    is_new = born is not None and now - born < UNSEEN_AFTER
    if not service.status.conditions and not is_new:
        yield Finding(rank=Rank.UNMANAGED, what="no service of raybus has reconciled it", remedy=remedies.UNMANAGED)
    for cluster in snapshot.clusters:
        meta = cluster.metadata
        is_old = meta.creation_timestamp is not None and now - meta.creation_timestamp >= UNSEEN_AFTER
        if is_old and not cluster.status.conditions and not snapshot.pods_of(meta.name):
            text = f"RayCluster {meta.name} has neither pods nor a status: it has not been reconciled"
            yield Finding(rank=Rank.UNMANAGED, what=text, remedy=remedies.UNMANAGED)


def _of_clusters(snapshot: Snapshot, observed: Observed, *, now: datetime) -> Iterator[Finding]:
    """Yield the issues of the cluster that is to serve next, by each of its pods, and of the Gateway.

    Where the status names applications of it that fail, with all of their messages, the dashboard adds nothing about them.
    """
    view = (
        observed.active
        if conditions.is_true(snapshot.service.status.conditions, "RollbackInProgress")
        else observed.pending or observed.active
    )
    pods = view.pods if view is not None else ()
    is_named = view is not None and any(cluster == view.name for cluster, _, _ in _failing(snapshot))
    for pod in pods or (None,):
        problem = problems.find(observed, _with_pod(view, pod), now=now)
        if problem is not None and not (is_named and problem.event is EventReason.APPLICATION_NOT_RUNNING):
            yield _finding(problem)
    for pod in pods:
        yield from _of_ends(pod)
    problem = gateway_problems.find(observed, now=now)
    if problem is not None:
        yield _finding(problem)


def _with_pod(view: ClusterView | None, pod: Pod | None) -> ClusterView | None:
    if view is None or pod is None:
        return view
    return msgspec.structs.replace(view, pods=(pod,))


def _finding(problem: ServiceProblem) -> Finding:
    rank = _BY_CAUSE.get(problem.code, Rank.OTHER)
    is_pods = rank is Rank.OTHER and problem.event is EventReason.PODS_NOT_STARTING
    return Finding(rank=Rank.PODS if is_pods else rank, what=problem.message, remedy=remedies.problem(problem))


def _of_ends(pod: Pod) -> Iterator[Finding]:
    """Yield the exits of containers of a pod that do not run again."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = status.state.terminated
        if ended is None or (ended.exit_code == 0 and not ended.reason):
            continue
        if ended.reason == "Completed":
            continue
        why = ended.reason or f"exit code {ended.exit_code}"
        text = f"pod {pod.metadata.name}: container {status.name} ended: {why}"
        log = remedies.LOGS.format(pod=pod.metadata.name, container=status.name)
        yield Finding(rank=Rank.PODS, what=text, remedy=remedies.MEMORY if ended.reason == "OOMKilled" else log)


def _of_applications(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield applications that do not run by the status; the dashboard may be out of reach."""
    for cluster, name, app in _failing(snapshot):
        why = f": {_cause(app.message)}" if app.message else ""
        text = f"application {name} on RayCluster {cluster} is {app.status}{why}"
        remedy = remedies.APPLICATION.format(cluster=cluster)
        yield Finding(rank=Rank.SERVE, what=text, remedy=remedy, detail=app.message)


def _failing(snapshot: Snapshot) -> Iterator[tuple[str, str, AppStatus]]:
    """Yield the applications that do not run by the status, each after its cluster and its name."""
    status = snapshot.service.status
    for side in (status.active_service_status, status.pending_service_status):
        for name, app in sorted((side.applications or {}).items()):
            if app.status not in {"RUNNING", ""}:
                yield side.ray_cluster_name, name, app


def _cause(message: str) -> str:
    """Return a text as one line: of a traceback its last exception."""
    lines = [line for line in clipping.plain(message).splitlines() if line.strip()]
    if any(line.startswith(_TRACEBACK) for line in lines):
        lines = [line for line in lines if _EXCEPTION.match(line)][-1:] or lines[-1:]
    return " ".join(" ".join(lines).split())


def _of_stall(snapshot: Snapshot, found: list[Finding]) -> Iterator[Finding]:
    """Yield the stall that the service itself reports, unless its cause is named already."""
    held = conditions.find(snapshot.service.status.conditions, "UpgradeStalled")
    if held is not None and held.status == "True" and not any(each.what in held.message for each in found):
        yield Finding(
            rank=Rank.OTHER, what=held.message, remedy=remedies.STALL.format(name=snapshot.service.metadata.name)
        )


def _of_events(snapshot: Snapshot, found: list[Finding], *, now: datetime) -> Iterator[Finding]:
    """Yield the newest Warnings with new information."""
    if phase.of(snapshot.service).phase is Phase.READY and not found:
        return
    reported = " ".join(each.what for each in found)
    stays = {pod.metadata.name for name in (snapshot.active, snapshot.pending) for pod in snapshot.pods_of(name)}
    past = {pod.metadata.name for pod in snapshot.pods if pod.is_running_and_ready or pod.metadata.name not in stays}
    began = _began(snapshot)
    seen: set[tuple[str, str]] = set()
    for event in reversed(snapshot.events):
        key = (event.reason, event.note)
        is_old = event.at is None or now - event.at > FRESH or (began is not None and event.at < began)
        is_old = is_old or (event.regarding.kind == "Pod" and event.regarding.name in past)
        if event.type != "Warning" or is_old or key in seen or event.note in reported or len(seen) >= MOST_EVENTS:
            continue
        seen.add(key)
        text = f"{event.regarding.kind} {event.regarding.name}: {event.reason}: {' '.join(event.note.split())}"
        yield Finding(rank=Rank.EVENT, what=text, remedy=remedies.event(event.reason))


def _began(snapshot: Snapshot) -> datetime | None:
    """Return the begin of the present state: an upgrade begins with its cluster, the rest with the upgrade's end."""
    pending = snapshot.cluster(snapshot.pending)
    if pending is not None:
        return pending.metadata.creation_timestamp
    upgrading = conditions.find(snapshot.service.status.conditions, "UpgradeInProgress")
    return upgrading.last_transition_time if upgrading is not None and upgrading.status == "False" else None


def _once(found: list[Finding]) -> list[Finding]:
    return list({each.what: each for each in found}.values())
