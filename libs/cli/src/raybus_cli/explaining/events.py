"""Matches Warning Events to causes.

An Event that fits a cause becomes its evidence; any other Event becomes a cause of its own. Events
are ignored if the present state shows that their problem is over.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
import re2

from common import conditions, labels
from common.api.core import Pod
from common.ray import serve_proxies
from common.ray.serve_status import AppState, Location
from raybus_cli.explaining import remedies
from raybus_cli.explaining.remedies import BlockingCause, Rank
from raybus_cli.printing import format_age
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import KubernetesEvent, Snapshot
from raybus_cli.show import cause_texts, phase
from raybus_cli.show.cause_texts import Code
from raybus_cli.show.phase import ServicePhase
from raybus_cli.show.tree import count_seconds_since

MAX_EVENT_AGE: Final = timedelta(minutes=15)
"""Maximum age of an Event; older Events describe the past."""
MAX_EVENT_CAUSES: Final = 5
"""Maximum number of Events that become causes of their own."""
_CODES: Final = {
    "FailedScheduling": Code.INSUFFICIENT_CAPACITY,
    "NotTriggerScaleUp": Code.INSUFFICIENT_CAPACITY,
    "FailedAttachVolume": Code.VOLUME_NOT_MOUNTED,
    "FailedCreateHeadPod": Code.CLUSTER_NOT_RUNNING,
    "FailedCreateWorkerPod": Code.CLUSTER_NOT_RUNNING,
}
_OF_REASONS: Final = {str(code): code for code in Code}
_STARTS: Final = {"Failed", "BackOff", "InspectFailed"}
_PULL: Final = re2.compile(r"\bpull|\bErrImage|\bInvalidImageName")
_POD: Final = re2.compile(r"\bpod ([a-z0-9][a-z0-9.-]*[a-z0-9])")
_BEFORE_START: Final = {"ContainerCreating", "PodInitializing"}


def add_events(
    snapshot: Snapshot, causes: list[BlockingCause], *, now: datetime
) -> list[BlockingCause]:
    """Add the newest Warnings to the causes as evidence; append Warnings that match no cause.

    The result is empty if the RayService is ready and `causes` is empty.
    """
    if phase.derive_phase(snapshot.service).phase is ServicePhase.READY and not causes:
        return []
    matched, more = list(causes), dict[tuple[str, str, str], BlockingCause]()
    for event in _select_current(snapshot, now=now):
        code, note = find_code(event), " ".join(_format_note(snapshot, event).split())
        where = f"{event.regarding.kind} {event.regarding.name}"
        line = (
            f"{where}: {event.reason} {format_age(count_seconds_since(event.at, now))} ago: {note}"
        )
        at = [number for number, cause in enumerate(matched) if _is_evidence(event, code, cause)]
        for number in at:
            cause = matched[number]
            matched[number] = msgspec.structs.replace(cause, evidence=(*cause.evidence, line))
        if not at:
            pod = event.regarding.name if event.regarding.kind == "Pod" else ""
            what = f"{event.reason}: {note}" if pod else f"{where}: {event.reason}: {note}"
            new = BlockingCause(
                rank=Rank.EVENT,
                code=code,
                what=what,
                pod=pod,
                remedy=remedies.find_event_remedy(snapshot, code),
            )
            more.setdefault((event.reason, note, pod), new)
    return [*matched, *list(more.values())[:MAX_EVENT_CAUSES]]


def find_code(event: KubernetesEvent) -> Code:
    """Map an Event to the code of a blocking issue; `Code.WARNING` if none fits."""
    if event.reason in _STARTS:
        return Code.IMAGE_PULL_FAILED if _PULL.search(event.note) else Code.PODS_NOT_STARTING
    if event.reason == Code.PODS_NOT_STARTING:
        return cause_texts.find_code(event.note) or Code.PODS_NOT_STARTING
    return (
        _CODES.get(event.reason)
        or _OF_REASONS.get(event.reason)
        or cause_texts.find_code(event.note)
        or Code.WARNING
    )


def is_contradicted(snapshot: Snapshot, event: KubernetesEvent) -> bool:
    """Return whether the present state shows that the problem of an Event is over."""
    pods = {pod.metadata.name: pod for pod in snapshot.pods}
    named, code = _POD.search(event.note), find_code(event)
    is_pods = event.regarding.kind == "Pod"
    pod = pods.get(event.regarding.name if is_pods else named[1] if named is not None else "")
    if pod is not None and (is_past(pod, code) or _is_never_ready(snapshot, pod, code)):
        return True
    return event.regarding.kind == "RayService" and _is_past_for_serve(snapshot, code)


def _is_past_for_serve(snapshot: Snapshot, code: Code) -> bool:
    """Return whether the cluster that serves next has overcome a Serve problem.

    The pending cluster serves next, or the active one if none is pending.
    """
    cluster = snapshot.find_cluster(snapshot.pending or snapshot.active)
    details = None if cluster is None else snapshot.serve.get(cluster.metadata.name)
    match code:
        case Code.DASHBOARD_UNREACHABLE | Code.DASHBOARD_UNAUTHORIZED:
            return details is not None
        case Code.SERVE_CONFIG_REFUSED if cluster is not None:
            given = observing.find_config(snapshot, cluster)
            return given is not None and given.serve_config == snapshot.service.raw_spec.get(
                "serveConfigV2"
            )
        case Code.APPLICATION_NOT_RUNNING if details is not None:
            states = [application.status for application in details.named().values()]
            return bool(states) and all(state == AppState.RUNNING for state in states)
        case _:
            return False


def _is_never_ready(snapshot: Snapshot, pod: Pod, code: Code) -> bool:
    """Return whether the problem is a readiness probe that can never succeed on this worker.

    Serve runs no proxy on worker nodes unless `proxy_location` is `EveryNode`.
    """
    if code is not Code.UNHEALTHY or pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD:
        return False
    details = snapshot.serve.get(pod.metadata.labels.get(labels.CLUSTER, ""))
    return serve_proxies.reported(details).location is not Location.EVERY_NODE


def is_past(pod: Pod, code: Code) -> bool:
    """Return whether a pod has overcome the problem of `code`."""
    if pod.is_running_and_ready:
        return True
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    match code:
        case Code.INSUFFICIENT_CAPACITY:
            placed = pod.condition("PodScheduled")
            return pod.status.phase == "Running" or (placed is not None and placed.status == "True")
        case Code.IMAGE_PULL_FAILED:
            return bool(statuses) and not any(map(observing.is_failing, statuses))
        case Code.VOLUME_NOT_MOUNTED:
            waiting = (status.state.waiting for status in statuses)
            return any(state is None or state.reason not in _BEFORE_START for state in waiting)
        case _:
            return False


def _select_current(snapshot: Snapshot, *, now: datetime) -> Iterator[KubernetesEvent]:
    """Yield the Warnings about the present state, newest first, without repetitions."""
    stays = {
        pod.metadata.name
        for name in (snapshot.active, snapshot.pending)
        for pod in snapshot.list_pods(name)
    }
    others = {pod.metadata.name for pod in snapshot.pods} - stays
    began = _find_beginning(snapshot)
    seen: set[tuple[str, str, str]] = set()
    for event in reversed(snapshot.events):
        key = (event.regarding.name, event.reason, event.note)
        is_old = (
            event.at is None
            or now - event.at > MAX_EVENT_AGE
            or (began is not None and event.at < began)
        )
        is_elsewhere = event.regarding.kind == "Pod" and event.regarding.name in others
        if (
            event.type != "Warning"
            or is_old
            or is_elsewhere
            or key in seen
            or is_contradicted(snapshot, event)
        ):
            continue
        seen.add(key)
        yield event


def _is_evidence(event: KubernetesEvent, code: Code, cause: BlockingCause) -> bool:
    if cause.is_named_in(event.note):
        return True
    if event.regarding.kind != "Pod":
        named = _POD.search(event.note)
        return (
            cause.code is code
            and code is not Code.WARNING
            and (named is None or named[1] in {cause.pod, ""})
        )
    starts = {Code.IMAGE_PULL_FAILED, Code.PODS_NOT_STARTING, Code.OUT_OF_MEMORY}
    is_alike = cause.code is code or (cause.code in starts and code in starts)
    return cause.pod == event.regarding.name and is_alike


def _format_note(snapshot: Snapshot, event: KubernetesEvent) -> str:
    return cause_texts.summarize_refusal(event.note, snapshot.service.serve_config)


def _find_beginning(snapshot: Snapshot) -> datetime | None:
    """Return when the present state began; None if unknown.

    During an upgrade, this is the creation of the pending cluster, otherwise the end of the last
    upgrade.
    """
    pending = snapshot.find_cluster(snapshot.pending)
    if pending is not None:
        return pending.metadata.creation_timestamp
    upgrading = conditions.find(snapshot.service.status.conditions, "UpgradeInProgress")
    return (
        upgrading.last_transition_time
        if upgrading is not None and upgrading.status == "False"
        else None
    )
