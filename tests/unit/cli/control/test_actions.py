"""The annotations that each verb writes, and its answer when there is nothing to do."""

from collections.abc import Callable

import pytest

from common import errors
from common.api import ray_service
from common.api.ray_service import RayService
from raybus_cli.control import actions
from raybus_cli.control.actions import Action
from support.builders.snapshots import (
    BLUE,
    READY,
    UPGRADING,
    a_condition,
    a_ready_service,
    a_service,
    a_side,
)

PAUSE, ABORT, PROMOTE = "raybus.io/pause", "raybus.io/abort", "raybus.io/promote"
DEADLINE = "ProgressDeadlineExceeded"
GATE = "GateFailed"
APPROVED = "raybus.io/approved-step"


def _resting(*conditions: dict[str, object], **annotations: str) -> RayService:
    held = {f"raybus.io/{name}": value for name, value in annotations.items()}
    return ray_service.decode(
        a_service(READY, *conditions, active=a_side(BLUE), annotations=held, generation=3)
    )


def _upgrading(*conditions: dict[str, object], **annotations: str) -> RayService:
    held = {f"raybus.io/{name}": value for name, value in annotations.items()}
    old, new = a_side(BLUE), a_side("demo-green")
    body = a_service(
        READY, UPGRADING, *conditions, active=old, pending=new, annotations=held, generation=3
    )
    return ray_service.decode(body)


def _paused_at(weight: int | None) -> RayService:
    body = a_service(
        READY,
        UPGRADING,
        a_condition("UpgradePaused", reason="PausedByPolicy"),
        active=a_side(BLUE),
        pending={**a_side("demo-green"), "trafficRoutedPercent": weight},
        generation=3,
    )
    return ray_service.decode(body)


def _promoted() -> RayService:
    return ray_service.decode(a_service(READY, active=a_side("demo-green")))


@pytest.mark.parametrize(
    ("decide", "service", "written"),
    [
        pytest.param(actions.pause, _upgrading(), {PAUSE: "true"}, id="pause"),
        pytest.param(actions.pause, _resting(), {PAUSE: "true"}, id="pause before an upgrade"),
        pytest.param(actions.resume, _upgrading(pause="true"), {PAUSE: None}, id="resume"),
        pytest.param(
            actions.resume,
            _paused_at(25),
            {APPROVED: "demo-green/25@3"},
            id="resume what a policy paused",
        ),
        pytest.param(
            actions.resume,
            _paused_at(None),
            {APPROVED: "demo-green/100@3"},
            id="resume before all moves at once",
        ),
        pytest.param(
            actions.promote,
            _resting(a_condition("UpgradeAborted", reason=GATE)),
            {PROMOTE: "3"},
            id="promote after a failed gate",
        ),
        pytest.param(actions.promote, _upgrading(), {PROMOTE: "3"}, id="promote this generation"),
        pytest.param(
            actions.promote,
            _upgrading(pause="true"),
            {PROMOTE: "3", PAUSE: None},
            id="promote what is paused",
        ),
        pytest.param(
            actions.promote,
            _resting(a_condition("UpgradeAborted", reason=DEADLINE)),
            {PROMOTE: "3"},
            id="promote after a missed deadline",
        ),
        pytest.param(actions.abort, _upgrading(), {ABORT: "3"}, id="abort this generation"),
        pytest.param(
            actions.abort,
            _upgrading(promote="3"),
            {ABORT: "3", PROMOTE: None},
            id="abort what was promoted",
        ),
        pytest.param(actions.retry, _resting(abort="3"), {ABORT: None}, id="retry"),
    ],
)
def test_a_verb_writes(
    decide: Callable[[RayService], Action], service: RayService, written: dict[str, str | None]
) -> None:
    assert decide(service).annotations == written


@pytest.mark.parametrize(
    ("decide", "service", "message"),
    [
        pytest.param(actions.resume, _upgrading(), "is not paused", id="resume what goes on"),
        pytest.param(
            actions.resume,
            _upgrading(a_condition("UpgradePaused", reason=DEADLINE)),
            "paused by its deadline",
            id="resume what a deadline paused",
        ),
        pytest.param(
            actions.resume,
            _upgrading(a_condition("UpgradePaused", reason=GATE)),
            "paused by a gate that failed",
            id="resume what a gate paused",
        ),
        pytest.param(
            actions.retry,
            _resting(a_condition("UpgradeAborted", reason=GATE)),
            "aborted by a gate of its UpgradePolicy",
            id="retry what a gate aborted",
        ),
        pytest.param(actions.promote, _resting(), "no upgrade to promote", id="promote nothing"),
        pytest.param(
            actions.promote,
            _upgrading(a_condition("UpgradeAborted", reason="AbortRequested")),
            "raybus retry demo",
            id="promote what is aborted",
        ),
        pytest.param(actions.abort, _resting(), "raybus undo demo", id="abort nothing"),
        pytest.param(
            actions.retry,
            _upgrading(),
            "no upgrade of RayService demo is aborted",
            id="retry nothing",
        ),
        pytest.param(
            actions.retry,
            _resting(a_condition("UpgradeAborted", reason=DEADLINE)),
            "aborted at its deadline",
            id="retry after a missed deadline",
        ),
    ],
)
def test_a_verb_without_an_object_names_the_alternative(
    decide: Callable[[RayService], Action], service: RayService, message: str
) -> None:
    with pytest.raises(errors.Rejected, match=message):
        decide(service)


def test_a_pause_without_an_upgrade_reports_that_it_waits() -> None:
    service = ray_service.decode(a_ready_service())
    assert actions.pause(service).note == "no upgrade is in progress; the next one waits"


def test_nobody_would_heed_an_order_to_a_service_that_another_operator_runs() -> None:
    theirs = ray_service.decode(a_ready_service(managedBy="kueue.x-k8s.io/multikueue"))
    with pytest.raises(
        errors.Rejected, match=r"spec\.managedBy of RayService demo is kueue\.x-k8s\.io/multikueue"
    ):
        actions.expect_ours(theirs)
    actions.expect_ours(_resting())


def test_a_promotion_reports_the_end_of_the_pause() -> None:
    assert actions.promote(_upgrading(pause="true")).note.startswith(
        "the pause ends; traffic moves"
    )
    assert actions.promote(_upgrading()).note.startswith("traffic moves")


ABORTED = a_condition("UpgradeAborted", reason="AbortRequested")
REQUESTED = a_condition("UpgradePaused", reason="PauseRequested")


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        pytest.param(
            actions.pause(_upgrading()),
            _upgrading(),
            _upgrading(a_condition("UpgradePaused")),
            id="pause",
        ),
        pytest.param(
            actions.pause(_resting()), _upgrading(), _resting(), id="pause without an upgrade"
        ),
        pytest.param(
            actions.resume(_upgrading(pause="true")),
            _upgrading(REQUESTED),
            _upgrading(a_condition("UpgradePaused", "False")),
            id="resume",
        ),
        pytest.param(
            actions.resume(_upgrading(pause="true")),
            _upgrading(REQUESTED),
            _upgrading(a_condition("UpgradePaused", reason="GateFailed")),
            id="resume what a failed gate pauses too",
        ),
        pytest.param(
            actions.promote(_upgrading()),
            _upgrading(),
            _promoted(),
            id="promote",
        ),
        pytest.param(
            actions.promote(_upgrading()),
            _resting(),
            _promoted(),
            id="promote that is not the new cluster",
        ),
        pytest.param(
            actions.abort(_upgrading()), _upgrading(ABORTED), _resting(ABORTED), id="abort"
        ),
        pytest.param(
            actions.retry(_resting(abort="3")), _resting(ABORTED), _upgrading(), id="retry"
        ),
    ],
)
def test_an_action_is_done_when_raybus_reports_it(
    action: Action, before: RayService, after: RayService
) -> None:
    assert (action.is_done(before), action.is_done(after)) == (False, True)
