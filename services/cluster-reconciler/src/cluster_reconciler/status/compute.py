"""Compute the status of a RayCluster, and decide whether to write it.

The order is that of spec raycluster §13.1; writing follows §14 (acceptance cases 52, 73-78,
111-114).

ReplicaFailure is True or absent, never False. RayClusterProvisioned stays True once it was True,
except through a suspension; it depends on the existing pods, not on the desired number of pods. A
suspension first sets the condition Suspending to True, then Suspended instead; the two are never
both True. The cluster resumes only if the spec contains `suspend: false`; it is not enough to
remove the field (§13.4, §13.5).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.reasons import ConditionReason, ConditionType, Failure, RayClusterState
from common import conditions
from common.api.core import Pod
from common.api.meta import Condition, whole_seconds
from common.api.ray_cluster import HeadInfo, RayClusterStatus
from common.conditions import ConditionUpdate
from common.feature_gates import FeatureGate
from common.ray import cluster_traits as traits
from common.ray import desired_resources

_AMOUNTS: Final = ("desired_cpu", "desired_memory", "desired_gpu", "desired_tpu")
_IGNORED: Final = ("last_update_time", "observed_generation", "state_transition_times", *_AMOUNTS)
"""Fields whose change alone does not cause a write of the status, as in KubeRay."""
_PROGRESS: Final = ("ready_worker_replicas", "available_worker_replicas", "head", "endpoints")
_REPORTED_AT_ONCE: Final = (
    ConditionType.REPLICA_FAILURE,
    ConditionType.SUSPENDING,
    ConditionType.SUSPENDED,
)
_RETIRED: Final = "UnsupportedFeatures"
"""A condition type that earlier versions of raybus wrote; it is removed from the status."""
_CONTAINERS_NOT_READY: Final = "ContainersNotReady"
_NOT_PROVISIONED: Final = ConditionUpdate(
    ConditionType.PROVISIONED,
    "False",
    ConditionReason.PODS_PROVISIONING,
    "RayCluster has been suspended",
)


class ExecutionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an executed plan, as far as the status reports it."""

    failure: Failure | None = None
    """The first failed action; failures of pods take precedence."""
    is_clean: bool = True
    """Whether no action failed and nothing remains to be done."""


def compute(observed: Observed, outcome: ExecutionOutcome) -> RayClusterStatus:
    """Return the new status. The caller has checked that `find_head_violation` returns None.

    The counters count pods, although their names say replicas.
    """
    cluster, old, now = observed.cluster, observed.cluster.status, observed.now
    has_conditions = FeatureGate.STATUS_CONDITIONS in observed.config.gates
    if not observed.is_valid or (outcome.failure is not None and outcome.failure.is_of_name):
        return _compute_invalid(observed, outcome)
    desired = traits.desired_workers(cluster)
    max_workers = sum(
        traits.limits(group)[1] * traits.hosts(group) for group in traits.active_groups(cluster)
    )
    pods = observed.present
    is_ready = outcome.is_clean and len(pods) == desired + 1 and are_all_running(pods)
    state = RayClusterState.READY.value if is_ready else old.state
    if cluster.intent.suspend and not observed.pods:
        state = RayClusterState.SUSPENDED.value
    return RayClusterStatus(
        state=state,
        reason="" if is_ready else old.reason,
        **desired_resources.for_status(cluster),
        last_update_time=whole_seconds(now),
        state_transition_times=_update_transitions(observed, state),
        endpoints=_list_endpoints(observed),
        head=get_head_info(observed),
        conditions=list(
            _compute_conditions(observed, outcome) if has_conditions else old.conditions
        ),
        **_count_pods(observed),
        desired_worker_replicas=desired,
        min_worker_replicas=traits.least_workers(cluster),
        max_worker_replicas=min(max_workers, traits.UNBOUNDED),
        observed_generation=cluster.metadata.generation,
    )


def _compute_invalid(observed: Observed, outcome: ExecutionOutcome) -> RayClusterStatus:
    """Return the status of a cluster with an invalid name or spec, which may only be suspended."""
    old, current = observed.cluster.status, observed.cluster.status.conditions
    if outcome.failure is not None:
        current = conditions.updated(current, outcome.failure.update, now=observed.now)
    state, updated_at, counts = old.state, old.last_update_time, dict[str, int]()
    if observed.is_to_be_suspended:
        current = update_suspension(
            conditions.updated(current, compute_head_ready(observed), now=observed.now), observed
        )
        state = old.state if observed.pods else RayClusterState.SUSPENDED.value
        counts, updated_at = _count_pods(observed), whole_seconds(observed.now)
    return msgspec.structs.replace(
        old,
        state=state,
        last_update_time=updated_at,
        state_transition_times=_update_transitions(observed, state),
        conditions=list(current)
        if FeatureGate.STATUS_CONDITIONS in observed.config.gates
        else old.conditions,
        **counts,
    )


def _update_transitions(observed: Observed, state: str) -> dict[str, datetime] | None:
    """Return the times at which each state last began; `state` is the new state."""
    old = observed.cluster.status
    if state == old.state:
        return old.state_transition_times
    return {**(old.state_transition_times or {}), state: whole_seconds(observed.now)}


def _count_pods(observed: Observed) -> dict[str, int]:
    """Return the counters that do not need the spec; pods that are being deleted do not count."""
    workers = [pod for pod in observed.workers if not is_terminating(pod)]
    return {
        "ready_worker_replicas": sum(pod.is_running_and_ready for pod in workers),
        "available_worker_replicas": sum(pod.status.phase == "Running" for pod in workers),
    }


def _compute_conditions(observed: Observed, outcome: ExecutionOutcome) -> Sequence[Condition]:
    current: Sequence[Condition] = observed.cluster.status.conditions
    updates, now = [compute_head_ready(observed)], observed.now
    if outcome.failure is not None:
        updates.insert(0, outcome.failure.update)
    elif outcome.is_clean:
        current = conditions.without(current, ConditionType.REPLICA_FAILURE)
    is_suspended = find_suspension(current) is ConditionType.SUSPENDED
    if not is_suspended and not observed.holds(ConditionType.PROVISIONED):
        updates.append(compute_provisioned(observed))
    current = update_suspension(conditions.updated(current, *updates, now=now), observed)
    return conditions.without(current, _RETIRED)


def compute_head_ready(observed: Observed) -> ConditionUpdate:
    """Return condition HeadPodReady. The caller has checked that there is at most one head."""
    kind = ConditionType.HEAD_POD_READY
    if not observed.heads:
        return ConditionUpdate(
            kind, "False", ConditionReason.HEAD_POD_NOT_FOUND, "Head Pod not found"
        )
    head = observed.heads[0]
    ready = head.condition("Ready")
    if ready is None:
        return ConditionUpdate(kind, "False", ConditionReason.UNKNOWN)
    if ready.reason != _CONTAINERS_NOT_READY:
        fallback = (
            ConditionReason.HEAD_POD_RUNNING_AND_READY
            if ready.status == "True"
            else ConditionReason.UNKNOWN
        )
        return ConditionUpdate(kind, ready.status, ready.reason or fallback, ready.message)
    for container in head.status.container_statuses:
        # The first container that waits or has ended: its reason is more precise than the pod's.
        if (trouble := container.state.waiting or container.state.terminated) is not None:
            text = f"{container.name}: {trouble.message}"
            message = f"{ready.message}; {text}" if ready.message else text
            return ConditionUpdate(
                kind, ready.status, trouble.reason or _CONTAINERS_NOT_READY, message
            )
    return ConditionUpdate(kind, ready.status, ready.reason, ready.message)


def compute_provisioned(observed: Observed) -> ConditionUpdate:
    """Return condition RayClusterProvisioned: True if there is a head and all pods run.

    The caller keeps the condition once it has been True, and while the cluster is suspended.
    """
    text, kind = "All Ray Pods are ready for the first time", ConditionType.PROVISIONED
    if observed.heads and are_all_running(observed.present):
        return ConditionUpdate(kind, "True", ConditionReason.ALL_PODS_READY, text)
    text = "RayCluster Pods are being provisioned for first time"
    return ConditionUpdate(kind, "False", ConditionReason.PODS_PROVISIONING, text)


def are_all_running(pods: Sequence[Pod]) -> bool:
    """Return whether there are pods and all run; a Ready condition, if present, must be True."""
    return bool(pods) and all(
        pod.status.phase == "Running"
        and ((ready := pod.condition("Ready")) is None or ready.status == "True")
        for pod in pods
    )


def find_suspension(current: Sequence[Condition]) -> ConditionType | None:
    """Return which of the two conditions of suspension is True; None if neither is True."""
    kinds = (ConditionType.SUSPENDING, ConditionType.SUSPENDED)
    return next((kind for kind in kinds if conditions.is_true(current, kind)), None)


def update_suspension(current: Sequence[Condition], observed: Observed) -> Sequence[Condition]:
    """Return the conditions after the next transition of the suspension."""
    state, suspend, states = (
        find_suspension(current),
        observed.cluster.intent.suspend,
        dict[ConditionType, str](),
    )
    if state is ConditionType.SUSPENDING and not observed.pods:
        current = conditions.updated(current, _NOT_PROVISIONED, now=observed.now)
        states = {ConditionType.SUSPENDING: "False", ConditionType.SUSPENDED: "True"}
    elif state is ConditionType.SUSPENDED and suspend is False:
        states = {ConditionType.SUSPENDED: "False"}
    elif state is None:
        states = {
            ConditionType.SUSPENDED: "False",
            ConditionType.SUSPENDING: "True" if suspend is True else "False",
        }
    return conditions.updated(
        current,
        *(ConditionUpdate(kind, is_so, kind) for kind, is_so in states.items()),
        now=observed.now,
    )


def find_head_violation(observed: Observed, outcome: ExecutionOutcome) -> str | None:
    """Return why the head's addresses are unknown and no status can be written; None if one can.

    The head Service may be missing because an action failed. The status is then written
    nevertheless, and reports the failure.
    """
    cluster = observed.cluster.metadata
    if outcome.failure is not None and outcome.failure.is_of_name:
        return None
    if not observed.is_valid or observed.is_to_be_suspended:
        return None
    if len(observed.heads) > 1:
        names = " ".join(pod.metadata.name for pod in observed.heads)
        return f"found multiple heads. cluster name {cluster.name}, pods [{names}]"
    match observed.head_services:
        case ():
            return (
                None
                if outcome.failure is not None
                else f"unable to find head service. cluster name {cluster.name}"
            )
        case (service,):
            return (
                None
                if service.spec.cluster_ip
                else f"head service IP is empty. cluster name {cluster.name}"
            )
        case services:
            names = " ".join(service.metadata.name for service in services)
            return f"found multiple head services. cluster name {cluster.name}, services [{names}]"


def get_head_info(observed: Observed) -> HeadInfo:
    """Return names and addresses of head pod and head Service (spec raycluster §13.6).

    The caller has checked that `find_head_violation` returns None.
    """
    head = observed.heads[0] if observed.heads else None
    pod_ip, pod_name = (head.status.pod_ip, head.metadata.name) if head else ("", "")
    # The Service is missing or ambiguous: its fields stay as they were.
    if len(observed.head_services) != 1:
        return msgspec.structs.replace(
            observed.cluster.status.head, pod_ip=pod_ip, pod_name=pod_name
        )
    service = observed.head_services[0]
    service_ip = pod_ip if service.spec.cluster_ip == "None" else service.spec.cluster_ip
    return HeadInfo(
        pod_ip=pod_ip, pod_name=pod_name, service_ip=service_ip, service_name=service.metadata.name
    )


def _list_endpoints(observed: Observed) -> dict[str, str] | None:
    """Return `status.endpoints`: for each named port of the head Service, its node or target port.

    Ports are added or overwritten, never removed (spec raycluster §13.7).
    """
    endpoints = observed.cluster.status.endpoints
    if len(observed.head_services) != 1:
        return endpoints
    ports = observed.head_services[0].spec.ports
    numbers = {port.name: port.node_port or port.target_port for port in ports if port.name}
    return {
        **(endpoints or {}),
        **{name: str(number) for name, number in numbers.items() if number},
    }


def has_changed(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    """Return whether two statuses differ in a field whose change causes a write."""
    return _clear(old, _IGNORED) != _clear(new, _IGNORED)


def _clear(
    status: RayClusterStatus, fields: Sequence[str], *kinds: ConditionType
) -> RayClusterStatus:
    unset = {field: getattr(RayClusterStatus(), field) for field in fields}
    return msgspec.structs.replace(
        status, conditions=conditions.without(status.conditions, *kinds), **unset
    )


def is_mere_progress(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    """Return whether the only change since the last write is that more pods became ready.

    False once all desired pods are ready. The first status of a cluster counts as progress too, so
    that hundreds of clusters that start at once get their first pods before their first status.
    """
    if new.ready_worker_replicas >= new.desired_worker_replicas:
        return False
    if old.last_update_time is None:
        return not any(conditions.is_true(new.conditions, kind) for kind in _REPORTED_AT_ONCE)
    grew = (
        new.ready_worker_replicas >= old.ready_worker_replicas
        and new.available_worker_replicas >= old.available_worker_replicas
    )
    kinds = (
        (ConditionType.HEAD_POD_READY,)
        if conditions.is_true(new.conditions, ConditionType.HEAD_POD_READY)
        else ()
    )
    return grew and _clear(old, _IGNORED + _PROGRESS, *kinds) == _clear(
        new, _IGNORED + _PROGRESS, *kinds
    )
