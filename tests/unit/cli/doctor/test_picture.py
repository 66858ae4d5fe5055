"""The report of doctor: categories, marks, remedies, hints, and the result."""

import pytest

from raybus_cli.doctor import check, cli
from raybus_cli.doctor.check import Category, Check, CheckState, Hint
from support.terminal import text_of

FOUND = [
    *check.categorize(
        Category.KUBERNETES,
        Hint.INSTALL,
        Check(name="Kubernetes", state=CheckState.OK, text="v1.34.2"),
    ),
    *check.categorize(
        Category.NATS,
        Hint.NATS,
        Check(name="nats", state=CheckState.FAILED, text="is scaled to 0 …", remedy="scale it"),
        Check(
            name="NATS certificate",
            state=CheckState.WARNING,
            text="good until 2026-01-02",
            remedy="replace it",
        ),
        Check(name="leader", state=CheckState.UNKNOWN, text="you may not read Leases"),
    ),
]


def test_every_check_has_a_mark_and_a_fault_its_remedy_and_page() -> None:
    assert text_of(cli.draw(FOUND)).splitlines() == [
        "Kubernetes",
        "√ Kubernetes: v1.34.2",
        "",
        "NATS",
        "× nats: is scaled to 0 …",
        "  → scale it",
        "  → see docs/nats.md#topology",
        "‼ NATS certificate: good until 2026-01-02",
        "  → replace it",
        "  → see docs/nats.md#topology",
        "? leader: you may not read Leases",
        "",
        "Result × 1 failed, 1 with a warning, 1 unknown, 1 passed",
    ]


def test_an_output_that_is_not_utf_8_gets_ascii() -> None:
    shown = text_of(cli.draw(FOUND, is_ascii=True))
    assert shown.isascii()
    assert "+ Kubernetes: v1.34.2" in shown
    assert "x nats: is scaled to 0 ?\n  -> scale it" in shown
    assert "! NATS certificate" in shown


@pytest.mark.parametrize(
    ("states", "result"),
    [
        ([CheckState.OK, CheckState.OK], "Result √ 2 passed"),
        ([CheckState.OK, CheckState.UNKNOWN], "Result √ 1 unknown, 1 passed"),
        ([CheckState.UNKNOWN], "Result ? 1 unknown"),
        ([CheckState.WARNING, CheckState.OK], "Result ‼ 1 with a warning, 1 passed"),
    ],
)
def test_the_last_line_is_the_result(states: list[CheckState], result: str) -> None:
    found = [Check(name="a", state=each, text="b") for each in states]
    assert text_of(cli.draw(found)).splitlines()[-1] == result
