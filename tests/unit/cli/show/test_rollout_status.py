"""What `raybus status` makes of each state: done, going on, or failed."""

from typing import Any

import pytest

from common.api.opaque import Json
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import rollout_status
from raybus_cli.show.rollout_status import RolloutState
from support.builders.snapshots import (
    BLUE,
    GREEN,
    NOW,
    READY,
    UPGRADING,
    a_condition,
    a_pod,
    a_ready_service,
    a_revision,
    a_service,
    a_snapshot,
    at_rest,
    in_steps,
    serving,
)


def _behind() -> Snapshot:
    service = a_ready_service(generation=3)
    service["status"]["observedGeneration"] = 2
    return at_rest(service=service)


def _unhealthy() -> Snapshot:
    service = a_ready_service()
    apps = service["status"]["activeServiceStatus"]["applicationStatuses"]
    apps["app"] |= {"status": "DEPLOYING", "message": "1 replica starts"}
    return at_rest(service=service)


def _pulling(reason: str, *, age: float) -> Snapshot:
    waiting = {
        "name": "ray",
        "state": {"waiting": {"reason": reason, "message": 'image "ray:2.6O.0": not found'}},
    }
    return in_steps(
        pods=[a_pod(GREEN, "gpu", 1, ready=False, age=age, containerStatuses=[waiting])], serve={}
    )


def _deploy_failed(**fields: Any) -> Snapshot:
    failed: Json = serving(target=1, running=0)
    failed["applications"]["app"] |= {
        "status": "DEPLOY_FAILED",
        "message": "No module\nnamed 'model'",
    }
    return in_steps(serve={GREEN: failed}, **fields)


def _refused() -> Snapshot:
    return at_rest(service=a_ready_service(serve="applications: [{name: app}]"))


def _suspended(*conditions: dict[str, object]) -> Snapshot:
    return a_snapshot(a_service(*conditions, suspend=True))


@pytest.mark.parametrize(
    ("snapshot", "course", "text"),
    [
        pytest.param(at_rest(), RolloutState.DONE, "RayCluster demo-blue serves", id="serves"),
        pytest.param(_behind(), RolloutState.GOING_ON, "generation 3", id="not reconciled yet"),
        pytest.param(
            _unhealthy(),
            RolloutState.GOING_ON,
            "DEPLOYING: 1 replica starts",
            id="an application deploys",
        ),
        pytest.param(
            at_rest(revisions=[a_revision(BLUE, "older")]),
            RolloutState.GOING_ON,
            "new Serve config",
            id="config not sent",
        ),
        pytest.param(in_steps(), RolloutState.GOING_ON, "Upgrading", id="an upgrade"),
        pytest.param(
            _pulling("ImagePullBackOff", age=200),
            RolloutState.FAILED,
            f'Upgrading: Pod {GREEN}-gpu-worker-00001: cannot pull image "ray:2.6O.0" (container ray)',
            id="an image cannot be pulled for minutes",
        ),
        pytest.param(
            _pulling("ErrImagePull", age=20),
            RolloutState.GOING_ON,
            "Upgrading",
            id="an image cannot be pulled at first",
        ),
        pytest.param(
            _pulling("InvalidImageName", age=20),
            RolloutState.FAILED,
            "cannot pull",
            id="an image has no valid name",
        ),
        pytest.param(
            _deploy_failed(),
            RolloutState.FAILED,
            f"application app on RayCluster {GREEN} is DEPLOY_FAILED: No module named 'model'",
            id="an application fails",
        ),
        pytest.param(
            _deploy_failed(revisions=[a_revision(GREEN, "older")]),
            RolloutState.GOING_ON,
            "Upgrading",
            id="an application fails with the config before",
        ),
        pytest.param(
            _refused(),
            RolloutState.FAILED,
            "Ray Serve refuses spec.serveConfigV2: applications[0].import_path: Required value",
            id="a refused Serve config",
        ),
        pytest.param(
            in_steps(UPGRADING, a_condition("UpgradePaused", message="Paused")),
            RolloutState.GOING_ON,
            "Paused",
            id="a pause is waited for",
        ),
        pytest.param(
            in_steps(UPGRADING, a_condition("UpgradeStalled", message="no node")),
            RolloutState.FAILED,
            "Stalled: no node",
            id="a stall",
        ),
        pytest.param(
            at_rest(
                service=a_service(
                    READY, a_condition("UpgradeAborted", message="Generation 2 is aborted")
                )
            ),
            RolloutState.FAILED,
            "Generation 2 is aborted",
            id="aborted, though the old cluster serves",
        ),
        pytest.param(
            a_snapshot(
                a_service(a_condition("Ready", "False", reason="ValidationFailed", message="bad"))
            ),
            RolloutState.FAILED,
            "Invalid: bad",
            id="invalid",
        ),
        pytest.param(
            a_snapshot(
                a_service(
                    a_condition("Ready", "False", reason="InitializingTimeout", message="late")
                )
            ),
            RolloutState.FAILED,
            "TimedOut: late",
            id="out of time",
        ),
        pytest.param(
            _suspended(a_condition("Suspended")),
            RolloutState.DONE,
            "Suspended",
            id="suspended as asked",
        ),
        pytest.param(
            _suspended(a_condition("Suspending")),
            RolloutState.GOING_ON,
            "Suspending",
            id="being suspended",
        ),
    ],
)
def test_a_rollout_is_judged(snapshot: Snapshot, course: RolloutState, text: str) -> None:
    found = rollout_status.of(snapshot, now=NOW)
    assert found.course is course
    assert text in found.text
