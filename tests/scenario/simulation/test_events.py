"""Upgrade events are published completely, in order, whatever dies around publishing; and each rule for that can be broken."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from common.runtime.actions import Publish
from common.upgrade.events import Paused
from scenario.simulation.faults import FAULTS
from scenario.simulation.rollouts import begun, end_of, simulated
from scenario.simulation.setting import Setting
from service_reconciler import upgrade_events
from support.laws import published_events
from support.simulator.simulator import GREEN
from support.simulator.writes import Killed

pytestmark = pytest.mark.long

KINDS = ["NewClusterWithIncrementalUpgrade", "NewCluster"]
PUBLISHED = {"NewClusterWithIncrementalUpgrade": 13, "NewCluster": 5}
"""Number of events of an upgrade, by strategy."""


def deaths(kind: str, *, every: int) -> list[tuple[str, str, int]]:
    """Return before and after which event a process dies."""
    cases = [
        (kind, side, number)
        for number in range(1, PUBLISHED[kind] + 1)
        for side in ("before", "after")
    ]
    return cases[::every]


@pytest.mark.acceptance("rayservice", 53)
@pytest.mark.parametrize(
    ("kind", "side", "number"), [*deaths(KINDS[0], every=5), *deaths(KINDS[1], every=3)]
)
async def test_a_death_around_an_event_loses_none(kind: str, side: str, number: int) -> None:
    sim = await begun(Setting(kind=kind))
    sim.writes.kill_at_publish = (side, number)
    sim.ask(GREEN)
    await end_of(sim)
    assert (sim.writes.kill_at_publish, sim.judge.broken, published_events.broken(sim)) == (
        None,
        [],
        [],
    )
    assert len(sim.events.unique()) == PUBLISHED[kind]


@pytest.mark.parametrize("seed", range(3))
async def test_many_deaths_at_random_lose_none(seed: int) -> None:
    """Each reconciling process dies, before or after one in eight of its writes and events."""
    sim = await begun(Setting(seed=seed + 1, slow=1.0))
    rng = random.Random(seed)

    def die(_side: str = "") -> None:
        if sim.is_reconciling and rng.random() < 1 / 8:
            raise Killed

    sim.events.on_publish.append(die)
    sim.kube.faults.append(lambda request: die() if request.verb not in {"get", "list"} else None)
    sim.ask(GREEN)
    await end_of(sim, within=400)
    assert (sim.judge.broken, published_events.broken(sim)) == ([], [])


def _forgets_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every second step of traffic-manager unpublished."""
    honest, seen = upgrade_events.steps, set[str]()

    def steps(*args: Any, **kwargs: Any) -> Any:
        for each in honest(*args, **kwargs):
            seen.add(each.id)
            if len(seen) % 2:
                yield each

    monkeypatch.setattr(upgrade_events, "steps", steps)


def _forgets_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish no promotion."""
    honest = upgrade_events.of_status

    def of_status(*args: Any, **kwargs: Any) -> list[Publish]:
        return [each for each in honest(*args, **kwargs) if each.data.kind != "promoted"]

    monkeypatch.setattr(upgrade_events, "of_status", of_status)


def _invents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish another content each time that an event is repeated."""
    honest, count = upgrade_events.of_status, list[int]()

    def of_status(*args: Any, **kwargs: Any) -> Iterator[Publish]:
        for each in honest(*args, **kwargs):
            count.append(1)
            if isinstance(each.data, Paused):
                data = replace(each.data, message=f"{each.data.message}-{len(count)}")
                yield replace(each, data=data)
            else:
                yield each

    monkeypatch.setattr(upgrade_events, "of_status", of_status)


@pytest.mark.parametrize(
    ("sabotage", "expected"),
    [(_forgets_steps, "not published, or out of order"), (_forgets_the_end, "was not promoted")],
)
async def test_a_service_that_leaves_something_out_is_caught(
    sabotage: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    sim = await simulated(Setting())
    await end_of(sim)
    assert any(expected in each for each in published_events.broken(sim))


async def test_a_repetition_with_other_content_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    _invents(monkeypatch)
    paused = Setting(annotations={"raybus.io/pause": "true"})
    sim = await simulated(paused, FAULTS["service is down"], "configured")
    await sim.run(5)
    assert any("and then" in each for each in published_events.repetitions(sim))
