"""The report counts every rule, and tells of each violation what led to it."""

import io

import pytest
from rich.console import Console

from chaos import report
from chaos.checker.evidence import Violation
from chaos.checker.gaps import Gap
from chaos.report import LAST, RULES, Entry, Report

VIOLATION = Violation(rule="one head", about="ns/c", text="2 heads at once", at=60.0)
LATE = Violation(rule="no long gap", about="probe-1", text="probe-1 waited 1.1 s", at=70.0)
TIMELINE = [Entry(float(second), ("", "ns/c", "ns/other")[second % 3], f"event {second}") for second in range(200)]


def a_report(*violations: Violation) -> Report:
    gap = Gap(fault="kill -9", waits=3, p50=0.1, longest=12.0, probe="probe-1", began=5.0, limit=10.0, over_limit=1)
    return Report(
        seed=7,
        minutes=5.0,
        replicas=4,
        faults=20,
        changes=200,
        states=1000,
        writes=500,
        against_leases=400,
        with_base=450,
        autoscaled=3,
        machine_percent=55.5,
        watches={},
        unreconciled=[],
        gaps=[gap],
        violations=list(violations),
        timeline=TIMELINE,
    )


def shown(found: Report) -> str:
    out = io.StringIO()
    report.show(found, Console(file=out, width=150))
    return out.getvalue()


def test_the_last_events_before_it_that_concern_it() -> None:
    led = a_report(VIOLATION).leading_to(VIOLATION)
    assert {each.about for each in led} == {"", "ns/c"}
    assert len(led) <= LAST
    assert [led[-1].text, max(each.at for each in led)] == ["event 61", 61.0]


@pytest.mark.parametrize(
    ("violations", "is_only_late"), [((), False), ((LATE,), True), ((LATE, VIOLATION), False), ((VIOLATION,), False)]
)
def test_only_limits_in_seconds_are_put_down_to_the_machine(
    violations: tuple[Violation, ...], is_only_late: bool
) -> None:
    assert a_report(*violations).is_only_late is is_only_late


def test_people_see_every_rule_the_gaps_and_how_to_do_it_again() -> None:
    text = shown(a_report(VIOLATION))
    assert all(rule in text for rule in RULES)
    assert "400 writes, against the Leases" in text
    assert "10 s, 1 over" in text
    assert "VIOLATION at 60.0 s: one head: ns/c: 2 heads at once" in text
    assert "python -m chaos --seed 7 --minutes 5 --replicas 4" in text


def test_without_a_violation_nothing_is_told_twice() -> None:
    text = shown(a_report())
    assert "VIOLATION" not in text
    assert "event 61" not in text


def test_programs_get_what_led_to_it_and_no_more() -> None:
    assert '"event 60"' in report.encode(a_report(VIOLATION))
    assert '"event 61"' not in report.encode(a_report())
