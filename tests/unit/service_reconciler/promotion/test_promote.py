"""The result of a gate on the requests before the switch: it may pass on some of a warm-up, and
fail only on all of it (ADR 37).
"""

import pytest

from common.ray.request_metrics import Requests
from common.upgrade.gate_types import Gate, Metric
from common.upgrade.gates import GateOutcome, Window
from common.upgrade.policy import WarmUpProgress
from service_reconciler.promotion import promote

ERRORS = Gate(metric=Metric.ERROR_RATE, max=0.01, min_requests=40)


@pytest.mark.parametrize(
    ("failed", "counted", "wanted", "expected"),
    [
        pytest.param(44, 44, 400, GateOutcome.INCONCLUSIVE, id="the first ones alone"),
        pytest.param(44, 399, 400, GateOutcome.INCONCLUSIVE, id="all but one"),
        pytest.param(44, 400, 400, GateOutcome.FAIL, id="all"),
        pytest.param(44, 500, 400, GateOutcome.FAIL, id="all, and those of a preview"),
        pytest.param(44, 44, None, GateOutcome.FAIL, id="without a warm-up"),
        pytest.param(0, 300, 400, GateOutcome.PASS, id="good ones"),
    ],
)
def test_no_gate_fails_on_a_part_of_a_warm_up(
    failed: int, counted: int, wanted: int | None, expected: GateOutcome
) -> None:
    window = Window(active={}, pending={"": Requests(total=counted, errors=failed)})
    warm_up = None if wanted is None else WarmUpProgress(wanted=wanted)
    assert promote.judge_gate(ERRORS, window, warm_up).outcome is expected
