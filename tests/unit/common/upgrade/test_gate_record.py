"""The record of gates, in every state that the writers of its object can leave."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from common.upgrade import gate_record, traffic_record
from common.upgrade.gate_record import Current, GateState, RecordedFigures, StepVerdicts, Verdict
from common.upgrade.gates import GateOutcome
from common.upgrade.traffic_record import RecordedUpgrade

NOW = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)


def a_verdict(outcome: str = "Pass", text: str = "errorRate: 0 of 100 requests failed") -> Verdict:
    return Verdict(
        gate="errorRate", outcome=outcome, at=NOW, requests=100, value=0.0, limit=0.01, text=text
    )


def a_state(
    outcome: str = "Pass", *, waits: bool = False, latest: RecordedFigures | None = None
) -> GateState:
    state = GateState(
        gate="errorRate", outcome=outcome, at=NOW, waits=waits, text="errorRate: first"
    )
    return state if latest is None else msgspec.structs.replace(state, latest=latest)


def an_upgrade(*steps: StepVerdicts, current: Current | None = None) -> RecordedUpgrade:
    held = RecordedUpgrade(
        old="blue", new="green", began_at=NOW, max_capacity=100, min_capacity=100
    )
    held = msgspec.structs.replace(held, steps=steps) if steps else held
    return held if current is None else msgspec.structs.replace(held, gates=current)


def test_the_last_steps_are_kept_and_fit_into_an_annotation() -> None:
    steps = [
        StepVerdicts(weight=each, since=NOW, gates=(a_verdict(text="x" * 200),) * 10)
        for each in range(1, 100)
    ]
    found = gate_record.bounded(steps)
    assert [each.weight for each in found] == list(range(100 - len(found), 100))
    assert len(found) >= 3
    assert len(msgspec.json.encode(found)) <= 16 * 1024
    assert len(gate_record.bounded([StepVerdicts(weight=1, since=NOW, gates=())] * 30)) == 20


@pytest.mark.parametrize("text", ["\x1b[2Jgone", "a\x00b\u202e", "x" * 1000])
def test_texts_are_bounded_and_hold_no_control_characters(text: str) -> None:
    step = StepVerdicts(weight=1, since=NOW, gates=(a_verdict(outcome=text, text=text),) * 20)
    current = Current(
        weight=1,
        since=NOW,
        written_at=NOW,
        gates=(GateState(gate=text, outcome="Pass", at=NOW),) * 20,
    )
    upgrade = an_upgrade(step, current=current)
    shown = traffic_record.gates_of(upgrade)
    assert shown is not None
    (past,) = traffic_record.past_steps(upgrade)
    for each in (*past.gates, *shown.gates):
        assert not {"\x1b", "\x00", "\u202e"} & set(each.text + each.gate + each.outcome)
        assert len(each.text) <= 200 >= len(each.gate)
    assert (len(past.gates), len(shown.gates)) == (10, 10)


def test_without_gates_there_is_nothing_to_show() -> None:
    assert traffic_record.gates_of(None) is None
    assert traffic_record.gates_of(an_upgrade()) is None
    assert traffic_record.steps_of(None) == ()


def test_the_present_step_follows_those_that_are_over_with_the_figures_of_its_verdicts() -> None:
    state = a_state(latest=RecordedFigures(requests=500, text="errorRate: later"))
    current = Current(weight=50, since=NOW + timedelta(seconds=9), written_at=NOW, gates=(state,))
    steps = traffic_record.steps_of(
        an_upgrade(StepVerdicts(weight=10, since=NOW, gates=(a_verdict(),)), current=current)
    )
    assert [each.weight for each in steps] == [10, 50]
    assert type(steps[1].gates[0]) is Verdict
    assert steps[1].gates[0].text == "errorRate: first"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["Pass", "Pass"], GateOutcome.PASS),
        (["Pass", "Inconclusive"], GateOutcome.INCONCLUSIVE),
        (["Inconclusive", "Fail"], GateOutcome.FAIL),
        (["Pass", "Maybe"], GateOutcome.INCONCLUSIVE),
    ],
)
def test_one_outcome_stands_for_all_gates(outcomes: list[str], expected: GateOutcome) -> None:
    assert gate_record.overall(map(a_verdict, outcomes)) is expected


def test_a_gate_has_a_verdict_when_it_passed_or_failed_or_the_step_waits_for_it() -> None:
    states = [
        a_state("Pass"),
        a_state("Fail"),
        a_state("Inconclusive", waits=True),
        a_state("Inconclusive"),
    ]
    assert [gate_record.is_verdict(each) for each in states] == [True, True, True, False]


def test_the_sentence_has_the_weight_the_time_and_the_newest_figures() -> None:
    state = a_state(
        latest=RecordedFigures(requests=500, text="errorRate: 1 of 500 requests failed")
    )
    current = Current(
        weight=10, since=NOW, written_at=NOW, gates=(state, a_state("Inconclusive", waits=True))
    )
    assert gate_record.sentence(current) == (
        "At 10 percent since 12:00:05: Pass: errorRate: 1 of 500 requests failed; Inconclusive: errorRate: first"
    )
