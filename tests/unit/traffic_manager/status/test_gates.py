"""The content of the record about gates, and when it is written."""

from datetime import UTC, datetime, timedelta

import pytest

from common.upgrade.gate_record import Current, Verdict
from common.upgrade.gate_types import Gate, Metric
from common.upgrade.gates import GateOutcome, GateResult
from traffic_manager.status import gates

SINCE = datetime(2026, 1, 1, 12, tzinfo=UTC)
GATE = Gate(metric=Metric.ERROR_RATE, max=0.01)


def at(seconds: float) -> datetime:
    return SINCE + timedelta(seconds=seconds)


def a_result(
    outcome: GateOutcome = GateOutcome.INCONCLUSIVE,
    requests: int = 0,
    text: str = "errorRate: text",
) -> GateResult:
    value = None if requests == 0 else 0.5
    return GateResult(
        gate=GATE, outcome=outcome, requests=requests, value=value, limit=0.01, route="", text=text
    )


def a_step(
    *results: GateResult, seconds: float = 0, held: Current | None = None, waits: bool = False
) -> Current:
    return gates.update_step(held, results, 10, SINCE, waits=waits, now=at(seconds))


def a_new_step() -> Current:
    return gates.begin_step([Verdict(gate="errorRate", outcome="Pass", at=at(-60))], 10, now=SINCE)


def is_due(held: Current, *results: GateResult, seconds: float, waits: bool = False) -> bool:
    return gates.is_due(
        held, a_step(*results, seconds=seconds, held=held, waits=waits), now=at(seconds)
    )


def test_a_new_step_has_the_gates_of_the_last_one_without_figures() -> None:
    (state,) = a_new_step().gates
    assert (state.gate, state.outcome, state.requests, state.value) == (
        "errorRate",
        "Inconclusive",
        0,
        None,
    )


@pytest.mark.parametrize("outcome", [GateOutcome.PASS, GateOutcome.FAIL])
def test_a_changed_outcome_is_written_at_once(outcome: GateOutcome) -> None:
    assert is_due(a_new_step(), a_result(outcome, 100), seconds=1)


def test_that_a_step_waits_for_a_gate_is_written_at_once() -> None:
    held = a_step(a_result(), held=a_new_step())
    assert is_due(held, a_result(), seconds=1, waits=True)
    assert not is_due(held, a_result(), seconds=1)


@pytest.mark.parametrize(
    ("age", "pause"),
    [(0, 15), (200, 15), (600, 30), (3600, 180), (100_000, 300)],
    ids=lambda each: f"{each} s",
)
def test_figures_are_written_ever_less_often(age: int, pause: int) -> None:
    held = a_step(a_result(requests=1), seconds=age)
    # the pause grows while it lasts: a part of the age, that of the pause included
    grown = (
        max(pause, min(pause * gates.STEP_AGE_DIVISOR / (gates.STEP_AGE_DIVISOR - 1), 300))
        if pause > 15
        else pause
    )
    assert not is_due(held, a_result(requests=2), seconds=age + pause - 1)
    assert is_due(held, a_result(requests=2), seconds=age + grown + 1)


def test_the_same_figures_are_not_written_again() -> None:
    assert not is_due(a_step(a_result(requests=1)), a_result(requests=1), seconds=10_000)


def test_an_outcome_that_changes_to_and_fro_is_written_no_more_often_than_figures() -> None:
    passed = a_step(a_result(GateOutcome.PASS, 100), seconds=100, held=a_new_step())
    assert not is_due(passed, a_result(requests=101), seconds=110)
    assert is_due(passed, a_result(requests=101), seconds=115)


def test_a_week_without_an_end_costs_no_more_than_a_write_in_five_minutes() -> None:
    held, writes, seconds = a_new_step(), 0, 0
    while seconds < 7 * 86_400:
        seconds += 5
        outcome = GateOutcome.PASS if seconds % 2 else GateOutcome.INCONCLUSIVE
        new = a_step(a_result(outcome, seconds), seconds=seconds, held=held)
        if gates.is_due(held, new, now=at(seconds)):
            held, writes = new, writes + 1
    assert writes < 7 * 288 + 60


def test_a_verdict_keeps_its_figures_and_the_newest_are_beside_it() -> None:
    passed = a_step(a_result(GateOutcome.PASS, 100), seconds=5, held=a_new_step())
    later = a_step(a_result(GateOutcome.PASS, 400), seconds=60, held=passed)
    (state,) = later.gates
    assert (state.requests, state.at, state.figures.requests) == (100, at(5), 400)
    (same,) = a_step(a_result(GateOutcome.PASS, 100), seconds=60, held=later).gates
    assert same == passed.gates[0]


def test_figures_of_a_gate_without_a_verdict_are_replaced() -> None:
    held = a_step(a_result(requests=1), seconds=5)
    (state,) = a_step(a_result(requests=2), seconds=9, held=held).gates
    assert (state.requests, state.at, state.figures.requests) == (2, at(5), 2)


def test_another_weight_begins_anew() -> None:
    passed = a_step(a_result(GateOutcome.PASS, 100), seconds=5)
    (state,) = gates.update_step(
        passed, [a_result(GateOutcome.PASS, 1)], 50, at(9), waits=False, now=at(9)
    ).gates
    assert (state.at, state.requests) == (at(9), 1)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_no_json_can_hold_is_no_value(value: float) -> None:
    result = GateResult(
        gate=GATE, outcome=GateOutcome.FAIL, requests=1, value=value, limit=value, route="", text=""
    )
    (state,) = a_step(result).gates
    assert (state.value, state.limit) == (None, None)


def test_what_tenants_wrote_is_bounded_and_does_nothing_to_a_terminal() -> None:
    (state,) = a_step(a_result(text="\x1b[31m" + "x" * 5000)).gates
    assert state.text == "x" * 199 + "…" or (len(state.text) <= 200 and "\x1b" not in state.text)
    many = a_step(*[a_result()] * 50)
    assert len(many.gates) == 10


def test_gates_that_pass_now_are_reported_once() -> None:
    result = a_result(GateOutcome.PASS, 100, text="errorRate: fine")
    assert gates.list_newly_passed(a_new_step(), [result]) == ["errorRate: fine"]
    assert gates.list_newly_passed(None, [result, a_result()]) == ["errorRate: fine"]
    assert gates.list_newly_passed(a_step(result), [result]) == []


def test_a_gate_that_an_edit_puts_in_the_place_of_another_passes_for_the_first_time() -> None:
    held = a_step(a_result(GateOutcome.PASS, 100))
    assert gates.list_newly_passed(held, [a_result(GateOutcome.PASS, 200)]) == []
    other = Gate(metric=Metric.LATENCY, quantile=0.95, max=1.0)
    edited = GateResult(
        gate=other,
        outcome=GateOutcome.PASS,
        requests=200,
        value=0.5,
        limit=1.0,
        text="latencyP95: text",
    )
    assert gates.list_newly_passed(held, [edited]) == ["latencyP95: text"]
