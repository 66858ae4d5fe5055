"""What the gates of an UpgradePolicy come to at a weight."""

import pytest

from common.ray.request_metrics import ALL, Requests, Sample
from common.upgrade import policy as upgrade_policy
from common.upgrade.gates import Outcome
from support.builders.upgrade_policy import a_policy
from traffic_manager.migration import progression
from traffic_manager.observed import Window

SPEC = {
    "steps": [{"weight": 10}, {"weight": 100}],
    "gates": [{"metric": "errorRate", "max": "1%"}, {"metric": "latencyP95", "max": "1s"}],
}
POLICY = upgrade_policy.read("careful", a_policy(spec=SPEC)["spec"])


def a_sample(total: int, errors: int = 0) -> Sample:
    return {ALL: Requests(total=total, errors=errors)}


def judge(weight: int, pending: Sample | None) -> progression.Judgement:
    window = None if pending is None else Window(active=a_sample(1000), pending=pending)
    return progression.judge(POLICY, window, weight)


@pytest.mark.parametrize("weight", [10, 50, 100])
@pytest.mark.parametrize(
    ("pending", "outcome"),
    [(a_sample(200), Outcome.PASS), (a_sample(3), Outcome.INCONCLUSIVE), (a_sample(900, 400), Outcome.FAIL)],
    ids=["enough requests", "too few requests", "too many errors"],
)
def test_each_gate_has_a_result_in_the_policys_order(weight: int, pending: Sample, outcome: Outcome) -> None:
    found = judge(weight, pending)
    assert [each.gate for each in found.results] == list(POLICY.gates)
    assert [each.outcome for each in found.results] == [outcome, Outcome.INCONCLUSIVE]


def test_before_any_traffic_and_any_mirrored_request_no_gate_is_evaluated() -> None:
    assert judge(0, None) == progression.Judgement()


def test_a_step_without_a_read_of_requests_has_inconclusive_gates() -> None:
    assert [each.outcome for each in judge(10, None).results] == [Outcome.INCONCLUSIVE] * 2
