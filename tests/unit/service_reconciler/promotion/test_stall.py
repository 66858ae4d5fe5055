"""Since when an upgrade makes no progress, and the reason for that."""

from datetime import datetime
from typing import Any

import pytest

from common.api.opaque import Json
from common.errors import Problem
from common.upgrade.service_conditions import Reason
from common.upgrade.traffic_record import Upgrade
from service_reconciler.observed import Observed
from service_reconciler.promotion import control
from support.builders.upgrade import a_condition, a_pod, a_view, an_upgrade, at

NOW = at(1000)
DEADLINE = {"raybus.io/progress-deadline": "5m"}
READY = a_condition("Ready", seconds=70)
UNSCHEDULABLE = a_condition(
    "PodScheduled", status="False", reason="Unschedulable", message="no GPU is free"
)


def an_app(status: str, *, started: float = 80) -> Json:
    replicas = [{"state": "RUNNING", "start_time_s": at(started).timestamp()}]
    deployments = {"D": {"status": "HEALTHY", "target_num_replicas": 1, "replicas": replicas}}
    return {
        "applications": {"app": {"status": status, "message": "boom", "deployments": deployments}}
    }


def a_flapping(sheds: int, *, first: float = 100) -> Upgrade:
    """Return what an upgrade came to that gave traffic back for the health of a cluster."""
    return Upgrade(
        old="blue",
        new="green",
        began_at=at(0),
        max_capacity=200,
        min_capacity=100,
        max_weight=10,
        sheds=sheds,
        shed_at=at(first),
    )


FLAPPED = an_upgrade(
    interval=10,
    moved=900,
    changed=900,
    upgrade=a_flapping(2),
    pending=a_view("green", details=an_app("RUNNING", started=950)),
)


@pytest.mark.parametrize(
    ("observed", "seconds"),
    [
        pytest.param(
            FLAPPED, 110, id="repeatedly: from the first time, and the interval that follows it"
        ),
        pytest.param(
            an_upgrade(interval=10, moved=900, upgrade=a_flapping(1)), 910, id="once may be chance"
        ),
        pytest.param(
            an_upgrade(
                a_condition("RollbackInProgress", seconds=500),
                interval=10,
                moved=900,
                upgrade=a_flapping(9),
            ),
            910,
            id="a rollback begins anew",
        ),
    ],
)
def test_giving_back_repeatedly_is_no_progress(observed: Observed, seconds: float) -> None:
    assert control.progress_since(observed, observed.pending, now=NOW) == at(seconds)


def test_a_canary_that_flaps_is_named_as_the_cause() -> None:
    found = control.stalled(FLAPPED, now=NOW)[0]
    assert found is not None
    assert found.code is Reason.APPLICATION_NOT_READY


@pytest.mark.parametrize(
    ("observed", "seconds"),
    [
        pytest.param(an_upgrade(interval=0), 0, id="the upgrade began"),
        pytest.param(an_upgrade(interval=0, changed=40), 40, id="a capacity changed"),
        pytest.param(an_upgrade(interval=0, moved=50), 50, id="a weight changed"),
        pytest.param(an_upgrade(interval=60, moved=50), 110, id="the next step was due later"),
        pytest.param(
            an_upgrade(a_condition("UpgradePaused", seconds=60, status="False")),
            60,
            id="a pause ended",
        ),
        pytest.param(an_upgrade(a_condition("UpgradePaused")), 1000, id="a pause lasts"),
        pytest.param(
            an_upgrade(a_condition("RollbackInProgress", seconds=90)),
            90,
            id="the traffic turned back",
        ),
        pytest.param(an_upgrade(clock_set_at=at(999)), 999, id="the clock was set"),
        pytest.param(
            an_upgrade(changed=4000, moved=4000),
            1000,
            id="the clock was set back before this process began",
        ),
        pytest.param(
            an_upgrade(changed=4000, moved=4000, clock_set_at=at(700)),
            700,
            id="the clock was set back in the meantime",
        ),
        pytest.param(
            an_upgrade(pending=a_view("green", a_condition("HeadPodReady", seconds=65))),
            65,
            id="the head became ready",
        ),
        pytest.param(
            an_upgrade(
                pending=a_view("green", a_condition("HeadPodReady", seconds=65, status="False"))
            ),
            10,
            id="a head that is lost is no progress",
        ),
        pytest.param(
            an_upgrade(pending=a_view("green", pods=(a_pod(READY),))), 70, id="a pod became ready"
        ),
        pytest.param(
            an_upgrade(pending=a_view("green", pods=(a_pod(READY, restarts=1),))),
            10,
            id="a pod became ready once more",
        ),
        pytest.param(
            an_upgrade(pending=a_view("green", details=an_app("DEPLOYING"))),
            80,
            id="a replica started",
        ),
        pytest.param(
            an_upgrade(pending=a_view("green", details=an_app("UNHEALTHY"))),
            10,
            id="a replica of a failing app started",
        ),
    ],
)
def test_when_an_upgrade_last_progressed(observed: Observed, seconds: float) -> None:
    assert control.progress_since(observed, observed.pending, now=NOW) == at(seconds)


def judged(
    *conditions: Json, now: float = 1000, **fields: Any
) -> tuple[Problem[Reason] | None, datetime | None]:
    """Return whether an upgrade with a deadline of five minutes is stalled."""
    annotations = DEADLINE | fields.pop("annotations", {})
    return control.stalled(an_upgrade(*conditions, annotations=annotations, **fields), now=at(now))


def test_before_its_deadline_it_is_requeued_at_the_deadline() -> None:
    assert judged(interval=0, changed=40, now=339) == (None, at(340))
    assert judged(interval=0, changed=40, now=340)[0] is not None


REPLICA_FAILURE: dict[str, Any] = {"reason": "FailedCreateWorkerPod"}


@pytest.mark.parametrize(
    ("pending", "reason"),
    [
        pytest.param(
            a_view("green", pods=(a_pod(UNSCHEDULABLE, phase="Pending"),)),
            Reason.INSUFFICIENT_CAPACITY,
            id="no room",
        ),
        pytest.param(
            a_view(
                "green",
                a_condition(
                    "ReplicaFailure",
                    message="pods is forbidden: exceeded quota: q",
                    **REPLICA_FAILURE,
                ),
            ),
            Reason.QUOTA_EXCEEDED,
            id="no quota",
        ),
        pytest.param(
            a_view(
                "green",
                a_condition(
                    "ReplicaFailure", message="admission webhook denied it", **REPLICA_FAILURE
                ),
            ),
            Reason.PROGRESS_DEADLINE_EXCEEDED,
            id="denied, which is no quota",
        ),
        pytest.param(
            a_view(
                "green",
                pods=(
                    a_pod(
                        phase="Pending",
                        containerStatuses=[
                            {"name": "ray-worker", "state": {"waiting": {"reason": "ErrImagePull"}}}
                        ],
                    ),
                ),
            ),
            Reason.IMAGE_PULL_FAILED,
            id="no image",
        ),
        pytest.param(
            a_view("green", details=an_app("DEPLOY_FAILED")),
            Reason.APPLICATION_NOT_READY,
            id="it fails",
        ),
        pytest.param(
            a_view("green", details={}), Reason.APPLICATION_NOT_READY, id="it does not run"
        ),
        pytest.param(None, Reason.PROGRESS_DEADLINE_EXCEEDED, id="no cluster"),
    ],
)
def test_the_cause_is_named_from_what_is_seen(pending: Any, reason: Reason) -> None:
    found, _ = judged(pending=pending)
    assert found is not None
    assert found.code is reason
    assert found.message.startswith("No progress for 5m0s (raybus.io/progress-deadline): ")


HELD = a_condition("UpgradeStalled", reason="GatewayNotReady", message="as it was")


@pytest.mark.parametrize(
    ("annotations", "is_held"),
    [
        pytest.param(
            {"raybus.io/on-deadline": "Pause"}, True, id="a pause stays although it progresses"
        ),
        pytest.param(
            {"raybus.io/on-deadline": "Pause", "raybus.io/promote": "true"}, False, id="promoted"
        ),
        pytest.param({"raybus.io/on-deadline": "Wait"}, False, id="waiting"),
    ],
)
def test_a_reported_deadline_holds_while_it_pauses(
    annotations: dict[str, str], *, is_held: bool
) -> None:
    found, _ = judged(HELD, changed=999, annotations=annotations)
    assert found == (Problem(Reason.GATEWAY_NOT_READY, "as it was") if is_held else None)


def test_a_cause_does_not_flicker_but_a_better_one_is_taken() -> None:
    vague = a_condition("UpgradeStalled", reason="ProgressDeadlineExceeded", message="no idea")
    room = a_view("green", pods=(a_pod(UNSCHEDULABLE, phase="Pending"),))
    named = judged(vague, pending=room)[0]
    assert named is not None
    assert named.code is Reason.INSUFFICIENT_CAPACITY
    reported = a_condition("UpgradeStalled", reason="InsufficientCapacity", message="first message")
    assert judged(reported, pending=room)[0] == Problem(
        Reason.INSUFFICIENT_CAPACITY, "first message"
    )
