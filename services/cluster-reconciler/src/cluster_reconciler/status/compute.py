"""The whole status of a RayCluster, in the order of spec raycluster §13.1."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import ConditionType, State
from cluster_reconciler.status import conditions as of_cluster
from cluster_reconciler.status import counters, head_info
from cluster_reconciler.status.conditions import Failure
from common import conditions
from common.api.meta import Condition, whole_seconds
from common.api.ray_cluster import RayClusterStatus
from common.ray import desired_resources


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the plan, as far as the status reports it."""

    failure: Failure | None = None
    """The first failure, one that concerns pods before others."""
    is_clean: bool = True
    """Whether nothing failed and nothing is left to finish."""
    unsupported: str = ""
    """What the spec asks for and we do not do yet."""


def compute(observed: Observed, outcome: Outcome, *, now: datetime, has_conditions: bool) -> RayClusterStatus:
    """Return the status that `observed` deserves; the caller has checked `head_info.violation`."""
    old = observed.cluster.status
    desired = desired_resources.compute(observed.cluster)
    counted = counters.count(observed)
    is_ready = outcome.is_clean and len(observed.pods) == counted.desired + 1 and of_cluster.all_running(observed.pods)
    state = State.READY.value if is_ready else old.state
    if observed.cluster.spec.suspend and not observed.pods:
        state = State.SUSPENDED.value
    return RayClusterStatus(
        state=state,
        reason="" if is_ready else old.reason,
        desired_cpu=desired.cpu,
        desired_memory=desired.memory,
        desired_gpu=desired.gpu,
        desired_tpu=desired.tpu,
        last_update_time=whole_seconds(now),
        state_transition_times=_transitions(old, state, now),
        endpoints=head_info.endpoints(observed, old.endpoints),
        head=head_info.compute(observed),
        conditions=list(_conditions(observed, outcome, now) if has_conditions else old.conditions),
        ready_worker_replicas=counted.ready,
        available_worker_replicas=counted.available,
        desired_worker_replicas=counted.desired,
        min_worker_replicas=counted.least,
        max_worker_replicas=counted.most,
        observed_generation=observed.cluster.metadata.generation,
    )


def refused(old: RayClusterStatus, failure: Failure, *, now: datetime) -> RayClusterStatus:
    """Return the status of a cluster of which nothing but the name was read: all stays but the condition ReplicaFailure."""
    return msgspec.structs.replace(
        old, conditions=conditions.updated(old.conditions, of_cluster.replica_failure(failure), now=now)
    )


def _conditions(observed: Observed, outcome: Outcome, now: datetime) -> Sequence[Condition]:
    known: Sequence[Condition] = observed.cluster.status.conditions
    if outcome.failure is not None:
        known = conditions.updated(known, of_cluster.replica_failure(outcome.failure), now=now)
    elif outcome.is_clean:
        known = conditions.without(known, ConditionType.REPLICA_FAILURE)
    known = conditions.updated(known, of_cluster.head_ready(observed), now=now)
    if _awaits_provisioning(observed, known):
        known = conditions.updated(known, of_cluster.provisioned(observed), now=now)
    known = of_cluster.suspended(known, observed, now=now)
    if not outcome.unsupported:
        return conditions.without(known, ConditionType.UNSUPPORTED)
    return conditions.updated(known, of_cluster.unsupported(outcome.unsupported), now=now)


def _awaits_provisioning(observed: Observed, known: Sequence[Condition]) -> bool:
    was_provisioned = conditions.is_true(observed.cluster.status.conditions, ConditionType.PROVISIONED)
    return not was_provisioned and of_cluster.suspension(known) is not ConditionType.SUSPENDED


def _transitions(old: RayClusterStatus, state: str, now: datetime) -> dict[str, datetime] | None:
    if state == old.state:
        return old.state_transition_times
    return {**(old.state_transition_times or {}), state: whole_seconds(now)}
