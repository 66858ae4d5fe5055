"""The requests and limits that affect an upgrade: an abort, a pause, a deadline, and their
precedence.
"""

from common.upgrade.service_conditions import Reason
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion import control
from support.builders.upgrade import GENERATION, a_condition, a_view, an_upgrade, at
from support.tables import cases

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


@cases(
    ("observed", "expected"),
    {
        "a stall is reported": (an_upgrade(), (None, None, True)),
        "paused, not stalled": (
            an_upgrade(annotations=held(pause="true")),
            (None, Reason.PAUSE_REQUESTED, False),
        ),
        "paused at the deadline": (
            an_upgrade(annotations=held(on_deadline="Pause")),
            (None, Reason.PROGRESS_DEADLINE_EXCEEDED, True),
        ),
        "timed out at the deadline": (
            an_upgrade(annotations=held(on_deadline="Rollback")),
            (Reason.PROGRESS_DEADLINE_EXCEEDED, None, True),
        ),
        "there is nothing left to go back to": (
            an_upgrade(annotations=held(on_deadline="Rollback"), active=a_view("blue")),
            (None, None, True),
        ),
        "a rollback that stalls is only reported": (
            an_upgrade(BACK, annotations=held(on_deadline="Rollback")),
            (None, None, True),
        ),
        "a promoted upgrade is only reported": (
            an_upgrade(annotations=held(on_deadline="Rollback", promote="true")),
            (None, None, True),
        ),
        "promoted, not paused": (
            an_upgrade(annotations=held(pause="true", promote="true")),
            (None, None, True),
        ),
        "abort goes before promote": (
            an_upgrade(annotations=held(abort="true", promote="true")),
            (Reason.ABORT_REQUESTED, None, True),
        ),
        "aborted by number": (
            an_upgrade(annotations=held(abort=str(GENERATION))),
            (Reason.ABORT_REQUESTED, None, True),
        ),
        "another number": (an_upgrade(annotations=held(abort="2")), (None, None, True)),
        "a deadline's rollback is remembered": (
            an_upgrade(TIMED_OUT, changed=9_999),
            (Reason.PROGRESS_DEADLINE_EXCEEDED, None, False),
        ),
        "not for the next generation": (
            an_upgrade({**TIMED_OUT, "observedGeneration": GENERATION - 1}, changed=9_999),
            (None, None, False),
        ),
        "promoting forgets it": (
            an_upgrade(TIMED_OUT, changed=9_999, annotations=held(promote="true")),
            (None, None, False),
        ),
        "an abort ends when its annotation is taken away": (
            an_upgrade(ASKED, changed=9_999),
            (None, None, False),
        ),
        "the active cluster is all that is asked for": (
            an_upgrade(annotations=held(abort="true"), active=a_view("green")),
            (None, None, True),
        ),
        "a first start": (
            an_upgrade(
                annotations=held(abort="true", pause="true"),
                active=None,
                names=Names(pending="green"),
            ),
            (None, None, False),
        ),
    },
)
def test_what_bears_on_an_upgrade(
    observed: Observed, expected: tuple[Reason | None, Reason | None, bool]
) -> None:
    assert orders(observed) == expected
