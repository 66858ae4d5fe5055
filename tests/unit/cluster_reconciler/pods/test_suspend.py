from typing import Any

import msgspec
import pytest

from cluster_reconciler.actions import ClusterPlan
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import all_pods
from common.feature_gates import BETA, FeatureGate
from support.builders.pods import actions_of, an_observation, some_workers
from support.builders.ray_cluster import a_ray_cluster


def with_condition(kind: str | None) -> dict[str, Any]:
    if kind is None:
        return {}
    time = "2026-01-01T00:00:00Z"
    return {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": kind,
                "message": "",
                "lastTransitionTime": time,
            }
        ]
    }


SUSPENDING, SUSPENDED = "RayClusterSuspending", "RayClusterSuspended"
DELETE = "delete Pods ray.io/cluster=c"


def move_of(observed: Observed, *, has_conditions: bool = True) -> str:
    """Return the decision about all pods together."""
    gates = BETA if has_conditions else BETA - {FeatureGate.STATUS_CONDITIONS}
    found = all_pods.suspend(msgspec.structs.replace(observed, config=Config(gates=gates)))
    if not isinstance(found, ClusterPlan):
        return "go on"
    return "; ".join(map(str, actions_of(found))) or "wait"


@pytest.mark.parametrize(
    ("wants", "state", "move"),
    [
        pytest.param(None, None, "go on", id="not asked for"),
        pytest.param(True, None, "go on", id="asked for: the condition is written first"),
        pytest.param(True, SUSPENDING, DELETE, id="the condition is written: pods go"),
        pytest.param(False, SUSPENDING, DELETE, id="taken back too late: pods go all the same"),
        pytest.param(True, SUSPENDED, "go on", id="suspended"),
        pytest.param(False, SUSPENDED, "go on", id="resuming: the condition is written first"),
    ],
)
@pytest.mark.acceptance("raycluster", 73, 74, 75, 76)
def test_suspension_is_atomic(wants: bool | None, state: str | None, move: str) -> None:
    cluster = a_ray_cluster(suspend=wants, status=with_condition(state))
    assert move_of(an_observation(*some_workers(1), cluster=cluster)) == move


def test_pods_are_asked_to_go_once() -> None:
    cluster = a_ray_cluster(suspend=True, status=with_condition(SUSPENDING))
    going = an_observation(*some_workers(2, terminating=True), cluster=cluster)
    assert move_of(going) == "go on"


@pytest.mark.acceptance("raycluster", 79)
def test_without_conditions_pods_go_at_once() -> None:
    cluster = a_ray_cluster(suspend=True)
    observed = an_observation(*some_workers(1), cluster=cluster)
    assert move_of(observed, has_conditions=False) == DELETE
