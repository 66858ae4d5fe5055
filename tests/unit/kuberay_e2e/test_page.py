"""The tables of docs/kuberay-suites.md: a part of a suite changes the lines of its own tests."""

from typing import Final

import msgspec
import pytest

from kuberay_e2e import page
from kuberay_e2e.declarations import Declarations
from kuberay_e2e.results import Outcome, SuiteRun, TestResult

REASON: Final = "no Docker here"
DECLARED: Final = msgspec.convert(
    {
        "environment": [],
        "patches": [],
        "exemptions": [{"test": "TestB/one_case", "reason": REASON}],
    },
    Declarations,
)
EMPTY: Final = """# Page

<!-- summary: begin -->
| suite | tests |
|---|---|
| e2e | |
<!-- summary: end -->

between

<!-- e2e: begin -->
<!-- e2e: end -->
"""


def record(text: str, *results: TestResult, is_whole: bool = False) -> str:
    run = SuiteRun(suite="e2e", code=0, results=list(results))
    return page.record(text, run, DECLARED, is_whole=is_whole)


def a_result(name: str, outcome: Outcome = Outcome.PASS, seconds: float = 2.4) -> TestResult:
    return TestResult(name=name, outcome=outcome, seconds=seconds)


def test_a_run_writes_a_line_for_each_test_in_order_and_the_summary() -> None:
    text = record(EMPTY, a_result("TestB/one_case", Outcome.SKIP, 0), a_result("TestA"))
    lines = text.splitlines()
    start = lines.index("| `e2e` | result | seconds |")
    assert lines[start + 2 : start + 4] == [
        "| A | pass | 2 |",
        f"| B: one case | skip: {REASON} | 0 |",
    ]
    assert "| e2e | 2 | 1 | 1 | 0 | 2 |" in lines
    assert "between" in lines


def test_a_part_of_a_suite_keeps_the_lines_of_the_other_tests() -> None:
    whole = record(EMPTY, a_result("TestA"), a_result("TestC"))
    part = record(whole, a_result("TestC", Outcome.FAIL, 9))
    assert "| A | pass | 2 |\n| C | fail | 9 |" in part
    assert "| e2e | 2 | 1 | 0 | 1 | 11 |" in part


def test_a_whole_run_removes_the_lines_of_tests_that_are_gone() -> None:
    whole = record(EMPTY, a_result("TestA"), a_result("TestC"))
    assert "| C |" not in record(whole, a_result("TestA"), is_whole=True)


def test_the_same_run_writes_the_same_page() -> None:
    once = record(EMPTY, a_result("TestA"))
    assert record(once, a_result("TestA")) == once


def test_a_page_without_a_place_for_the_suite_is_refused() -> None:
    with pytest.raises(ValueError, match="e2e: begin"):
        record("# Page\n", a_result("TestA"))
