"""Stories of upgrades, turn by turn, as text: what was told to whom, and why.

A line is a cluster's capacity and its share of the traffic in percent, then whose turn it was and what its plan was for; lines
with an indent are conditions of the status. Whoever changes a decision sees in review what becomes of an upgrade.
"""

import msgspec
import pytest

from scenario.simulation.faults import FAULTS
from scenario.simulation.setting import Setting
from scenario.simulation.stories import Ending, end_of, told
from support.golden import Golden

pytestmark = pytest.mark.long


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade, and what happens to it."""

    name: str
    setting: Setting = Setting()
    fault: str | None = None
    point: str = "half"
    for_ever: bool = False
    ending: Ending = Ending.PROMOTED


BLUE_GREEN = Setting(kind="NewCluster")
STORIES = [
    Story(name="nothing-happens"),
    Story(name="small-steps", setting=Setting(surge=30, step=7, interval=2)),
    Story(name="slow-world", setting=Setting(slow=2.0, seed=7)),
    Story(name="spec-reverted", fault="spec reverted", ending=Ending.ROLLED_BACK),
    Story(name="spec-reverted-twice", fault="spec reverted and asked for again"),
    Story(name="third-spec", fault="third spec"),
    Story(name="dashboard-hangs", fault="pending dashboard hangs"),
    Story(
        name="application-unhealthy",
        fault="pending application unhealthy",
        point="first weight",
        for_ever=True,
        ending=Ending.STALLED,
    ),
    Story(name="no-room", fault="no room for pending replicas", point="named"),
    Story(name="gateway-asleep", fault="gateway asleep", point="first weight"),
    Story(name="route-deleted", fault="route deleted by hand"),
    Story(name="pending-deleted", fault="pending cluster deleted by hand"),
    Story(name="active-deleted", fault="active cluster deleted by hand"),
    Story(name="clock-set-back", fault="the clock jumps back"),
    Story(name="no-surge-any-more", fault="no surge, for a while"),
    Story(name="becomes-new-cluster", fault="strategy becomes NewCluster"),
    Story(name="blue-green", setting=BLUE_GREEN),
    Story(
        name="blue-green-reverted",
        setting=BLUE_GREEN,
        fault="spec reverted",
        point="configured",
        ending=Ending.ROLLED_BACK,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_the_story(story: Story, golden: Golden) -> None:
    fault = FAULTS[story.fault] if story.fault is not None else None
    sim = await told(story.setting, fault, story.point, for_ever=story.for_ever)
    end = await end_of(sim, patience=60 if story.for_ever else None)
    assert (end.ending, sim.broken) == (story.ending, [])
    golden.check(f"simulation/{story.name}.txt", f"{story.setting}\n{sim.story()}")
