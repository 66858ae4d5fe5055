import pytest

from cluster_reconciler.observed import described, irrecoverable
from common.api.core import Pod
from support.builders.pods import a_pod


@pytest.mark.parametrize(
    ("pod", "due"),
    [
        pytest.param(
            a_pod("p", phase="Failed"), True, id="a failed pod goes whatever its restart policy"
        ),
        pytest.param(a_pod("p", phase="Succeeded"), True, id="a pod that ended well goes too"),
        pytest.param(
            a_pod("p", ended=True, restart_policy="Never"),
            True,
            id="an ended container that may not restart",
        ),
        pytest.param(a_pod("p", ended=True), False, id="an ended container that restarts"),
        pytest.param(
            a_pod("p", ended=True, restart_policy="OnFailure"),
            False,
            id="one that restarts on failure",
        ),
        pytest.param(
            a_pod("p", waiting=("CrashLoopBackOff", "")), False, id="a crash loop is left alone"
        ),
        pytest.param(a_pod("p", phase="Pending"), False, id="a pending pod is left alone"),
        pytest.param(
            a_pod("p", phase="Unknown", ended=True, restart_policy="Never"),
            False,
            id="an unknown phase",
        ),
        pytest.param(
            a_pod("p", phase="Failed", terminating=True),
            False,
            id="a pod that goes already is not asked again",
        ),
    ],
)
@pytest.mark.acceptance("raycluster", 43, 44, 60, 61)
def test_only_a_pod_that_cannot_recover_is_due(pod: Pod, due: bool) -> None:
    assert bool(irrecoverable(pod)) is due


def test_the_reason_names_the_phase_and_the_pod() -> None:
    reason = irrecoverable(a_pod("p", phase="Failed"))
    assert reason.startswith("The worker Pod p status is Failed which is a terminal state.")


def test_the_state_is_reported_as_kuberay_reports_it() -> None:
    assert described(a_pod("p", phase="Failed", restart_policy="Never")) == (
        "Pod status: Failed; Pod restart policy: Never; Ray container terminated status: nil"
    )
