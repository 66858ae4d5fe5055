from typing import Any

import pytest

from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import head
from cluster_reconciler.pods.head import HeadMove
from common import labels
from support.builders.pods import a_head_pod, an_observation, some_workers
from support.builders.ray_cluster import a_ray_cluster

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


@pytest.mark.parametrize(
    ("observed", "move"),
    [
        pytest.param(an_observation(), HeadMove.CREATE, id="none"),
        pytest.param(an_observation(*some_workers(2)), HeadMove.CREATE, id="only workers"),
        pytest.param(an_observation(a_head_pod()), HeadMove.KEEP, id="one that runs"),
        pytest.param(an_observation(a_head_pod(phase="Failed")), HeadMove.DELETE, id="one that failed"),
        pytest.param(an_observation(a_head_pod(terminating=True)), HeadMove.KEEP, id="one that is going"),
        pytest.param(an_observation(a_head_pod("a"), a_head_pod("b")), HeadMove.FAIL, id="two"),
        pytest.param(
            an_observation(a_head_pod("a"), awaited=frozenset({"uid-a"})), HeadMove.KEEP, id="one that we deleted"
        ),
        pytest.param(
            an_observation(cluster=a_ray_cluster(annotations=STAYS_DEAD, status=PROVISIONED)),
            HeadMove.STOP,
            id="lost after provisioning, and configured not to restart",
        ),
        pytest.param(
            an_observation(cluster=a_ray_cluster(annotations=STAYS_DEAD)), HeadMove.CREATE, id="not yet provisioned"
        ),
        pytest.param(
            an_observation(cluster=a_ray_cluster(status=PROVISIONED)), HeadMove.CREATE, id="not configured so"
        ),
    ],
)
@pytest.mark.acceptance("raycluster", 43, 46, 47, 48)
def test_what_is_done_about_the_head(observed: Observed, move: HeadMove) -> None:
    assert head.decide(observed).move is move


@pytest.mark.acceptance("raycluster", 47)
def test_two_heads_are_named() -> None:
    note = head.decide(an_observation(a_head_pod("a"), a_head_pod("b"))).note
    assert note == "2 head pods found [a b]. Please delete extra head pods"
