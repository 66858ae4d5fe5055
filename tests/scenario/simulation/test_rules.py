"""The rules of the simulation can be broken: by a bad turn, and by services that were made to do wrong."""

from typing import Any

import msgspec
import pytest

from scenario.simulation import rules, sabotage
from scenario.simulation.rollouts import end_of, simulated
from scenario.simulation.rules import Moment
from scenario.simulation.setting import Setting

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
    return list(rules.violations(start, msgspec.structs.replace(start, **after)))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(
            {"weights": {"blue": 75, "green": 20}}, "do not sum to 100", id="a share is lost"
        ),
        pytest.param(
            {"weights": {"blue": 50, "green": 50}}, "seen ready for 40", id="more than was seen"
        ),
        pytest.param(
            {"capacities": {"blue": 100, "green": 75}},
            "175 percent exceed",
            id="more than the surge",
        ),
        pytest.param(
            {"capacities": {"blue": 50, "green": 50}}, "sends it 75", id="capacity before traffic"
        ),
        pytest.param(
            {"clusters": frozenset({"blue"}), "gone_for": {"green": 9.0}},
            "is gone for 9 s",
            id="a weight on nothing",
        ),
        pytest.param(
            {"configs": {"blue": "v2", "green": "v2"}},
            "changed in an upgrade",
            id="the config of the active one",
        ),
        pytest.param(
            {"clusters": BEFORE.clusters | {"red"}},
            "red was created",
            id="a cluster that nobody named",
        ),
        pytest.param(
            {"active": "green", "pending": ""},
            "promoted too early",
            id="promoted with traffic left",
        ),
        pytest.param(
            {"clusters": frozenset({"green"})},
            "deleted while the Gateway",
            id="deleted with traffic",
        ),
    ],
)
def test_a_bad_turn_is_named(after: dict[str, Any], expected: str) -> None:
    assert any(expected in each for each in a_turn(**after))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(
            {"selected": "green"}, "was seen ready for 40", id="the Service moves too early"
        ),
        pytest.param(
            {"clusters": frozenset({"green"})},
            "while the Serve Service selects it",
            id="deleted in service",
        ),
    ],
)
def test_a_bad_turn_without_a_route_is_named(after: dict[str, Any], expected: str) -> None:
    before: dict[str, Any] = {"weights": None, "effective": {}, "selected": "blue"}
    assert any(expected in each for each in a_turn(before=before, **after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"weights": {"blue": 65, "green": 35}}, id="a step onto what was seen"),
        pytest.param(
            {"sick": frozenset({"green"})},
            {"capacities": {"blue": 100, "green": 50}},
            id="nothing moves",
        ),
        pytest.param(
            {"sick": frozenset({"green"}), "capacities": {"blue": 50, "green": 100}},
            {"capacities": {"blue": 100, "green": 100}},
            id="the other one is sick, so its capacity does not count",
        ),
        pytest.param(
            {"recorded": {"blue": 100}, "capacities": {"blue": 90, "green": 100}},
            {"recorded": {"blue": 100}, "capacities": {"blue": 100, "green": 100}},
            id="a capacity returns to its record after a lost write",
        ),
        pytest.param(
            {"is_back": True, "may_hurry": True, "capacities": {"blue": 50, "green": 100}},
            {"capacities": {"blue": 100, "green": 100}},
            id="a rollback under options that allow no step",
        ),
        pytest.param(
            {"capacities": {"blue": 100}},
            {"weights": {"blue": 100, "green": 0}},
            id="nobody else has a capacity",
        ),
        pytest.param(
            {},
            {"weights": {"blue": 50, "green": 40}, "is_going": True},
            id="the RayService is deleted",
        ),
        pytest.param(
            {"weights": {"blue": 0, "green": 100}, "capacities": {"blue": 0, "green": 100}},
            {"active": "green", "pending": ""},
            id="promoted after all has moved",
        ),
    ],
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
    assert any(expected in each for each in sim.broken)
