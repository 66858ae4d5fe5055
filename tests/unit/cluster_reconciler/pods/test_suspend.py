from typing import Any

import pytest

from cluster_reconciler.pods import all_pods
from cluster_reconciler.pods.all_pods import AllPods
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
        pytest.param(None, None, AllPods.GO_ON, id="not asked for"),
        pytest.param(True, None, AllPods.WAIT, id="asked for: the condition is written first"),
        pytest.param(True, SUSPENDING, AllPods.DELETE, id="the condition is written: pods go"),
        pytest.param(False, SUSPENDING, AllPods.DELETE, id="taken back too late: pods go all the same"),
        pytest.param(True, SUSPENDED, AllPods.WAIT, id="suspended"),
        pytest.param(False, SUSPENDED, AllPods.WAIT, id="resuming: the condition is written first"),
    ],
)
@pytest.mark.acceptance("raycluster", 73, 74, 75, 76)
def test_suspension_is_atomic(wants: bool | None, state: str | None, move: AllPods) -> None:
    cluster = a_ray_cluster(suspend=wants, status=with_condition(state))
    assert all_pods.suspension(an_observation(*some_workers(1), cluster=cluster), has_conditions=True) is move


def test_pods_are_asked_to_go_once() -> None:
    cluster = a_ray_cluster(suspend=True, status=with_condition(SUSPENDING))
    going = an_observation(*some_workers(2, terminating=True), cluster=cluster)
    assert all_pods.suspension(going, has_conditions=True) is AllPods.WAIT


@pytest.mark.acceptance("raycluster", 79)
def test_without_conditions_pods_go_at_once() -> None:
    cluster = a_ray_cluster(suspend=True)
    observed = an_observation(*some_workers(1), cluster=cluster)
    assert all_pods.suspension(observed, has_conditions=False) is AllPods.DELETE
