"""The time since when an upgrade makes no progress, and the reason for that."""

from datetime import datetime
from typing import Any

from common.api.opaque import Json
from common.errors import Problem
from common.upgrade.service_conditions import Reason
from common.upgrade.traffic_record import RecordedUpgrade
from service_reconciler.observed import Observed
from service_reconciler.promotion import control
from support.builders.upgrade import a_condition, a_pod, a_view, an_upgrade, at
from support.tables import cases

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


def a_flapping(sheds: int, *, first: float = 100) -> RecordedUpgrade:
    """Return the history of an upgrade that gave traffic back for the health of a cluster."""
    return RecordedUpgrade(
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


@cases(
    ("observed", "seconds"),
    {
        "repeatedly: from the first time, and the interval that follows it": (FLAPPED, 110),
        "once may be chance": (an_upgrade(interval=10, moved=900, upgrade=a_flapping(1)), 910),
        "a rollback begins anew": (
            an_upgrade(
                a_condition("RollbackInProgress", seconds=500),
                interval=10,
                moved=900,
                upgrade=a_flapping(9),
            ),
            910,
        ),
    },
)
def test_giving_back_repeatedly_is_no_progress(observed: Observed, seconds: float) -> None:
    assert control.progress_since(observed, observed.pending, now=NOW) == at(seconds)


def test_a_canary_that_flaps_is_named_as_the_cause() -> None:
    found = control.find_stall(FLAPPED, now=NOW)[0]
    assert found is not None
    assert found.code is Reason.APPLICATION_NOT_READY


@cases(
    ("observed", "seconds"),
    {
        "the upgrade began": (an_upgrade(interval=0), 0),
        "a capacity changed": (an_upgrade(interval=0, changed=40), 40),
        "a weight changed": (an_upgrade(interval=0, moved=50), 50),
        "the next step was due later": (an_upgrade(interval=60, moved=50), 110),
        "a pause ended": (an_upgrade(a_condition("UpgradePaused", seconds=60, status="False")), 60),
        "a pause lasts": (an_upgrade(a_condition("UpgradePaused")), 1000),
        "the traffic turned back": (an_upgrade(a_condition("RollbackInProgress", seconds=90)), 90),
        "the clock was set": (an_upgrade(clock_set_at=at(999)), 999),
        "the clock was set back before this process began": (
            an_upgrade(changed=4000, moved=4000),
            1000,
        ),
        "the clock was set back in the meantime": (
            an_upgrade(changed=4000, moved=4000, clock_set_at=at(700)),
            700,
        ),
        "the head became ready": (
            an_upgrade(pending=a_view("green", a_condition("HeadPodReady", seconds=65))),
            65,
        ),
        "a head that is lost is no progress": (
            an_upgrade(
                pending=a_view("green", a_condition("HeadPodReady", seconds=65, status="False"))
            ),
            10,
        ),
        "a pod became ready": (an_upgrade(pending=a_view("green", pods=(a_pod(READY),))), 70),
        "a pod became ready once more": (
            an_upgrade(pending=a_view("green", pods=(a_pod(READY, restarts=1),))),
            10,
        ),
        "a replica started": (an_upgrade(pending=a_view("green", details=an_app("DEPLOYING"))), 80),
        "a replica of a failing app started": (
            an_upgrade(pending=a_view("green", details=an_app("UNHEALTHY"))),
            10,
        ),
    },
)
def test_when_an_upgrade_last_progressed(observed: Observed, seconds: float) -> None:
    assert control.progress_since(observed, observed.pending, now=NOW) == at(seconds)


def judged(
    *conditions: Json, now: float = 1000, **fields: Any
) -> tuple[Problem[Reason] | None, datetime | None]:
    """Return whether an upgrade with a deadline of five minutes is stalled."""
    annotations = DEADLINE | fields.pop("annotations", {})
    return control.find_stall(
        an_upgrade(*conditions, annotations=annotations, **fields), now=at(now)
    )


def test_before_its_deadline_it_is_requeued_at_the_deadline() -> None:
    assert judged(interval=0, changed=40, now=339) == (None, at(340))
    assert judged(interval=0, changed=40, now=340)[0] is not None


REPLICA_FAILURE: dict[str, Any] = {"reason": "FailedCreateWorkerPod"}


@cases(
    ("pending", "reason"),
    {
        "no room": (
            a_view("green", pods=(a_pod(UNSCHEDULABLE, phase="Pending"),)),
            Reason.INSUFFICIENT_CAPACITY,
        ),
        "no quota": (
            a_view(
                "green",
                a_condition(
                    "ReplicaFailure",
                    message="pods is forbidden: exceeded quota: q",
                    **REPLICA_FAILURE,
                ),
            ),
            Reason.QUOTA_EXCEEDED,
        ),
        "denied, which is no quota": (
            a_view(
                "green",
                a_condition(
                    "ReplicaFailure", message="admission webhook denied it", **REPLICA_FAILURE
                ),
            ),
            Reason.PROGRESS_DEADLINE_EXCEEDED,
        ),
        "no image": (
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
        ),
        "it fails": (
            a_view("green", details=an_app("DEPLOY_FAILED")),
            Reason.APPLICATION_NOT_READY,
        ),
        "it does not run": (a_view("green", details={}), Reason.APPLICATION_NOT_READY),
        "no cluster": (None, Reason.PROGRESS_DEADLINE_EXCEEDED),
    },
)
def test_the_cause_is_named_from_what_is_seen(pending: Any, reason: Reason) -> None:
    found, _ = judged(pending=pending)
    assert found is not None
    assert found.code is reason
    assert found.message.startswith("No progress for 5m0s (raybus.io/progress-deadline): ")


HELD = a_condition("UpgradeStalled", reason="GatewayNotReady", message="as it was")


@cases(
    ("annotations", "is_held"),
    {
        "a pause stays although it progresses": ({"raybus.io/on-deadline": "Pause"}, True),
        "promoted": ({"raybus.io/on-deadline": "Pause", "raybus.io/promote": "true"}, False),
        "waiting": ({"raybus.io/on-deadline": "Wait"}, False),
    },
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
