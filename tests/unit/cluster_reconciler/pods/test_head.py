from typing import Any

import pytest

from cluster_reconciler import plan
from cluster_reconciler.actions import ClusterPlan, CreateWorker
from cluster_reconciler.observed import Observed
from common import labels
from support.builders.pods import a_head_pod, actions_of, an_observation, some_workers
from support.builders.ray_cluster import a_ray_cluster
from support.tables import cases

PROVISIONED: dict[str, Any] = {
    "conditions": [
        {
            "type": "RayClusterProvisioned",
            "status": "True",
            "reason": "x",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
}
STAYS_DEAD = {labels.DISABLE_PROVISIONED_HEAD_RESTART: "true"}


def planned(observed: Observed) -> ClusterPlan:
    return plan.make_plan(observed, now=observed.now)


def move_of(observed: Observed) -> str:
    """Return the decision about the head: after `keep` and `create` the plan continues with the
    workers, other decisions end it.
    """
    found = planned(observed)
    actions = [str(each) for each in actions_of(found) if not isinstance(each, CreateWorker)]
    if "group g: " not in found.note:
        return "fail" if found.problem else "; ".join(actions) or "stop"
    assert not found.problem
    return "create" if any(each.startswith("create Pod c-head-") for each in actions) else "keep"


@cases(
    ("observed", "move"),
    {
        "none": (an_observation(), "create"),
        "only workers": (an_observation(*some_workers(2)), "create"),
        "one that runs": (an_observation(a_head_pod()), "keep"),
        "one that failed": (an_observation(a_head_pod(phase="Failed")), "delete Pod c-head-x"),
        "one that is going": (an_observation(a_head_pod(terminating=True)), "keep"),
        "two": (an_observation(a_head_pod("a"), a_head_pod("b")), "fail"),
        "one that we deleted": (
            an_observation(a_head_pod("a"), pending_deletions=frozenset({"uid-a"})),
            "keep",
        ),
        "lost after provisioning, and configured not to restart": (
            an_observation(cluster=a_ray_cluster(annotations=STAYS_DEAD, status=PROVISIONED)),
            "stop",
        ),
        "not yet provisioned": (
            an_observation(cluster=a_ray_cluster(annotations=STAYS_DEAD)),
            "create",
        ),
        "not configured so": (an_observation(cluster=a_ray_cluster(status=PROVISIONED)), "create"),
    },
)
@pytest.mark.acceptance("raycluster", 43, 46, 47, 48)
def test_what_is_done_about_the_head(observed: Observed, move: str) -> None:
    assert move_of(observed) == move


@pytest.mark.acceptance("raycluster", 47)
def test_two_heads_are_named() -> None:
    found = planned(an_observation(a_head_pod("a"), a_head_pod("b")))
    assert found.problem == "2 head pods found [a b]. Please delete extra head pods"
