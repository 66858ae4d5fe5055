"""The goals of all benchmarks in one table."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from bench import goals, upgrades
from bench.goals import FigureGoal
from bench.upgrades import UpgradeContender, UpgradeDurations, UpgradesResult


def a_goal(*, is_reached: bool | None) -> FigureGoal:
    return FigureGoal(figure="wall time", value="22.3 s", goal="0.85 × peer", is_reached=is_reached)


@pytest.mark.parametrize(
    ("is_reached", "code", "verdict"),
    [(True, 0, "reached"), (False, 1, "missed"), (None, 0, "not judged")],
)
def test_a_missed_goal_ends_with_1_and_one_that_cannot_be_judged_does_not(
    tmp_path: Path, *, is_reached: bool | None, code: int, verdict: str
) -> None:
    assert goals.judged("clusters", [a_goal(is_reached=is_reached)], folder=tmp_path) == code
    found = goals.read(tmp_path)
    assert len(found.missed) == code
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(goals.table(found))
    text = console.export_text()
    assert [
        part in text for part in ("clusters", "wall time", "22.3 s", "0.85 × peer", verdict)
    ] == [True] * 5


def test_each_benchmark_replaces_its_own_goals_only(tmp_path: Path) -> None:
    goals.judged("start", [a_goal(is_reached=False)], folder=tmp_path)
    goals.judged("clusters", [a_goal(is_reached=True)], folder=tmp_path)
    goals.judged("start", [a_goal(is_reached=True)], folder=tmp_path)
    found = goals.read(tmp_path)
    assert ([each.benchmark for each in found.benchmarks], found.missed) == (
        ["clusters", "start"],
        [],
    )


def upgraded(
    name: str, *totals: float, blue_green: float = 20.0, moving: float = 6.0
) -> UpgradeContender:
    steps = [
        UpgradeDurations(total=each, accepted=0.5, ready=9.0, carrying=3.0, moving=moving)
        for each in totals
    ]
    return UpgradeContender(
        name=name, in_steps=steps, blue_green=[UpgradeDurations(total=blue_green, accepted=0.5)]
    )


@pytest.mark.parametrize(
    ("contenders", "expected"),
    [
        ([upgraded("raybus", 40.0, 41.0)], [True, True, None, None]),
        ([upgraded("raybus", 40.0, 44.1)], [True, False, None, None]),
        ([upgraded("raybus", 40.0, moving=6.31)], [False, True, None, None]),
        ([upgraded("raybus", 40.0, 50.0, 41.0), upgraded("peer", 41.0)], [True, True, True, False]),
        (
            [upgraded("raybus", 40.0, blue_green=17.9), upgraded("peer", 39.9)],
            [True, True, False, True],
        ),
    ],
)
def test_upgrades_are_judged_by_the_rule_the_first_one_and_the_median_of_the_peer(
    contenders: list[UpgradeContender], expected: list[bool | None]
) -> None:
    found = UpgradesResult(contenders=contenders)
    assert [goal.is_reached for goal in found.goals] == expected
    assert upgrades.table(found).row_count == sum(
        len(each.in_steps) + len(each.blue_green) for each in contenders
    )
