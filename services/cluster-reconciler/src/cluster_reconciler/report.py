"""Plans the status of a RayCluster after a plan was executed (spec raycluster §6 steps 15-16, §14).

Pods that start together get ready one after the other within moments. Their progress is gathered for a moment, so that the status of
a cluster is not written for each of them; what is complete, or got worse, is written at once.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from cluster_reconciler import observe
from cluster_reconciler.actions import ClusterPlan, is_of_pod, step
from cluster_reconciler.observe import Ports
from cluster_reconciler.reasons import ConditionType
from cluster_reconciler.status import compute
from cluster_reconciler.status.compute import Outcome
from cluster_reconciler.status.conditions import Failure, suspension
from common import conditions
from common.api.ray_cluster import RayCluster, RayClusterStatus
from common.feature_gates import Gate
from common.runtime.actions import Action, Create, Delete, Refuse, Replace, UpdateStatus
from common.runtime.executor import Executed
from common.validation import ray_cluster as cluster_rules

GATHERED_FOR: Final = timedelta(seconds=0.25)


def plan(cluster: RayCluster, outcome: Outcome, io: Ports, *, now: datetime) -> ClusterPlan:
    """Return the write of the status if it differs, and when to reconcile again: at once after suspension has moved on."""
    has_conditions = io.config.has(Gate.STATUS_CONDITIONS)
    if outcome.failure is not None and outcome.failure.is_of_name:
        return _refused(cluster, outcome.failure, now=now) if has_conditions else ClusterPlan()
    old = cluster.status
    observed = observe.from_state(cluster, io)
    violation = compute.head_violation(observed, has_failed=outcome.failure is not None)
    if violation is not None:
        return ClusterPlan(fault=violation)
    outcome = msgspec.structs.replace(outcome, unsupported=cluster_rules.unsupported(cluster, io.config.gates))
    status = compute.compute(observed, outcome, now=now, has_conditions=has_conditions)
    memory = observe.memory_of(cluster, io)
    gathered_since, memory.progress_since = memory.progress_since, None
    if not compute.has_changed(old, status):
        return ClusterPlan()
    if compute.is_mere_progress(old, status):
        memory.progress_since = min(gathered_since or now, now)
        if now < memory.progress_since + GATHERED_FOR:
            return ClusterPlan(requeue_at=memory.progress_since + GATHERED_FOR)
        memory.progress_since = None
    is_same = suspension(old.conditions) is suspension(status.conditions)
    return ClusterPlan(actions=step(UpdateStatus(status=status)), requeue_at=None if is_same else now)


def _refused(cluster: RayCluster, failure: Failure, *, now: datetime) -> ClusterPlan:
    """Return the condition ReplicaFailure of a cluster with a name that breaks a rule, if its status does not have it yet."""
    known = conditions.updated(cluster.status.conditions, failure.update, now=now)
    status = msgspec.structs.replace(cluster.status, conditions=known)
    return ClusterPlan(actions=step(UpdateStatus(status=status)) if compute.has_changed(cluster.status, status) else ())


def makes_provisioned(cluster: RayCluster, status: ClusterPlan) -> bool:
    """Return whether a status that is written makes a cluster provisioned."""
    written = [each.status for each in status.flat if isinstance(each, UpdateStatus)]
    return any(map(_is_provisioned, written)) and not _is_provisioned(cluster.status)


def _is_provisioned(status: msgspec.Struct) -> bool:
    return isinstance(status, RayClusterStatus) and conditions.is_true(status.conditions, ConditionType.PROVISIONED)


def outcome(plan: ClusterPlan, executed: Executed) -> Outcome:
    """Return what the status reports of how a plan went."""
    if plan.refusal is not None:
        return Outcome(failure=plan.refusal, is_clean=False)
    failures = [
        (not is_of_pod(each.action), Failure(reason, str(each.error)))
        for each in executed.failures
        if (reason := _failure_of(each.action))
    ]
    failure = min(failures, key=lambda each: each[0])[1] if failures else None
    is_partial = plan.is_partial or executed.is_cut
    return Outcome(failure=failure, is_clean=not (executed.failures or plan.unfinished or is_partial or plan.fault))


def _failure_of(action: Action) -> str:
    """Return the reason that the condition ReplicaFailure gives when an action fails; for children we name it as KubeRay does for pods."""
    match action:
        case Refuse(event=event):
            return event.reason
        case Create() | Replace() | Delete() if not is_of_pod(action):
            verb = {Create: "Create", Replace: "Update", Delete: "Delete"}[type(action)]
            return f"Failed{verb}{action.resource.kind}"
        case _:
            return action.events.condition_reason
