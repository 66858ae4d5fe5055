"""Whether a new status is written, and whether the write may wait a moment (spec raycluster §14; acceptance case 114).

Times, observedGeneration and the desired resources do not count on their own, as in KubeRay: they are written along with
what does.
"""

import msgspec

from cluster_reconciler.reasons import ConditionType
from common import conditions
from common.api.ray_cluster import RayClusterStatus

_IGNORED = {"last_update_time", "observed_generation", "state_transition_times"} | {
    f"desired_{resource}" for resource in ("cpu", "memory", "gpu", "tpu")
}
_REPORTED_AT_ONCE = (
    ConditionType.REPLICA_FAILURE,
    ConditionType.UNSUPPORTED,
    ConditionType.SUSPENDING,
    ConditionType.SUSPENDED,
)
_PROGRESS = ("ready_worker_replicas", "available_worker_replicas", "head", "endpoints")


def has_changed(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    """Return whether two statuses differ in anything that counts."""
    unset = {name: getattr(RayClusterStatus(), name) for name in _IGNORED}
    return msgspec.structs.replace(old, **unset) != msgspec.structs.replace(new, **unset)


def is_mere_progress(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    """Return whether some more pods are ready, others are still to come, and nothing else has happened since the last write.

    That a cluster begins is progress too: where hundreds begin at once, their first pods come before that status.
    """
    if new.ready_worker_replicas >= new.desired_worker_replicas:
        return False
    if old.last_update_time is None:
        return not any(conditions.is_true(new.conditions, kind) for kind in _REPORTED_AT_ONCE)
    grew = (
        new.ready_worker_replicas >= old.ready_worker_replicas
        and new.available_worker_replicas >= old.available_worker_replicas
    )
    heads_too = conditions.is_true(new.conditions, ConditionType.HEAD_POD_READY)
    before, after = (_without_progress(each, heads_too=heads_too) for each in (old, new))
    return grew and not has_changed(before, after)


def _without_progress(status: RayClusterStatus, *, heads_too: bool) -> RayClusterStatus:
    unset = {name: getattr(RayClusterStatus(), name) for name in _PROGRESS}
    kinds = (ConditionType.HEAD_POD_READY,) if heads_too else ()
    return msgspec.structs.replace(status, **unset, conditions=conditions.without(status.conditions, *kinds))
