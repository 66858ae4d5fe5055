"""The content of `raybus get NAME`, as data.

A RayService has its clusters and the progress of its upgrade; a RayCluster has its groups. Both
include their pods.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, cast

import msgspec

from common import annotation_record, conditions, labels
from common.api.core import Pod
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import ClusterServiceStatus, RayService
from common.ray import cluster_traits as traits
from common.ray import serve_status
from common.upgrade import policy as upgrade_policy
from common.upgrade.controls import Policy
from common.upgrade.traffic_record import WHOLE
from raybus_cli.planning import steps
from raybus_cli.reading import snapshot as snapshots
from raybus_cli.reading.snapshot import ClusterSnapshot, KubernetesEvent, Snapshot
from raybus_cli.show import gates, phase
from raybus_cli.show.gates import Gates
from raybus_cli.show.phase import ServicePhase


def list_images(config: Json) -> dict[str, str]:
    """Return the image of Ray's container for each group; the key of the head is `head`.

    If several groups have the same name, the first of them is used.
    """
    groups = [(labels.HEAD, _as_object(config.get("headGroupSpec")))]
    groups += [
        (str(group.get("groupName", "")), group)
        for group in _as_objects(config.get("workerGroupSpecs"))
    ]
    images: dict[str, str] = {}
    for name, group in groups:
        images.setdefault(name, _get_image(group))
    return images


def _get_image(group: Json) -> str:
    containers = _as_objects(
        _as_object(_as_object(group.get("template")).get("spec")).get("containers")
    )
    return str(containers[0].get("image", "")) if containers else ""


def _as_object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _as_objects(value: object) -> list[Json]:
    return (
        [_as_object(item) for item in cast("list[object]", value)]
        if isinstance(value, list)
        else []
    )


class PodLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod as a line of a tree."""

    name: str
    group: str
    """`head`, or the name of the worker group."""
    state: str
    restarts: int = 0
    age_seconds: int | None = None


class Branch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayCluster of a RayService. A percentage is None if it is unknown."""

    name: str
    role: str
    """`active`, `pending`, or `leaving` for an old cluster that is kept until no request is in
    flight.
    """
    weight: int | None = None
    target_capacity: int | None = None
    ready_capacity: int | None = None
    """Percentage of Serve replicas that run, multiplied by the target capacity."""
    ready_pods: int = 0
    pods: list[PodLine] = []
    applications: dict[str, str] = {}
    images: dict[str, str] = {}
    """Image of each group."""
    note: str = ""


class UpgradeProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of an upgrade; `step` and `steps` are None if all traffic moves at once."""

    direction: str
    """Direction of the traffic: `forward` or `back`."""
    step: int | None = None
    steps: int | None = None
    next_step_seconds: int | None = None
    """Minimum seconds until the next move of traffic."""
    next_step_at: datetime | None = None
    gates: Gates | None = None
    """The gates of the UpgradePolicy at the present weight."""


class LastEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The newest Event about an object of a tree."""

    about: str
    type: str
    reason: str
    note: str
    age_seconds: int | None = None


class Tree(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayService and what belongs to it."""

    namespace: str
    name: str
    phase: ServicePhase
    reason: str = ""
    message: str = ""
    strategy: str
    endpoints: int
    upgrade: UpgradeProgress | None = None
    clusters: list[Branch] = []
    last_event: LastEvent | None = None
    receipt: str | None = None
    """Receipt (final record) of the last upgrade, as JSON text."""
    unseen: list[str] = []


def build(snapshot: Snapshot, *, now: datetime, is_brief: bool = False) -> Tree:
    """Build the tree of a RayService; if `is_brief`, its Serve config is not parsed."""
    service, current = snapshot.service, phase.derive_phase(snapshot.service, is_brief=is_brief)
    return Tree(
        namespace=service.metadata.namespace,
        name=service.metadata.name,
        phase=current.phase,
        reason=current.reason,
        message=current.message,
        strategy=steps.get_strategy(service),
        endpoints=service.status.num_serve_endpoints,
        upgrade=_build_upgrade(snapshot, now=now),
        clusters=[_build_branch(snapshot, cluster, now=now) for cluster in snapshot.clusters],
        last_event=find_last_event(snapshot.events, now=now),
        receipt=service.metadata.annotations.get(labels.UPGRADE_RECEIPT),
        unseen=list(snapshot.unseen),
    )


def describe_pod_state(pod: Pod) -> str:
    """Return the state of a pod as kubectl shows it; `Ready` for a ready pod."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        state = status.state
        if state.waiting is not None and state.waiting.reason not in {
            "",
            "PodInitializing",
            "ContainerCreating",
        }:
            return state.waiting.reason
    if pod.is_running_and_ready:
        return "Ready"
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Unschedulable"
    return "NotReady" if pod.status.phase == "Running" else pod.status.phase or "Pending"


def find_weight(snapshot: Snapshot, name: str) -> int | None:
    """Return a cluster's share of the traffic in percent; None if it is unknown."""
    status = _find_status(snapshot, name)
    if status is not None and status.traffic_routed_percent is not None:
        return status.traffic_routed_percent
    if steps.build_policy(snapshot.service) is None:
        is_serving = name == snapshot.active and snapshot.service.status.num_serve_endpoints > 0
        return WHOLE if is_serving else 0
    share = snapshot.record.clusters.get(name)
    return share.weight if share is not None else None


def find_role(service: RayService, cluster: str) -> str:
    """Return the role of a cluster: `active`, `pending` or `leaving`."""
    if cluster == service.status.active_service_status.ray_cluster_name:
        return "active"
    return (
        "pending"
        if cluster == service.status.pending_service_status.ray_cluster_name
        else "leaving"
    )


def build_pod_line(pod: Pod, *, now: datetime) -> PodLine:
    """Return the line of a pod in a tree."""
    marks = pod.metadata.labels
    is_head = marks.get(labels.NODE_TYPE) == labels.HEAD
    return PodLine(
        name=pod.metadata.name,
        group=labels.HEAD if is_head else marks.get(labels.GROUP, ""),
        state=describe_pod_state(pod),
        restarts=sum(status.restart_count for status in pod.status.container_statuses),
        age_seconds=count_seconds_since(pod.metadata.creation_timestamp, now),
    )


def find_last_event(events: Sequence[KubernetesEvent], *, now: datetime) -> LastEvent | None:
    """Return the newest of `events`, which are sorted oldest first; None without Events."""
    if not events:
        return None
    event = events[-1]
    return LastEvent(
        about=f"{event.regarding.kind} {event.regarding.name}",
        type=event.type,
        reason=event.reason,
        note=event.note,
        age_seconds=count_seconds_since(event.at, now),
    )


def count_seconds_since(moment: datetime | None, now: datetime) -> int | None:
    """Return the seconds since `moment` as a whole number, at least 0; None if `moment` is None."""
    return None if moment is None else max(0, math.floor((now - moment).total_seconds()))


def _build_upgrade(snapshot: Snapshot, *, now: datetime) -> UpgradeProgress | None:
    if not (snapshot.active and snapshot.pending):
        return None
    is_back = conditions.is_true(snapshot.service.status.conditions, "RollbackInProgress")
    direction = "back" if is_back else "forward"
    policy = steps.build_policy(snapshot.service)
    if policy is None:
        return UpgradeProgress(direction=direction)
    status = snapshot.service.status
    pending, active = status.pending_service_status, status.active_service_status
    moved_so_far = (active if is_back else pending).traffic_routed_percent or 0
    moved = (active if is_back else pending).last_traffic_migrated_time
    weights, interval = _find_steps(snapshot, policy, moved_so_far, is_back=is_back)
    is_held = is_back or conditions.is_true(snapshot.service.status.conditions, "UpgradePaused")
    due = None if is_held or moved is None or moved_so_far >= WHOLE else moved + interval
    return UpgradeProgress(
        direction=direction,
        step=sum(1 for weight in weights if weight <= moved_so_far),
        steps=len(weights),
        next_step_seconds=None if due is None else max(0, math.ceil((due - now).total_seconds())),
        next_step_at=due,
        gates=None if is_back else gates.read_gates(snapshot),
    )


def _find_steps(
    snapshot: Snapshot, options: Policy, weight: int, *, is_back: bool
) -> tuple[tuple[int, ...], timedelta]:
    """Return the weights of an upgrade's steps, and how long the present `weight` is held.

    Both come from the UpgradePolicy. If it has no steps, or if traffic moves back, they come from
    the options of the RayService.
    """
    policy = upgrade_policy.of_upgrade(snapshot.active, snapshot.find_cluster(snapshot.pending))
    if is_back or policy is None or not policy.steps:
        return steps.simulate(options).weights, options.interval
    holds = {step.weight: step.hold for step in policy.steps}
    return tuple(holds), holds.get(weight, timedelta(0))


def _build_branch(snapshot: Snapshot, cluster: RayCluster, *, now: datetime) -> Branch:
    name = cluster.metadata.name
    status = _find_status(snapshot, name)
    pods = snapshot.list_pods(name)
    details = snapshot.serve.get(name)
    share = snapshot.record.clusters.get(name)
    shown = status.applications if status is not None else None
    return Branch(
        name=name,
        role=find_role(snapshot.service, name),
        weight=find_weight(snapshot, name),
        target_capacity=share.capacity
        if share is not None
        else (status.target_capacity if status else None),
        ready_capacity=_compute_ready_capacity(details),
        ready_pods=sum(pod.is_running_and_ready for pod in pods),
        pods=[build_pod_line(pod, now=now) for pod in pods],
        applications={key: application.status for key, application in (shown or {}).items()},
        images=list_images(cluster.raw_spec),
        note=_format_note(cluster, now=now),
    )


def _find_status(snapshot: Snapshot, name: str) -> ClusterServiceStatus | None:
    statuses = (
        snapshot.service.status.active_service_status,
        snapshot.service.status.pending_service_status,
    )
    return next((status for status in statuses if status.ray_cluster_name == name), None)


def _compute_ready_capacity(details: serve_status.ServeDetails | None) -> int | None:
    if details is None or not details.applications:
        return None
    return round(serve_status.running_percent(details) * serve_status.capacity(details) / WHOLE)


def _format_note(cluster: RayCluster, *, now: datetime) -> str:
    if cluster.metadata.deletion_timestamp is not None:
        return "is being deleted"
    due = annotation_record.moment(cluster.metadata.annotations.get(labels.DELETE_AFTER))
    if due is None:
        return ""
    left = math.ceil((due - now).total_seconds())
    return f"is deleted in {left} s" if left > 0 else "is deleted when no request is in flight"


DELETING: Final = "deleting"
_WANTED: Final = (
    ("ReplicaFailure", False),
    ("HeadPodReady", True),
    ("RayClusterProvisioned", True),
)
"""Conditions and their healthy values, most important first. The first condition with another value
provides the message.
"""


class GroupBranch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods of a group; `desired` is None if the group is not in the spec."""

    name: str
    image: str = ""
    desired: int | None = None
    ready: int = 0
    pods: list[PodLine] = []


class ClusterTree(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayCluster and what belongs to it."""

    namespace: str
    name: str
    status: str
    message: str = ""
    service: str = ""
    """The RayService that the cluster belongs to."""
    role: str = ""
    """Role of the cluster in its RayService; empty if the RayService cannot be read."""
    ray_version: str = ""
    age_seconds: int | None = None
    groups: list[GroupBranch] = []
    last_event: LastEvent | None = None
    unseen: list[str] = []


def build_cluster(snapshot: ClusterSnapshot, *, now: datetime) -> ClusterTree:
    """Build the tree of a RayCluster."""
    cluster = snapshot.cluster
    meta, service = cluster.metadata, snapshot.service
    return ClusterTree(
        namespace=meta.namespace,
        name=meta.name,
        status=DELETING if meta.deletion_timestamp is not None else cluster.status.state,
        message=_find_message(cluster),
        service=snapshots.find_origin(cluster),
        role=find_role(service, meta.name) if service is not None else "",
        ray_version=str(cluster.raw_spec.get("rayVersion", "")),
        age_seconds=count_seconds_since(meta.creation_timestamp, now),
        groups=_build_groups(snapshot, now=now),
        last_event=find_last_event(snapshot.events, now=now),
        unseen=list(snapshot.unseen),
    )


def _find_message(cluster: RayCluster) -> str:
    if cluster.status.reason:
        return cluster.status.reason
    for kind, wanted in _WANTED:
        condition = conditions.find(cluster.status.conditions, kind)
        if (
            condition is not None
            and condition.message
            and (condition.status == "True") is not wanted
        ):
            return condition.message
    return ""


def _build_groups(snapshot: ClusterSnapshot, *, now: datetime) -> list[GroupBranch]:
    workers = {
        group.group_name: traits.target(group) for group in traits.named_groups(snapshot.cluster)
    }
    desired = {labels.HEAD: 1, **workers}
    if snapshot.cluster.spec.suspend:
        desired = dict.fromkeys(desired, 0)
    used = list_images(snapshot.cluster.raw_spec)
    pods = [build_pod_line(pod, now=now) for pod in snapshot.pods]
    ready = {pod.metadata.name for pod in snapshot.pods if pod.is_running_and_ready}
    return [
        GroupBranch(
            name=name,
            image=used.get(name, ""),
            desired=desired.get(name),
            ready=sum(pod.group == name and pod.name in ready for pod in pods),
            pods=[pod for pod in pods if pod.group == name],
        )
        for name in dict.fromkeys([*desired, *(pod.group for pod in pods)])
    ]
