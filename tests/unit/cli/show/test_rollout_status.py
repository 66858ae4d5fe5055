"""The result of `raybus status` for each state: done, in progress, or failed."""

from typing import Any

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
from support.tables import cases

DONE, GOING_ON, FAILED, TIMED_OUT = RolloutState


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


@cases(
    ("snapshot", "course", "text"),
    {
        "serves": (at_rest(), DONE, "RayCluster demo-blue serves"),
        "not reconciled yet": (_behind(), GOING_ON, "generation 3"),
        "an application deploys": (_unhealthy(), GOING_ON, "DEPLOYING: 1 replica starts"),
        "config not sent": (
            at_rest(revisions=[a_revision(BLUE, "older")]),
            GOING_ON,
            "new Serve config",
        ),
        "an upgrade": (in_steps(), GOING_ON, "Upgrading"),
        "an image cannot be pulled for minutes": (
            _pulling("ImagePullBackOff", age=200),
            FAILED,
            f'Upgrading: Pod {GREEN}-gpu-worker-00001: cannot pull image "ray:2.6O.0" (container ray)',
        ),
        "an image cannot be pulled at first": (
            _pulling("ErrImagePull", age=20),
            GOING_ON,
            "Upgrading",
        ),
        "an image has no valid name": (_pulling("InvalidImageName", age=20), FAILED, "cannot pull"),
        "an application fails": (
            _deploy_failed(),
            FAILED,
            f"application app on RayCluster {GREEN} is DEPLOY_FAILED: No module named 'model'",
        ),
        "an application fails with the config before": (
            _deploy_failed(revisions=[a_revision(GREEN, "older")]),
            GOING_ON,
            "Upgrading",
        ),
        "a refused Serve config": (
            _refused(),
            FAILED,
            "Ray Serve refuses spec.serveConfigV2: applications[0].import_path: Required value",
        ),
        "a pause is waited for": (
            in_steps(UPGRADING, a_condition("UpgradePaused", message="Paused")),
            GOING_ON,
            "Paused",
        ),
        "a stall": (
            in_steps(UPGRADING, a_condition("UpgradeStalled", message="no node")),
            FAILED,
            "Stalled: no node",
        ),
        "aborted, though the old cluster serves": (
            at_rest(
                service=a_service(
                    READY, a_condition("UpgradeAborted", message="Generation 2 is aborted")
                )
            ),
            FAILED,
            "Generation 2 is aborted",
        ),
        "invalid": (
            a_snapshot(
                a_service(a_condition("Ready", "False", reason="ValidationFailed", message="bad"))
            ),
            FAILED,
            "Invalid: bad",
        ),
        "out of time": (
            a_snapshot(
                a_service(
                    a_condition("Ready", "False", reason="InitializingTimeout", message="late")
                )
            ),
            FAILED,
            "TimedOut: late",
        ),
        "suspended as asked": (_suspended(a_condition("Suspended")), DONE, "Suspended"),
        "being suspended": (_suspended(a_condition("Suspending")), GOING_ON, "Suspending"),
    },
)
def test_a_rollout_is_judged(snapshot: Snapshot, course: RolloutState, text: str) -> None:
    found = rollout_status.derive_status(snapshot, now=NOW)
    assert found.course is course
    assert text in found.text
