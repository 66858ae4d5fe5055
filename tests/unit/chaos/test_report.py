"""The report counts every rule, and has for each violation what led to it."""

import io

import pytest
from rich.console import Console

from chaos import report
from chaos.checker.evidence import Violation
from chaos.report import LAST, LISTED, REPORTED, RULES, Report
from unit.chaos.a_report import LATE, VIOLATION, a_report


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
    ("violations", "is_only_late"),
    [((), False), ((LATE,), True), ((LATE, VIOLATION), False), ((VIOLATION,), False)],
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
    assert "raybus-dev chaos --seed 7 --minutes 5 --replicas 4" in text


def test_the_last_lines_name_what_was_broken_and_are_few() -> None:
    lines = shown(a_report(*[VIOLATION] * 100, LATE)).splitlines()
    assert lines[-2].startswith("VIOLATION at 60.0 s: one head")
    assert lines[-1].startswith("101 violations")
    assert sum(line.startswith("VIOLATION") for line in lines) == LISTED + REPORTED


def test_without_a_violation_nothing_is_reported_twice() -> None:
    text = shown(a_report())
    assert "VIOLATION" not in text
    assert "event 61" not in text


def test_programs_get_what_led_to_it_and_no_more() -> None:
    assert '"event 60"' in report.encode(a_report(VIOLATION))
    assert '"event 61"' not in report.encode(a_report())
