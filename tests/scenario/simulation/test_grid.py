"""An upgrade into every fault at every point, under many settings: the rules hold at every turn, and it ends as it must.

Here runs a part of the grid that takes seconds; `pytest --sim-seeds N` runs all of it with N seeds. A failure prints its setting,
the seed included, and the trace turn by turn. Spec rayservice §8, §17, §21; acceptance 41-68.
"""

import random
from collections.abc import Iterator

import msgspec
import pytest

from scenario.simulation.faults import FAULTS, IN_ONE_STEP, POINTS, Fault
from scenario.simulation.rollouts import End, Ending, begun, end_of, simulated
from scenario.simulation.setting import Setting
from scenario.simulation.upgrade_simulator import AnyUpgrade
from support.laws import published_events
from support.simulator.simulator import GREEN

pytestmark = pytest.mark.long

SETTINGS = [(50, 25), (100, 100), (30, 7), (20, 5), (60, 60)]
WRITES = {"NewClusterWithIncrementalUpgrade": 40, "NewCluster": 14}
"""Approximate number of writes of an upgrade, by strategy."""
SPARSE = 19
"""One in this many cases runs without `--sim-seeds`."""
ENDED = {Ending.PROMOTED, Ending.ROLLED_BACK}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One run: a fault at a point, or a death around a write."""

    setting: Setting
    fault: str = ""
    point: str = ""
    write: int = 0
    side: str = ""

    def __str__(self) -> str:
        what = (
            f"{self.fault} at {self.point}"
            if self.fault
            else f"a death {self.side} write {self.write}"
        )
        return f"{what}, {self.setting}"


def a_setting(what: str, number: int, seed: int, kind: str) -> Setting:
    """Return the setting of a case: a known one in fixed order, or all drawn from the seed."""
    if seed == 0:
        surge, step = SETTINGS[number % len(SETTINGS)]
        return Setting(surge=surge, step=step, kind=kind)
    rng = random.Random(f"{what} {seed}")
    surge = (
        rng.choice([5, 10, 20, 30, 50, 60, 75, 100])
        if seed > 1
        else SETTINGS[number % len(SETTINGS)][0]
    )
    least = max(1, surge // 4)
    return Setting(
        surge=surge,
        step=rng.randint(min(least, surge), surge) if surge >= 10 else surge,
        interval=rng.choice([1, 1, 2]),
        kind=kind,
        seed=seed,
        slow=rng.choice([0.5, 1.0, 2.0]),
    )


def faults(seeds: int) -> Iterator[Case]:
    """Yield each fault at each point."""
    kinds = {"NewClusterWithIncrementalUpgrade": list(POINTS), "NewCluster": list(IN_ONE_STEP)}
    for kind, points in kinds.items():
        suited = [each for each in FAULTS.values() if kind != "NewCluster" or not each.needs_steps]
        pairs = [(fault.name, point) for fault in suited for point in points]
        for number, (fault, point) in enumerate(pairs):
            for seed in _seeds(number, seeds):
                setting = a_setting(f"{fault} {point}", number // SPARSE, seed, kind)
                yield Case(setting=setting, fault=fault, point=point)


def deaths(seeds: int) -> Iterator[Case]:
    """Yield a death before and after each write."""
    for kind, writes in WRITES.items():
        for number in range(2 * writes):
            side, write = ("before", "after")[number % 2], number // 2 + 1
            for seed in _seeds(number, seeds):
                setting = a_setting(f"{side} {write}", number // SPARSE, seed, kind)
                yield Case(setting=setting, write=write, side=side)


def _seeds(number: int, seeds: int) -> list[int]:
    if seeds:
        return list(range(seeds))
    return [number // SPARSE % 2] if number % SPARSE == 0 else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Lay out the grid."""
    seeds = int(metafunc.config.getoption("--sim-seeds") or 0)
    for name, cases in (("struck", faults), ("death", deaths)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, list(cases(seeds)), ids=str)


async def test_it_ends_whatever_happens(struck: Case) -> None:
    fault = FAULTS[struck.fault]
    sim = await simulated(struck.setting, fault, struck.point)
    end = await end_of(sim)
    expected = {Ending.GONE} if fault.name == "service deleted" else ENDED
    check(sim, end, expected, str(struck))


@pytest.mark.acceptance("rayservice", 53)
async def test_a_death_around_a_write_only_delays(death: Case) -> None:
    sim = await begun(death.setting)
    number = sim.writes.count + death.write
    if death.side == "before":
        sim.writes.kill_before = number
    else:
        sim.writes.kill_after = number
    sim.ask(GREEN)
    end = await end_of(sim)
    check(sim, end, {Ending.PROMOTED}, str(death))


@pytest.mark.parametrize(
    "fault", [each for each in FAULTS.values() if each.stalls], ids=lambda each: each.name
)
@pytest.mark.parametrize("point", ["configured", "half"])
async def test_what_lasts_for_ever_has_a_name(fault: Fault, point: str) -> None:
    sim = await simulated(
        Setting(annotations={"raybus.io/progress-deadline": "20"}), fault, point, for_ever=True
    )
    end = await end_of(sim, within=60)
    expected = {Ending.PROMOTED} if fault.name.startswith("active") else {Ending.STALLED}
    check(sim, end, expected, f"{fault.name} at {point}")
    assert end.ending is Ending.PROMOTED or fault.stalls in end.named, (
        f"{end.named}\n{sim.trace.rendered()}"
    )


async def test_without_an_upgrade_strategy_the_first_cluster_stays() -> None:
    sim = await begun(Setting(kind="None"))
    sim.ask(GREEN)
    end = await end_of(sim)
    check(sim, end, {Ending.ROLLED_BACK}, "the strategy None")
    assert sim.clusters == [sim.first]


def check(sim: AnyUpgrade, end: End, expected: set[Ending], case: str) -> None:
    """Fail with the whole trace unless all rules held, all events were published, and the end is as it must be."""
    assert not sim.judge.broken, f"{case}: {sim.judge.broken}\n{sim.trace.rendered()}"
    unexplained = [] if end.ending is Ending.STALLED else published_events.broken(sim)
    assert not unexplained, f"{case}: {unexplained}\n{sim.trace.rendered()}"
    assert end.ending in expected, f"{case}: {end.ending} {end.named}\n{sim.trace.rendered()}"
