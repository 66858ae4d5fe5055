"""Both services taken apart at every write, under drawn settings and happenings: a few seeds here, as many as wished by `make simulate`."""

import re

import pytest

from scenario.simulation import draws, simulate
from scenario.simulation.draws import Draw
from scenario.simulation.found_faults import CASES, OPEN, Case
from scenario.simulation.simulate import ALL_POINTS, PLAN, Result

SEEDS = (5, 8, 9, 12, 13, 15, 125, 386)
PLAIN = (431, 787, 966)
"""Seeds that once broke laws.

Capacity for a rollback went beyond the surge, and a late PUT of Serve was undone in a bake."""


def report(result: Result) -> str:
    return f"{result.draw}\n{result.found}\npython -m scenario.simulation --seed {result.draw.seed}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_upgrade_breaks_no_law(seed: int) -> None:
    result = await simulate.run(simulate.of_seed(seed))
    assert not result.found, report(result)


@pytest.mark.parametrize("seed", PLAIN)
async def test_an_upgrade_in_a_plain_world_breaks_no_law(seed: int) -> None:
    result = await simulate.run(draws.in_a_plain_world(seed, PLAN, tuple(ALL_POINTS)))
    assert not result.found, report(result)


@pytest.mark.parametrize(
    "case", [each for each in CASES if each.name not in OPEN], ids=lambda each: each.name
)
async def test_a_fault_that_was_fixed_stays_so(case: Case) -> None:
    result = await simulate.run(case.draw)
    assert not result.found, report(result)


def test_each_open_case_exists() -> None:
    assert {each.name for each in CASES} >= OPEN


async def test_a_seed_gives_the_same_trace_twice() -> None:
    first, second = [await simulate.run(simulate.of_seed(11), is_traced=True) for _ in range(2)]
    assert first.trace == second.trace
    assert re.search(r"user: the spec changes", first.trace)


async def test_a_boundary_lets_another_process_and_a_user_come_between_two_writes() -> None:
    result = await simulate.run(Draw(seed=5, stops=0.5, longest_stop=2.0), is_traced=True)
    writers = [line.split()[-1] for line in result.trace.splitlines()]
    assert len(writers) > 10
