"""What `raybus get rayservice` shows, as data: the service, its clusters with their pods, and how far an upgrade is."""

import math
from datetime import datetime

import msgspec

from common import annotation_record, labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.api.ray_service import ClusterServiceStatus
from common.ray import serve_status
from common.traffic_record import WHOLE
from raybus_cli.planning import steps
from raybus_cli.reading import strategy
from raybus_cli.reading.look import Event, Look
from raybus_cli.show import phase
from raybus_cli.show.phase import Phase
from service_reconciler.resources.ray_cluster import DELETE_AFTER


class PodLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod."""

    name: str
    group: str
    """`head`, or the name of the worker group."""
    state: str
    restarts: int = 0
    age_seconds: int | None = None


class Branch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster; percentages are None where nobody tells them."""

    name: str
    role: str
    """`active`, `pending`, `leaving`: kept until its requests are done."""
    weight: int | None = None
    target_capacity: int | None = None
    ready_capacity: int | None = None
    """As much of all replicas as runs."""
    ready_pods: int = 0
    pods: list[PodLine] = []
    applications: dict[str, str] = {}
    note: str = ""


class Upgrade(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far an upgrade is; `step` and `steps` are None where the traffic moves at once."""

    direction: str
    """`forward` or `back`."""
    step: int | None = None
    steps: int | None = None
    next_step_seconds: int | None = None
    """Until the next move of traffic at the earliest."""


class Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last Event."""

    about: str
    type: str
    reason: str
    note: str
    age_seconds: int | None = None


class Tree(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayService and what belongs to it."""

    namespace: str
    name: str
    phase: Phase
    reason: str = ""
    message: str = ""
    strategy: str
    endpoints: int
    upgrade: Upgrade | None = None
    clusters: list[Branch] = []
    last_event: Told | None = None
    receipt: str | None = None
    """What the last upgrade came to, as JSON text."""
    unseen: list[str] = []


def build(look: Look, *, now: datetime) -> Tree:
    """Return what is shown of a look."""
    service, doing = look.service, phase.of(look.service)
    return Tree(
        namespace=service.metadata.namespace,
        name=service.metadata.name,
        phase=doing.phase,
        reason=doing.reason,
        message=doing.message,
        strategy=strategy.kind(service),
        endpoints=service.status.num_serve_endpoints,
        upgrade=_upgrade(look, now=now),
        clusters=[_branch(look, each, now=now) for each in look.clusters],
        last_event=_told(look.events[-1], now=now) if look.events else None,
        receipt=service.metadata.annotations.get(labels.UPGRADE_RECEIPT),
        unseen=list(look.unseen),
    )


def pod_state(pod: Pod) -> str:
    """Return one word for how a pod is doing, as kubectl does."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        state = status.state
        if state.waiting is not None and state.waiting.reason not in {"", "PodInitializing", "ContainerCreating"}:
            return state.waiting.reason
    if pod.is_running_and_ready:
        return "Ready"
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Unschedulable"
    return "NotReady" if pod.status.phase == "Running" else pod.status.phase or "Pending"


def weight(look: Look, name: str) -> int | None:
    """Return a cluster's share of the traffic; None where nobody tells."""
    status = _status_of(look, name)
    if status is not None and status.traffic_routed_percent is not None:
        return status.traffic_routed_percent
    if strategy.policy(look.service) is None:
        is_serving = name == look.active and look.service.status.num_serve_endpoints > 0
        return WHOLE if is_serving else 0
    share = look.record.clusters.get(name)
    return share.weight if share is not None else None


def seconds_since(moment: datetime | None, now: datetime) -> int | None:
    """Return an age in whole seconds."""
    return None if moment is None else max(0, math.floor((now - moment).total_seconds()))


def _upgrade(look: Look, *, now: datetime) -> Upgrade | None:
    if not (look.active and look.pending):
        return None
    is_back = phase.is_true(look.service, "RollbackInProgress")
    direction = "back" if is_back else "forward"
    policy = strategy.policy(look.service)
    if policy is None:
        return Upgrade(direction=direction)
    status = look.service.status
    pending, active = status.pending_service_status, status.active_service_status
    weights = steps.tell(policy).weights
    moved_so_far = (active if is_back else pending).traffic_routed_percent or 0
    moved = (active if is_back else pending).last_traffic_migrated_time
    due = (
        None
        if moved is None or moved_so_far >= WHOLE
        else max(0, math.ceil((moved + policy.interval - now).total_seconds()))
    )
    is_held = is_back or phase.is_true(look.service, "UpgradePaused")
    return Upgrade(
        direction=direction,
        step=sum(1 for each in weights if each <= moved_so_far),
        steps=len(weights),
        next_step_seconds=None if is_held else due,
    )


def _branch(look: Look, cluster: RayCluster, *, now: datetime) -> Branch:
    name = cluster.metadata.name
    status = _status_of(look, name)
    pods = look.pods_of(name)
    details = look.serve.get(name)
    share = look.record.clusters.get(name)
    shown = status.applications if status is not None else None
    return Branch(
        name=name,
        role=_role(look, cluster),
        weight=weight(look, name),
        target_capacity=share.capacity if share is not None else (status.target_capacity if status else None),
        ready_capacity=_ready_capacity(details),
        ready_pods=sum(pod.is_running_and_ready for pod in pods),
        pods=[_pod(pod, now=now) for pod in pods],
        applications={key: each.status for key, each in (shown or {}).items()},
        note=_note(cluster, now=now),
    )


def _status_of(look: Look, name: str) -> ClusterServiceStatus | None:
    held = (look.service.status.active_service_status, look.service.status.pending_service_status)
    return next((each for each in held if each.ray_cluster_name == name), None)


def _role(look: Look, cluster: RayCluster) -> str:
    if cluster.metadata.name == look.active:
        return "active"
    return "pending" if cluster.metadata.name == look.pending else "leaving"


def _ready_capacity(details: serve_status.ServeDetails | None) -> int | None:
    if details is None or not details.applications:
        return None
    return round(serve_status.running_percent(details) * serve_status.capacity(details) / WHOLE)


def _pod(pod: Pod, *, now: datetime) -> PodLine:
    marks = pod.metadata.labels
    is_head = marks.get(labels.NODE_TYPE) == labels.HEAD
    return PodLine(
        name=pod.metadata.name,
        group=labels.HEAD if is_head else marks.get(labels.GROUP, ""),
        state=pod_state(pod),
        restarts=sum(each.restart_count for each in pod.status.container_statuses),
        age_seconds=seconds_since(pod.metadata.creation_timestamp, now),
    )


def _note(cluster: RayCluster, *, now: datetime) -> str:
    if cluster.metadata.deletion_timestamp is not None:
        return "is being deleted"
    due = annotation_record.moment(cluster.metadata.annotations.get(DELETE_AFTER))
    if due is None:
        return ""
    left = math.ceil((due - now).total_seconds())
    return f"goes in {left} s" if left > 0 else "goes when its requests are done"


def _told(event: Event, *, now: datetime) -> Told:
    return Told(
        about=f"{event.regarding.kind} {event.regarding.name}",
        type=event.type,
        reason=event.reason,
        note=event.note,
        age_seconds=seconds_since(event.at, now),
    )
