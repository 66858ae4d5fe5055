"""Traces of upgrades, turn by turn, as text: what changed, by which process, and why.

A line is a cluster's capacity and its share of the traffic in percent, then the process that acted and what its plan was for; lines
with an indent are conditions of the status. A change of a decision shows in review as a changed trace.
"""

import msgspec
import pytest

from scenario.simulation.faults import FAULTS
from scenario.simulation.rollouts import Ending, end_of, simulated
from scenario.simulation.setting import Setting
from support.golden import Golden

pytestmark = pytest.mark.long


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade, and what happens to it."""

    name: str
    setting: Setting = Setting()
    fault: str | None = None
    point: str = "half"
    for_ever: bool = False
    ending: Ending = Ending.PROMOTED


BLUE_GREEN = Setting(kind="NewCluster")
CASES = [
    Case(name="nothing-happens"),
    Case(name="small-steps", setting=Setting(surge=30, step=7, interval=2)),
    Case(name="slow-environment", setting=Setting(slow=2.0, seed=7)),
    Case(name="spec-reverted", fault="spec reverted", ending=Ending.ROLLED_BACK),
    Case(name="spec-reverted-twice", fault="spec reverted and asked for again"),
    Case(name="third-spec", fault="third spec"),
    Case(name="dashboard-hangs", fault="pending dashboard hangs"),
    Case(
        name="application-unhealthy",
        fault="pending application unhealthy",
        point="first weight",
        for_ever=True,
        ending=Ending.STALLED,
    ),
    Case(name="no-room", fault="no room for pending replicas", point="named"),
    Case(name="gateway-asleep", fault="gateway asleep", point="first weight"),
    Case(name="route-deleted", fault="route deleted by hand"),
    Case(name="pending-deleted", fault="pending cluster deleted by hand"),
    Case(name="active-deleted", fault="active cluster deleted by hand"),
    Case(name="clock-set-back", fault="the clock jumps back"),
    Case(name="no-surge-any-more", fault="no surge, for a while"),
    Case(name="becomes-new-cluster", fault="strategy becomes NewCluster"),
    Case(name="blue-green", setting=BLUE_GREEN),
    Case(
        name="blue-green-reverted",
        setting=BLUE_GREEN,
        fault="spec reverted",
        point="configured",
        ending=Ending.ROLLED_BACK,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_trace(case: Case, golden: Golden) -> None:
    fault = FAULTS[case.fault] if case.fault is not None else None
    sim = await simulated(case.setting, fault, case.point, for_ever=case.for_ever)
    end = await end_of(sim, within=60 if case.for_ever else None)
    assert (end.ending, sim.judge.broken) == (case.ending, [])
    golden.check(f"simulation/{case.name}.txt", f"{case.setting}\n{sim.trace.rendered()}")
