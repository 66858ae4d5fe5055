"""The phase of a RayService with a blocking cause: its reason, its message, and its place in a list."""

from typing import Any

import pytest

from common.api import ray_service
from common.api.ray_service import RayService
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import cause_texts, frame, phase, picture, tree
from raybus_cli.show.cause_texts import Code
from raybus_cli.show.phase import ServicePhase
from service_reconciler import problems
from service_reconciler.reasons import RAY_SERVICE_INITIALIZING, caused
from service_reconciler.status.conditions import (
    BOTH,
    HAS_ENDPOINTS,
    INITIALIZING_AGAIN,
    NO_ENDPOINTS,
)
from support.builders import snapshots
from support.builders.snapshots import BLUE, NOW, a_condition, a_pod, a_service, at_rest
from support.terminal import text_of

PYDANTIC_1 = (
    "400 Bad Request: ValidationError(model='ServeDeploySchema', errors=[{'loc': ('applications', 0, 'import_path'), "
    "'msg': 'field required', 'type': 'value_error.missing'}])"
)
PYDANTIC_1_TEXT = "500: 1 validation error for ServeDeploySchema\napplications -> 0 -> import_path\n  field required (type=value_error.missing)"
PYDANTIC_2 = (
    "400 Bad Request: 1 validation error for ServeDeploySchema\napplications.0.import_path\n"
    "  Field required [type=missing, input_value={'name': 'app'}, input_type=dict]"
)
FIELD = "applications[0].import_path: Required value"


def _with(
    base: str, cause: str | None, *, status: str = "False", reason: str = "Initializing"
) -> RayService:
    held = a_condition("Ready", status, reason=reason, message=caused(base, cause))
    return ray_service.decode(a_service(held, endpoints=0))


@pytest.mark.parametrize("base", [RAY_SERVICE_INITIALIZING, INITIALIZING_AGAIN])
def test_a_first_start_with_a_cause_is_degraded(base: str) -> None:
    found = phase.derive_phase(_with(base, "pod demo-1: the image ray:2.6O.0 cannot be pulled"))
    assert (found.phase, found.reason) == (ServicePhase.DEGRADED, "ImagePullFailed")
    assert found.message == "pod demo-1: the image ray:2.6O.0 cannot be pulled"
    assert phase.derive_phase(_with(base, None)).phase is ServicePhase.STARTING


@pytest.mark.parametrize(("base", "status"), [(HAS_ENDPOINTS, "True"), (NO_ENDPOINTS, "False")])
def test_a_cause_is_the_reason_of_a_service_with_an_active_cluster(base: str, status: str) -> None:
    found = phase.derive_phase(
        _with(base, "waiting: Gateway default/g is not accepted", status=status, reason="Any")
    )
    assert found.phase is (ServicePhase.READY if status == "True" else ServicePhase.NOT_READY)
    assert (found.reason, found.message) == (
        "GatewayNotReady",
        "waiting: Gateway default/g is not accepted",
    )


def test_ready_with_a_blocked_gateway_is_one_line() -> None:
    service = _with(
        HAS_ENDPOINTS, "waiting: Gateway default/g is not accepted", status="True", reason="Any"
    )
    lines = text_of(picture.draw(tree.build(Snapshot(service=service), now=NOW))).splitlines()
    assert "Status:     Ready, GatewayNotReady" in lines


def test_an_upgrade_names_the_reason_of_its_cause() -> None:
    held = a_condition(
        "UpgradeInProgress", reason="Any", message=caused(BOTH, "exceeded quota: gpus")
    )
    found = phase.derive_phase(ray_service.decode(a_service(held)))
    assert (found.phase, found.reason) == (ServicePhase.UPGRADING, "QuotaExceeded")


def _starting(*statuses: dict[str, Any], **status: Any) -> Snapshot:
    service = a_service(pending=snapshots.a_side(BLUE), endpoints=0)
    pod = a_pod(BLUE, "gpu", 1, ready=False, containerStatuses=list(statuses), **status)
    return at_rest(service=service, pods=[pod], serve={})


def _waiting(reason: str) -> dict[str, Any]:
    return {"name": "ray", "state": {"waiting": {"reason": reason}}}


UNPLACED = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]


@pytest.mark.parametrize(
    ("snapshot", "code"),
    [
        (_starting(_waiting("ErrImagePull")), Code.IMAGE_PULL_FAILED),
        (_starting(_waiting("CrashLoopBackOff")), Code.PODS_NOT_STARTING),
        (_starting(_waiting("CreateContainerConfigError")), Code.PODS_NOT_STARTING),
        (_starting(conditions=UNPLACED), Code.INSUFFICIENT_CAPACITY),
        (at_rest(service=a_service(serve=" ")), Code.EMPTY_SERVE_CONFIG),
        (at_rest(service=a_service(serve="- a")), Code.SERVE_CONFIG_REFUSED),
    ],
)
def test_the_texts_of_the_service_have_their_reasons(snapshot: Snapshot, code: Code) -> None:
    observed = observing.observe(snapshot)
    problem = problems.of_cluster(observed, observed.pending or observed.active, now=NOW)
    assert problem is not None
    assert cause_texts.find_code(problem.message) is code


@pytest.mark.parametrize("answer", [PYDANTIC_1, PYDANTIC_1_TEXT, PYDANTIC_2])
@pytest.mark.parametrize(
    "prefix", ["Ray refused the Serve config", "the Serve config could not be sent"]
)
def test_a_refused_serve_config_is_named_by_field(prefix: str, answer: str) -> None:
    found = phase.derive_phase(_with(RAY_SERVICE_INITIALIZING, f"{prefix}: {answer}"))
    assert (found.reason, found.message) == (
        "FailedToUpdateServeApplications",
        f"{prefix}: {FIELD}",
    )


def test_where_the_answer_is_cut_the_spec_names_the_field() -> None:
    held = a_condition(
        "Ready",
        "False",
        reason="Initializing",
        message=f"{RAY_SERVICE_INITIALIZING}: Ray refused the Serve config: 400 … x",
    )
    cut = ray_service.decode(a_service(held, serve="applications: [{name: app}]"))
    assert phase.derive_phase(cut).message == f"Ray refused the Serve config: {FIELD}"
    assert phase.derive_phase(
        _with(RAY_SERVICE_INITIALIZING, "Ray refused the Serve config: 400: no")
    ).message.endswith("400: no")


def test_what_needs_an_action_comes_first() -> None:
    bodies = [a_service(snapshots.READY), a_service(_degraded()), a_service(snapshots.READY)]
    for body, name in zip(bodies, ("a", "z", "b"), strict=True):
        body["metadata"]["name"] = name
    found = frame.build([ray_service.decode(each) for each in bodies], [], now=NOW)
    assert [(each.name, each.phase, each.reason) for each in found.services] == [
        ("z", "Degraded", "InsufficientCapacity"),
        ("a", "Ready", "NonZeroServeEndpoints"),
        ("b", "Ready", "NonZeroServeEndpoints"),
    ]


def _degraded() -> dict[str, Any]:
    message = (
        f"{RAY_SERVICE_INITIALIZING}: pod p cannot be placed on a node: 0/3 nodes are available"
    )
    return a_condition("Ready", "False", reason="Initializing", message=message)
