"""The statuses that may wait for a moment, so that several changes are combined in one write."""

from datetime import UTC, datetime

import pytest

from cluster_reconciler.reasons import ConditionType
from cluster_reconciler.status import compute
from common.api.meta import Condition
from common.api.ray_cluster import RayClusterStatus

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NEVER_WRITTEN = RayClusterStatus()
WRITTEN = RayClusterStatus(last_update_time=THEN, desired_worker_replicas=3)


def a_status(*true: ConditionType, ready: int = 0) -> RayClusterStatus:
    held = [
        Condition(type=kind, status="True", reason="x", message="", last_transition_time=THEN)
        for kind in true
    ]
    return RayClusterStatus(
        desired_worker_replicas=3,
        ready_worker_replicas=ready,
        available_worker_replicas=ready,
        conditions=held,
    )


@pytest.mark.parametrize(
    ("old", "new", "waits", "why"),
    [
        (NEVER_WRITTEN, a_status(), True, "a cluster begins"),
        (NEVER_WRITTEN, a_status(ready=1), True, "a cluster begins, and has a worker already"),
        (NEVER_WRITTEN, a_status(ready=3), False, "it is complete"),
        (NEVER_WRITTEN, a_status(ConditionType.REPLICA_FAILURE), False, "a pod is refused"),
        (NEVER_WRITTEN, a_status(ConditionType.SUSPENDING), False, "it is born suspended"),
        (WRITTEN, a_status(ready=2), True, "some workers have got ready"),
        (WRITTEN, a_status(ready=3), False, "all workers are ready"),
        (WRITTEN, a_status(ConditionType.REPLICA_FAILURE), False, "something has gone wrong"),
    ],
)
def test_mere_progress_may_wait(
    old: RayClusterStatus, new: RayClusterStatus, *, waits: bool, why: str
) -> None:
    assert compute.is_mere_progress(old, new) is waits, why


def test_a_worker_that_is_lost_may_not_wait() -> None:
    assert not compute.is_mere_progress(
        RayClusterStatus(last_update_time=THEN, desired_worker_replicas=3, ready_worker_replicas=2),
        a_status(ready=1),
    )
