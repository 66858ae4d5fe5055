"""What `raybus status` makes of each state: done, going on, or failed."""

import pytest

from raybus_cli.reading.look import Look
from raybus_cli.show import verdict
from raybus_cli.show.verdict import Course
from support.builders.look import (
    BLUE,
    READY,
    UPGRADING,
    a_condition,
    a_look,
    a_ready_service,
    a_revision,
    a_service,
    at_rest,
    in_steps,
)


def _behind() -> Look:
    service = a_ready_service(generation=3)
    service["status"]["observedGeneration"] = 2
    return at_rest(service=service)


def _unhealthy() -> Look:
    service = a_ready_service()
    apps = service["status"]["activeServiceStatus"]["applicationStatuses"]
    apps["app"] |= {"status": "DEPLOYING", "message": "1 replica starts"}
    return at_rest(service=service)


def _suspended(*conditions: dict[str, object]) -> Look:
    return a_look(a_service(*conditions, suspend=True))


@pytest.mark.parametrize(
    ("look", "course", "says"),
    [
        pytest.param(at_rest(), Course.DONE, "RayCluster demo-blue serves", id="serves"),
        pytest.param(_behind(), Course.GOING_ON, "generation 3", id="not looked at yet"),
        pytest.param(_unhealthy(), Course.GOING_ON, "DEPLOYING: 1 replica starts", id="an application deploys"),
        pytest.param(
            at_rest(revisions=[a_revision(BLUE, "older")]), Course.GOING_ON, "new Serve config", id="config not sent"
        ),
        pytest.param(in_steps(), Course.GOING_ON, "Upgrading", id="an upgrade"),
        pytest.param(
            in_steps(UPGRADING, a_condition("UpgradePaused", message="Paused")),
            Course.GOING_ON,
            "Paused",
            id="a pause is waited for",
        ),
        pytest.param(
            in_steps(UPGRADING, a_condition("UpgradeStalled", message="no node")),
            Course.FAILED,
            "Stalled: no node",
            id="a stall",
        ),
        pytest.param(
            at_rest(service=a_service(READY, a_condition("UpgradeAborted", message="Generation 2 is aborted"))),
            Course.FAILED,
            "Generation 2 is aborted",
            id="aborted, though the old cluster serves",
        ),
        pytest.param(
            a_look(a_service(a_condition("Ready", "False", reason="ValidationFailed", message="bad"))),
            Course.FAILED,
            "Invalid: bad",
            id="invalid",
        ),
        pytest.param(
            a_look(a_service(a_condition("Ready", "False", reason="InitializingTimeout", message="late"))),
            Course.FAILED,
            "TimedOut: late",
            id="out of time",
        ),
        pytest.param(_suspended(a_condition("Suspended")), Course.DONE, "Suspended", id="suspended as asked"),
        pytest.param(_suspended(a_condition("Suspending")), Course.GOING_ON, "Suspending", id="being suspended"),
    ],
)
def test_a_rollout_is_judged(look: Look, course: Course, says: str) -> None:
    found = verdict.of(look)
    assert found.course is course
    assert says in found.text
