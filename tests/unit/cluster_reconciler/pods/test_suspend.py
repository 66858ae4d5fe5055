from typing import Any

import pytest

from cluster_reconciler.pods import suspend
from cluster_reconciler.pods.suspend import SuspendMove
from support.builders.pods import an_observation, some_workers
from support.builders.ray_cluster import a_ray_cluster


def with_condition(kind: str | None) -> dict[str, Any]:
    if kind is None:
        return {}
    time = "2026-01-01T00:00:00Z"
    return {"conditions": [{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": time}]}


SUSPENDING, SUSPENDED = "RayClusterSuspending", "RayClusterSuspended"


@pytest.mark.parametrize(
    ("wants", "state", "move"),
    [
        pytest.param(None, None, SuspendMove.GO_ON, id="not asked for"),
        pytest.param(True, None, SuspendMove.WAIT, id="asked for: the condition is written first"),
        pytest.param(True, SUSPENDING, SuspendMove.DELETE_ALL, id="the condition is written: pods go"),
        pytest.param(False, SUSPENDING, SuspendMove.DELETE_ALL, id="taken back too late: pods go all the same"),
        pytest.param(True, SUSPENDED, SuspendMove.WAIT, id="suspended"),
        pytest.param(False, SUSPENDED, SuspendMove.WAIT, id="resuming: the condition is written first"),
    ],
)
@pytest.mark.acceptance("raycluster", 73, 74, 75, 76)
def test_suspension_is_atomic(wants: bool | None, state: str | None, move: SuspendMove) -> None:
    cluster = a_ray_cluster(suspend=wants, status=with_condition(state))
    assert suspend.decide(an_observation(*some_workers(1), cluster=cluster), has_conditions=True) is move


def test_pods_are_asked_to_go_once() -> None:
    cluster = a_ray_cluster(suspend=True, status=with_condition(SUSPENDING))
    going = an_observation(*some_workers(2, terminating=True), cluster=cluster)
    assert suspend.decide(going, has_conditions=True) is SuspendMove.WAIT


@pytest.mark.acceptance("raycluster", 79)
def test_without_conditions_pods_go_at_once() -> None:
    cluster = a_ray_cluster(suspend=True)
    observed = an_observation(*some_workers(1), cluster=cluster)
    assert suspend.decide(observed, has_conditions=False) is SuspendMove.DELETE_ALL
