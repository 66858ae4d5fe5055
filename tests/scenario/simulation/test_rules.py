"""The rules of the simulation can be broken: by a bad turn, and by services that were made to do wrong."""

from typing import Any

import msgspec
import pytest

from scenario.simulation import sabotage
from scenario.simulation.rollouts import end_of, simulated
from scenario.simulation.setting import Setting
from support.laws import upgrade_moments
from support.laws.upgrade_moments import Moment
from support.tables import cases

BEFORE = Moment(
    at=0,
    active="blue",
    pending="green",
    clusters=frozenset({"blue", "green"}),
    weights={"blue": 75, "green": 25},
    effective={"blue": 75, "green": 25},
    capacities={"blue": 100, "green": 50},
    configs={"blue": "v1", "green": "v2"},
    seen_ready={"blue": 100, "green": 40},
    surge=50,
)


def a_turn(*, before: dict[str, Any] | None = None, **after: Any) -> list[str]:
    """Return what a turn breaks that changes some of what was."""
    start = msgspec.structs.replace(BEFORE, **(before or {}))
    return list(upgrade_moments.violations(start, msgspec.structs.replace(start, **after)))


@cases(
    ("after", "expected"),
    {
        "a share is lost": ({"weights": {"blue": 75, "green": 20}}, "do not sum to 100"),
        "more than was seen": ({"weights": {"blue": 50, "green": 50}}, "seen ready for 40"),
        "more than the surge": ({"capacities": {"blue": 100, "green": 75}}, "175 percent exceed"),
        "capacity before traffic": ({"capacities": {"blue": 50, "green": 50}}, "sends it 75"),
        "a weight on nothing": (
            {"clusters": frozenset({"blue"}), "gone_for": {"green": 9.0}},
            "is gone for 9 s",
        ),
        "the config of the active one": (
            {"configs": {"blue": "v2", "green": "v2"}},
            "changed in an upgrade",
        ),
        "a cluster that nobody named": ({"clusters": BEFORE.clusters | {"red"}}, "red was created"),
        "promoted with traffic left": ({"active": "green", "pending": ""}, "promoted too early"),
        "deleted with traffic": ({"clusters": frozenset({"green"})}, "deleted while the Gateway"),
    },
)
def test_a_bad_turn_is_named(after: dict[str, Any], expected: str) -> None:
    assert any(expected in each for each in a_turn(**after))


@cases(
    ("after", "expected"),
    {
        "the Service moves too early": ({"selected": "green"}, "was seen ready for 40"),
        "deleted in service": (
            {"clusters": frozenset({"green"})},
            "while the Serve Service selects it",
        ),
    },
)
def test_a_bad_turn_without_a_route_is_named(after: dict[str, Any], expected: str) -> None:
    before: dict[str, Any] = {"weights": None, "effective": {}, "selected": "blue"}
    assert any(expected in each for each in a_turn(before=before, **after))


@cases(
    ("before", "after"),
    {
        "a step onto what was seen": ({}, {"weights": {"blue": 65, "green": 35}}),
        "nothing moves": (
            {"sick": frozenset({"green"})},
            {"capacities": {"blue": 100, "green": 50}},
        ),
        "the other one is sick, so its capacity does not count": (
            {"sick": frozenset({"green"}), "capacities": {"blue": 50, "green": 100}},
            {"capacities": {"blue": 100, "green": 100}},
        ),
        "a capacity returns to its record after a lost write": (
            {"recorded": {"blue": 100}, "capacities": {"blue": 90, "green": 100}},
            {"recorded": {"blue": 100}, "capacities": {"blue": 100, "green": 100}},
        ),
        "a rollback under options that allow no step": (
            {"is_back": True, "may_hurry": True, "capacities": {"blue": 50, "green": 100}},
            {"capacities": {"blue": 100, "green": 100}},
        ),
        "nobody else has a capacity": (
            {"capacities": {"blue": 100}},
            {"weights": {"blue": 100, "green": 0}},
        ),
        "the RayService is deleted": ({}, {"weights": {"blue": 50, "green": 40}, "is_going": True}),
        "promoted after all has moved": (
            {"weights": {"blue": 0, "green": 100}, "capacities": {"blue": 0, "green": 100}},
            {"active": "green", "pending": ""},
        ),
    },
)
def test_a_good_turn_breaks_nothing(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert a_turn(before=before, **after) == []


@pytest.mark.parametrize(
    ("sabotaged", "expected"),
    [
        (sabotage.gullible, "was seen ready for"),
        (sabotage.greedy, "exceed a surge of 50"),
        (sabotage.hasty, "changed in an upgrade"),
    ],
)
async def test_services_that_do_wrong_are_caught(
    sabotaged: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotaged(monkeypatch)
    sim = await simulated(Setting(slow=1.0, seed=1))
    await end_of(sim)
    assert any(expected in each for each in sim.judge.broken)
