"""What bears on an upgrade: an abort, a pause, a deadline, and which of them goes first."""

import pytest

from common.upgrade.service_conditions import Reason
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion import control
from support.builders.upgrade import GENERATION, a_condition, a_view, an_upgrade, at

LATE = at(10_000)
TIMED_OUT = a_condition("UpgradeAborted", reason="ProgressDeadlineExceeded", message="timed out")
ASKED = a_condition("UpgradeAborted", reason="AbortRequested", message="asked")
BACK = a_condition("RollbackInProgress")


def held(**annotations: str) -> dict[str, str]:
    return {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def orders(observed: Observed) -> tuple[Reason | None, Reason | None, bool]:
    """Return the reasons of an abort and of a pause, and whether the upgrade is stalled."""
    found = control.decide(observed, now=LATE)
    reasons = tuple(None if each is None else each.code for each in (found.abort, found.pause))
    return reasons[0], reasons[1], found.stall is not None


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(an_upgrade(), (None, None, True), id="a stall is reported"),
        pytest.param(
            an_upgrade(annotations=held(pause="true")),
            (None, Reason.PAUSE_REQUESTED, False),
            id="paused, not stalled",
        ),
        pytest.param(
            an_upgrade(annotations=held(on_deadline="Pause")),
            (None, Reason.PROGRESS_DEADLINE_EXCEEDED, True),
            id="paused at the deadline",
        ),
        pytest.param(
            an_upgrade(annotations=held(on_deadline="Rollback")),
            (Reason.PROGRESS_DEADLINE_EXCEEDED, None, True),
            id="timed out at the deadline",
        ),
        pytest.param(
            an_upgrade(annotations=held(on_deadline="Rollback"), active=a_view("blue")),
            (None, None, True),
            id="there is nothing left to go back to",
        ),
        pytest.param(
            an_upgrade(BACK, annotations=held(on_deadline="Rollback")),
            (None, None, True),
            id="a rollback that stalls is only reported",
        ),
        pytest.param(
            an_upgrade(annotations=held(on_deadline="Rollback", promote="true")),
            (None, None, True),
            id="a promoted upgrade is only reported",
        ),
        pytest.param(
            an_upgrade(annotations=held(pause="true", promote="true")),
            (None, None, True),
            id="promoted, not paused",
        ),
        pytest.param(
            an_upgrade(annotations=held(abort="true", promote="true")),
            (Reason.ABORT_REQUESTED, None, True),
            id="abort goes before promote",
        ),
        pytest.param(
            an_upgrade(annotations=held(abort=str(GENERATION))),
            (Reason.ABORT_REQUESTED, None, True),
            id="aborted by number",
        ),
        pytest.param(
            an_upgrade(annotations=held(abort="2")), (None, None, True), id="another number"
        ),
        pytest.param(
            an_upgrade(TIMED_OUT, changed=9_999),
            (Reason.PROGRESS_DEADLINE_EXCEEDED, None, False),
            id="a deadline's rollback is remembered",
        ),
        pytest.param(
            an_upgrade({**TIMED_OUT, "observedGeneration": GENERATION - 1}, changed=9_999),
            (None, None, False),
            id="not for the next generation",
        ),
        pytest.param(
            an_upgrade(TIMED_OUT, changed=9_999, annotations=held(promote="true")),
            (None, None, False),
            id="promoting forgets it",
        ),
        pytest.param(
            an_upgrade(ASKED, changed=9_999),
            (None, None, False),
            id="an abort ends when its annotation is taken away",
        ),
        pytest.param(
            an_upgrade(annotations=held(abort="true"), active=a_view("green")),
            (None, None, True),
            id="the active cluster is all that is asked for",
        ),
        pytest.param(
            an_upgrade(
                annotations=held(abort="true", pause="true"),
                active=None,
                names=Names(pending="green"),
            ),
            (None, None, False),
            id="a first start",
        ),
    ],
)
def test_what_bears_on_an_upgrade(
    observed: Observed, expected: tuple[Reason | None, Reason | None, bool]
) -> None:
    assert orders(observed) == expected
