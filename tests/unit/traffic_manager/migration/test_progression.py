"""The result of the gates of an UpgradePolicy at a weight."""

import random

import pytest

from common.ray.request_metrics import ALL, Requests, Sample
from common.upgrade import gates
from common.upgrade import policy as upgrade_policy
from common.upgrade.gates import GateOutcome, Window
from common.upgrade.windows import MAX_RECENT_POLLS
from support.builders.upgrade_policy import a_policy
from traffic_manager.migration import progression

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
    [
        (a_sample(200), GateOutcome.PASS),
        (a_sample(3), GateOutcome.INCONCLUSIVE),
        (a_sample(900, 400), GateOutcome.FAIL),
    ],
    ids=["enough requests", "too few requests", "too many errors"],
)
def test_each_gate_has_a_result_in_the_policys_order(
    weight: int, pending: Sample, outcome: GateOutcome
) -> None:
    found = judge(weight, pending)
    assert [each.gate for each in found.results] == list(POLICY.gates)
    assert [each.outcome for each in found.results] == [outcome, GateOutcome.INCONCLUSIVE]


def test_before_any_traffic_and_any_mirrored_request_no_gate_is_evaluated() -> None:
    assert judge(0, None) == progression.Judgement()


def test_a_step_without_a_read_of_requests_has_inconclusive_gates() -> None:
    assert [each.outcome for each in judge(10, None).results] == [GateOutcome.INCONCLUSIVE] * 2


def recent(number: int, total: int, errors: int) -> Window:
    return Window(number=number, active=a_sample(1000), pending=a_sample(total, errors))


def judge_with(*found: Window, pending: Sample) -> progression.Judgement:
    return progression.judge(
        POLICY, Window(active=a_sample(1000), pending=pending, recent=found), 10
    )


def test_a_window_within_the_step_fails_by_itself_where_the_whole_step_does_not() -> None:
    found = judge_with(recent(1, 40_000, 0), recent(2, 500, 50), pending=a_sample(100_000, 50))
    assert found.failed == "errorRate: 50 of 500 requests failed (10%), at most 1% allowed"
    assert found.results[0].outcome is GateOutcome.FAIL
    assert judge_with(recent(1, 500, 4), pending=a_sample(100_000, 50)).failed is None


def test_a_window_within_the_step_passes_nothing() -> None:
    found = judge_with(recent(1, 500, 0), pending=a_sample(3))
    assert found.results[0].outcome is GateOutcome.INCONCLUSIVE


def test_later_windows_within_the_step_need_more_evidence() -> None:
    least = {
        number: next(
            each for each in range(100) if judge_with(recent(number, 500, each), pending={}).failed
        )
        for number in (1, 2, 100)
    }
    assert least[1] < least[2] < least[100]


def test_all_windows_of_a_step_have_its_probability_of_a_false_alarm_at_most() -> None:
    parts = [gates.windows_of(4), *(gates.windows_of(4, number) for number in range(1, 10_000))]
    assert sum(1 / each for each in parts) == pytest.approx(1 / 4, rel=1e-3)
    assert sum(1 / each for each in parts) <= 1 / 4


STRICT = upgrade_policy.read(
    "strict",
    {
        "steps": [{"weight": 10}, {"weight": 100}],
        "gates": [
            {"metric": "errorRate", "max": "1%"},
            {"metric": "errorRate", "maxIncrease": "0%"},
        ],
    },
)
"""The strictest policy that an equal version meets: with gates at the limit, and with no growth
allowed."""


def _since(mark: tuple[int, int], now: list[int]) -> Sample:
    """Return what was counted after a mark."""
    return a_sample(now[0] - mark[0], now[1] - mark[1])


def fails_in_a_step(
    seed: int, *, minutes: int, rate: int, late: float = 0.01, since: int = 0
) -> int | None:
    """Return the second in which a step of a version with 1 % errors fails, None if it does not;
    from the minute `since` on its error rate is `late`.
    """
    rng = random.Random(seed)
    counts = {"active": [0, 0], "pending": [0, 0]}
    marks: list[dict[str, tuple[int, int]]] = []
    for second in range(0, 60 * minutes, 5):
        rates = {"active": 0.01, "pending": late if second >= 60 * since else 0.01}
        for name, found in counts.items():
            found[0] += 5 * rate
            found[1] += sum(rng.random() < rates[name] for _ in range(5 * rate))
        recent = tuple(
            Window(
                number=number,
                active=_since(mark["active"], counts["active"]),
                pending=_since(mark["pending"], counts["pending"]),
            )
            for number, mark in list(enumerate(marks, 1))[-MAX_RECENT_POLLS:]
        )
        window = Window(
            active=a_sample(*counts["active"]), pending=a_sample(*counts["pending"]), recent=recent
        )
        if progression.judge(STRICT, window, 10).failed is not None:
            return second
        if second % 60 == 55:
            marks.append({name: (total, errors) for name, (total, errors) in counts.items()})
    return None


@pytest.mark.parametrize(
    ("steps", "minutes"),
    [(40, 10), pytest.param(150, 20, marks=pytest.mark.long)],
    ids=["ten minutes", "twenty minutes"],
)
def test_of_long_steps_of_an_equal_version_at_most_one_in_a_hundred_fails(
    steps: int, minutes: int
) -> None:
    found = [fails_in_a_step(seed, minutes=minutes, rate=5) for seed in range(steps)]
    assert sum(each is not None for each in found) <= steps * gates.ALPHA


def test_errors_that_begin_after_ten_minutes_are_found_within_two() -> None:
    found = [fails_in_a_step(seed, minutes=13, rate=20, late=0.06, since=10) for seed in range(5)]
    assert all(each is not None and 600 <= each <= 720 for each in found), found
