"""The annotations that each verb writes, and its answer when there is nothing to do."""

from collections.abc import Callable

import pytest

from common import errors
from common.api import ray_service
from common.api.ray_service import RayService
from raybus_cli.control.actions import (
    ControlAction,
    abort,
    check_is_managed,
    pause,
    promote,
    resume,
    retry,
)
from support.builders.snapshots import (
    BLUE,
    READY,
    UPGRADING,
    a_condition,
    a_ready_service,
    a_service,
    a_side,
)
from support.tables import cases

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


@cases(
    ("decide", "service", "written"),
    {
        "pause": (pause, _upgrading(), {PAUSE: "true"}),
        "pause before an upgrade": (pause, _resting(), {PAUSE: "true"}),
        "resume": (resume, _upgrading(pause="true"), {PAUSE: None}),
        "resume what a policy paused": (resume, _paused_at(25), {APPROVED: "demo-green/25@3"}),
        "resume before all moves at once": (
            resume,
            _paused_at(None),
            {APPROVED: "demo-green/100@3"},
        ),
        "promote after a failed gate": (
            promote,
            _resting(a_condition("UpgradeAborted", reason=GATE)),
            {PROMOTE: "3"},
        ),
        "promote this generation": (promote, _upgrading(), {PROMOTE: "3"}),
        "promote what is paused": (promote, _upgrading(pause="true"), {PROMOTE: "3", PAUSE: None}),
        "promote after a missed deadline": (
            promote,
            _resting(a_condition("UpgradeAborted", reason=DEADLINE)),
            {PROMOTE: "3"},
        ),
        "abort this generation": (abort, _upgrading(), {ABORT: "3"}),
        "abort what was promoted": (abort, _upgrading(promote="3"), {ABORT: "3", PROMOTE: None}),
        "retry": (retry, _resting(abort="3"), {ABORT: None}),
    },
)
def test_a_verb_writes(
    decide: Callable[[RayService], ControlAction],
    service: RayService,
    written: dict[str, str | None],
) -> None:
    assert decide(service).annotations == written


@cases(
    ("decide", "service", "message"),
    {
        "resume what goes on": (resume, _upgrading(), "is not paused"),
        "resume what a deadline paused": (
            resume,
            _upgrading(a_condition("UpgradePaused", reason=DEADLINE)),
            "paused by its deadline",
        ),
        "resume what a gate paused": (
            resume,
            _upgrading(a_condition("UpgradePaused", reason=GATE)),
            "paused by a gate that failed",
        ),
        "retry what a gate aborted": (
            retry,
            _resting(a_condition("UpgradeAborted", reason=GATE)),
            "aborted by a gate of its UpgradePolicy",
        ),
        "promote nothing": (promote, _resting(), "no upgrade to promote"),
        "promote what is aborted": (
            promote,
            _upgrading(a_condition("UpgradeAborted", reason="AbortRequested")),
            "raybus retry demo",
        ),
        "abort nothing": (abort, _resting(), "raybus undo demo"),
        "retry nothing": (retry, _upgrading(), "no upgrade of RayService demo is aborted"),
        "retry after a missed deadline": (
            retry,
            _resting(a_condition("UpgradeAborted", reason=DEADLINE)),
            "aborted at its deadline",
        ),
    },
)
def test_a_verb_without_an_object_names_the_alternative(
    decide: Callable[[RayService], ControlAction], service: RayService, message: str
) -> None:
    with pytest.raises(errors.Rejected, match=message):
        decide(service)


def test_a_pause_without_an_upgrade_reports_that_it_waits() -> None:
    service = ray_service.decode(a_ready_service())
    assert pause(service).note == "no upgrade is in progress; the next one waits"


def test_nobody_would_heed_an_order_to_a_service_that_another_operator_runs() -> None:
    theirs = ray_service.decode(a_ready_service(managedBy="kueue.x-k8s.io/multikueue"))
    with pytest.raises(
        errors.Rejected, match=r"spec\.managedBy of RayService demo is kueue\.x-k8s\.io/multikueue"
    ):
        check_is_managed(theirs)
    check_is_managed(_resting())


def test_a_promotion_reports_the_end_of_the_pause() -> None:
    assert promote(_upgrading(pause="true")).note.startswith("the pause ends; traffic moves")
    assert promote(_upgrading()).note.startswith("traffic moves")


ABORTED = a_condition("UpgradeAborted", reason="AbortRequested")
REQUESTED = a_condition("UpgradePaused", reason="PauseRequested")


@cases(
    ("action", "before", "after"),
    {
        "pause": (pause(_upgrading()), _upgrading(), _upgrading(a_condition("UpgradePaused"))),
        "pause without an upgrade": (pause(_resting()), _upgrading(), _resting()),
        "resume": (
            resume(_upgrading(pause="true")),
            _upgrading(REQUESTED),
            _upgrading(a_condition("UpgradePaused", "False")),
        ),
        "resume what a failed gate pauses too": (
            resume(_upgrading(pause="true")),
            _upgrading(REQUESTED),
            _upgrading(a_condition("UpgradePaused", reason="GateFailed")),
        ),
        "promote": (promote(_upgrading()), _upgrading(), _promoted()),
        "promote that is not the new cluster": (promote(_upgrading()), _resting(), _promoted()),
        "abort": (abort(_upgrading()), _upgrading(ABORTED), _resting(ABORTED)),
        "retry": (retry(_resting(abort="3")), _resting(ABORTED), _upgrading()),
    },
)
def test_an_action_is_done_when_raybus_reports_it(
    action: ControlAction, before: RayService, after: RayService
) -> None:
    assert (action.is_done(before), action.is_done(after)) == (False, True)
