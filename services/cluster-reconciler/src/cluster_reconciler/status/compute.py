"""Computes the status of a RayCluster, and decides whether it is written.

The order is that of spec raycluster §13.1; writing follows §14 (acceptance cases 52, 73-78,
111-114).

ReplicaFailure is True or absent, never False. RayClusterProvisioned stays True once it was True,
except through a suspension; it depends on the existing pods, not on their wanted number. The states
of a suspension are: none (both conditions False), Suspending, Suspended, none; the two conditions
are never both True. To leave Suspended the spec must contain `suspend: false`; removing the field
is not enough (§13.4, §13.5).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.reasons import ConditionReason, ConditionType, Failure, State
from common import conditions
from common.api.core import Pod
from common.api.meta import Condition, whole_seconds
from common.api.ray_cluster import HeadInfo, RayCluster, RayClusterStatus
from common.conditions import ConditionUpdate
from common.feature_gates import Gate
from common.ray import cluster_traits as traits
from common.ray import desired_resources

_AMOUNTS: Final = ("desired_cpu", "desired_memory", "desired_gpu", "desired_tpu")
_IGNORED: Final = ("last_update_time", "observed_generation", "state_transition_times", *_AMOUNTS)
"""Fields that do not cause a write on their own, as in KubeRay."""
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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a plan, as far as the status reports it."""

    failure: Failure | None = None
    """The first failure; failures of pods take precedence."""
    is_clean: bool = True
    """Whether nothing failed and nothing remains to be done."""


def compute(observed: Observed, outcome: Outcome) -> RayClusterStatus:
    """Return the status; the caller has checked `head_violation`.

    The counters count pods, although their names say replicas.
    """
    cluster, old, now = observed.cluster, observed.cluster.status, observed.now
    has_conditions = Gate.STATUS_CONDITIONS in observed.config.gates
    if not observed.is_valid or (outcome.failure is not None and outcome.failure.is_of_name):
        return _of_invalid(observed, outcome)
    desired = desired_workers(cluster)
    most = sum(
        traits.limits(group)[1] * traits.hosts(group) for group in traits.active_groups(cluster)
    )
    pods = observed.present
    is_ready = outcome.is_clean and len(pods) == desired + 1 and all_running(pods)
    state = State.READY.value if is_ready else old.state
    if cluster.intent.suspend and not observed.pods:
        state = State.SUSPENDED.value
    return RayClusterStatus(
        state=state,
        reason="" if is_ready else old.reason,
        **desired_resources.for_status(cluster),
        last_update_time=whole_seconds(now),
        state_transition_times=_transitions(observed, state),
        endpoints=_endpoints(observed),
        head=head_info(observed),
        conditions=list(_conditions(observed, outcome) if has_conditions else old.conditions),
        **_counts(observed),
        desired_worker_replicas=desired,
        min_worker_replicas=least_workers(cluster),
        max_worker_replicas=min(most, traits.UNBOUNDED),
        observed_generation=cluster.metadata.generation,
    )


def _of_invalid(observed: Observed, outcome: Outcome) -> RayClusterStatus:
    """Return the status of a cluster with an invalid name or spec: only its suspension proceeds."""
    old, known = observed.cluster.status, observed.cluster.status.conditions
    if outcome.failure is not None:
        known = conditions.updated(known, outcome.failure.update, now=observed.now)
    state, updated_at, counts = old.state, old.last_update_time, dict[str, int]()
    if observed.is_to_be_suspended:
        known = suspended(
            conditions.updated(known, head_ready(observed), now=observed.now), observed
        )
        state = old.state if observed.pods else State.SUSPENDED.value
        counts, updated_at = _counts(observed), whole_seconds(observed.now)
    return msgspec.structs.replace(
        old,
        state=state,
        last_update_time=updated_at,
        state_transition_times=_transitions(observed, state),
        conditions=list(known)
        if Gate.STATUS_CONDITIONS in observed.config.gates
        else old.conditions,
        **counts,
    )


def _transitions(observed: Observed, state: str) -> dict[str, datetime] | None:
    """Return when each state last began."""
    old = observed.cluster.status
    if state == old.state:
        return old.state_transition_times
    return {**(old.state_transition_times or {}), state: whole_seconds(observed.now)}


def _counts(observed: Observed) -> dict[str, int]:
    """Return the counters that do not need the spec; pods that are being deleted do not count."""
    workers = [pod for pod in observed.workers if not is_terminating(pod)]
    return {
        "ready_worker_replicas": sum(pod.is_running_and_ready for pod in workers),
        "available_worker_replicas": sum(pod.status.phase == "Running" for pod in workers),
    }


def desired_workers(cluster: RayCluster) -> int:
    """Return the wanted number of worker pods."""
    return sum(map(traits.target, traits.worker_groups(cluster)))


def least_workers(cluster: RayCluster) -> int:
    """Return the number of worker pods after the autoscaler has scaled down as far as it may."""
    return sum(
        traits.limits(group)[0] * traits.hosts(group) for group in traits.active_groups(cluster)
    )


def _conditions(observed: Observed, outcome: Outcome) -> Sequence[Condition]:
    known: Sequence[Condition] = observed.cluster.status.conditions
    updates, now = [head_ready(observed)], observed.now
    if outcome.failure is not None:
        updates.insert(0, outcome.failure.update)
    elif outcome.is_clean:
        known = conditions.without(known, ConditionType.REPLICA_FAILURE)
    is_suspended = suspension(known) is ConditionType.SUSPENDED
    if not is_suspended and not observed.holds(ConditionType.PROVISIONED):
        updates.append(provisioned(observed))
    known = suspended(conditions.updated(known, *updates, now=now), observed)
    return conditions.without(known, _RETIRED)


def head_ready(observed: Observed) -> ConditionUpdate:
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


def provisioned(observed: Observed) -> ConditionUpdate:
    """Return condition RayClusterProvisioned: whether there is a head and all pods run.

    It is not updated once it was True or while the cluster is suspended.
    """
    text, kind = "All Ray Pods are ready for the first time", ConditionType.PROVISIONED
    if observed.heads and all_running(observed.present):
        return ConditionUpdate(kind, "True", ConditionReason.ALL_PODS_READY, text)
    text = "RayCluster Pods are being provisioned for first time"
    return ConditionUpdate(kind, "False", ConditionReason.PODS_PROVISIONING, text)


def all_running(pods: Sequence[Pod]) -> bool:
    """Return whether there are pods and all run; a Ready condition, if present, must be True."""
    return bool(pods) and all(
        pod.status.phase == "Running"
        and ((ready := pod.condition("Ready")) is None or ready.status == "True")
        for pod in pods
    )


def suspension(known: Sequence[Condition]) -> ConditionType | None:
    """Return which of the two conditions of suspension is True; None if neither is."""
    kinds = (ConditionType.SUSPENDING, ConditionType.SUSPENDED)
    return next((kind for kind in kinds if conditions.is_true(known, kind)), None)


def suspended(known: Sequence[Condition], observed: Observed) -> Sequence[Condition]:
    """Return the conditions after the next transition of the suspension."""
    state, suspend, states = (
        suspension(known),
        observed.cluster.intent.suspend,
        dict[ConditionType, str](),
    )
    if state is ConditionType.SUSPENDING and not observed.pods:
        known = conditions.updated(known, _NOT_PROVISIONED, now=observed.now)
        states = {ConditionType.SUSPENDING: "False", ConditionType.SUSPENDED: "True"}
    elif state is ConditionType.SUSPENDED and suspend is False:
        states = {ConditionType.SUSPENDED: "False"}
    elif state is None:
        states = {
            ConditionType.SUSPENDED: "False",
            ConditionType.SUSPENDING: "True" if suspend is True else "False",
        }
    return conditions.updated(
        known,
        *(ConditionUpdate(kind, is_so, kind) for kind, is_so in states.items()),
        now=observed.now,
    )


def head_violation(observed: Observed, outcome: Outcome) -> str | None:
    """Return why no status can be written, because the head's addresses are unknown; else None.

    If an action failed, the head Service may be missing for that reason, so the status is written
    and reports the failure.
    """
    cluster = observed.cluster.metadata
    if outcome.failure is not None and outcome.failure.is_of_name:
        return None
    if not observed.is_valid or observed.is_to_be_suspended:
        return None
    if len(observed.heads) > 1:
        found = " ".join(pod.metadata.name for pod in observed.heads)
        return f"found multiple heads. cluster name {cluster.name}, pods [{found}]"
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
            found = " ".join(service.metadata.name for service in services)
            return f"found multiple head services. cluster name {cluster.name}, services [{found}]"


def head_info(observed: Observed) -> HeadInfo:
    """Return names and addresses of head pod and head Service (spec raycluster §13.6).

    The caller has checked `head_violation`.
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


def _endpoints(observed: Observed) -> dict[str, str] | None:
    """Return the port numbers of the head Service by port name: node port, else target port.

    Entries are added or overwritten, never removed (§13.7).
    """
    known = observed.cluster.status.endpoints
    if len(observed.head_services) != 1:
        return known
    ports = observed.head_services[0].spec.ports
    numbers = {port.name: port.node_port or port.target_port for port in ports if port.name}
    return {**(known or {}), **{name: str(number) for name, number in numbers.items() if number}}


def has_changed(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    """Return whether two statuses differ in a field that causes a write."""
    return _unset(old, _IGNORED) != _unset(new, _IGNORED)


def _unset(
    status: RayClusterStatus, fields: Sequence[str], *kinds: ConditionType
) -> RayClusterStatus:
    unset = {each: getattr(RayClusterStatus(), each) for each in fields}
    return msgspec.structs.replace(
        status, conditions=conditions.without(status.conditions, *kinds), **unset
    )


def is_mere_progress(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    """Return whether the only change since the last write is that more pods became ready.

    False once all wanted pods are ready. The first status of a cluster counts as progress too:
    where hundreds of clusters start at once, their first pods come before that status.
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
    return grew and _unset(old, _IGNORED + _PROGRESS, *kinds) == _unset(
        new, _IGNORED + _PROGRESS, *kinds
    )
