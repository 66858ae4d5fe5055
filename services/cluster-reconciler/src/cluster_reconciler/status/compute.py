"""The whole status of a RayCluster, in the order of spec raycluster §13.1."""

from datetime import datetime

import msgspec

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import ConditionType, State
from cluster_reconciler.status import (
    conditions,
    counters,
    desired_resources,
    endpoints,
    head_info,
    head_ready,
    pods_ready,
    provisioned,
    replica_failure,
    suspended,
    unsupported,
)
from cluster_reconciler.status.conditions import Conditions
from cluster_reconciler.status.replica_failure import Failure
from common.api.meta import whole_seconds
from common.api.ray_cluster import RayClusterStatus


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the plan went, as far as the status tells it."""

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
    is_ready = outcome.is_clean and len(observed.pods) == counted.desired + 1 and pods_ready.all_running(observed.pods)
    state = State.READY if is_ready else State(old.state) if old.state in set(State) else State.NONE
    if observed.cluster.spec.suspend and not observed.pods:
        state = State.SUSPENDED
    return RayClusterStatus(
        state=state.value,  # text: only that is left out of the status while it is empty
        reason="" if is_ready else old.reason,
        desired_cpu=desired.cpu,
        desired_memory=desired.memory,
        desired_gpu=desired.gpu,
        desired_tpu=desired.tpu,
        last_update_time=whole_seconds(now),
        state_transition_times=_transitions(old, state, now),
        endpoints=endpoints.compute(observed, old.endpoints),
        head=head_info.compute(observed),
        conditions=list(_conditions(observed, outcome, now) if has_conditions else old.conditions),
        ready_worker_replicas=counted.ready,
        available_worker_replicas=counted.available,
        desired_worker_replicas=counted.desired,
        min_worker_replicas=counted.least,
        max_worker_replicas=counted.most,
        observed_generation=observed.cluster.metadata.generation,
    )


def _conditions(observed: Observed, outcome: Outcome, now: datetime) -> Conditions:
    known = tuple(observed.cluster.status.conditions)
    if outcome.failure is not None:
        fact = replica_failure.compute(outcome.failure)
        known = conditions.put(known, ConditionType.REPLICA_FAILURE, fact, now=now)
    elif outcome.is_clean:
        known = conditions.drop(known, ConditionType.REPLICA_FAILURE)
    known = conditions.put(known, ConditionType.HEAD_POD_READY, head_ready.compute(observed), now=now)
    if _awaits_provisioning(observed, known):
        known = conditions.put(known, ConditionType.PROVISIONED, provisioned.compute(observed), now=now)
    known = suspended.compute(known, observed, now=now)
    if not outcome.unsupported:
        return conditions.drop(known, ConditionType.UNSUPPORTED)
    return conditions.put(known, ConditionType.UNSUPPORTED, unsupported.compute(outcome.unsupported), now=now)


def _awaits_provisioning(observed: Observed, known: Conditions) -> bool:
    was_provisioned = conditions.is_true(observed.cluster.status, ConditionType.PROVISIONED)
    return not was_provisioned and suspended.state(known) is not ConditionType.SUSPENDED


def _transitions(old: RayClusterStatus, state: State, now: datetime) -> dict[str, datetime] | None:
    if state == old.state:
        return old.state_transition_times
    return {**(old.state_transition_times or {}), state: whole_seconds(now)}
