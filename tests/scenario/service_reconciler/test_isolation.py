"""A problem of one RayService does not affect others; spec rayservice §17.13, §18 W20, acceptance
89.
"""

from typing import Final

import pytest

from common.api.opaque import Json
from common.ray.cluster_dashboards import MAX_CONCURRENT_SLOW_CALLS
from scenario.service_reconciler.environment import DEAD, Environment, in_memory
from support.builders.ray_service import a_strategy
from support.fakes import virtual_time
from support.fakes.virtual_time import VirtualClock
from support.simulator.simulator import a_config
from support.waiting import eventually

AT_ONCE: Final[Json] = {"type": "NewCluster"}
IN_STEPS: Final[Json] = a_strategy(surge=100, step=25, interval=1)
GREEN, RED = a_config("rayproject/ray:2.53.0"), a_config("rayproject/ray:2.54.0")
MOST: Final = 70
"""Number of dead heads: more than twice the workers of each controller."""


async def disturbed(environment: Environment, strategy: Json, *, dead: int) -> tuple[float, float]:
    """Return how many seconds an upgrade takes before and after other services' heads stopped answering."""
    environment.apply("busy", config=a_config(), upgradeStrategy=strategy)
    await eventually(lambda: environment.active("busy"), what="the service serves")
    before = await environment.upgrade("busy", config=GREEN, upgradeStrategy=strategy)
    for number in range(dead):
        environment.apply(f"{DEAD}-{number}", config=a_config(), upgradeStrategy=strategy)
    await eventually(
        lambda: environment.silenced == dead, within=60, what="each dead head let somebody wait"
    )
    return before, await environment.upgrade("busy", config=RED, upgradeStrategy=strategy)


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 89)
@pytest.mark.parametrize(
    "strategy",
    [pytest.param(AT_ONCE, id="upgraded at once"), pytest.param(IN_STEPS, id="upgraded in steps")],
)
def test_89_any_number_of_dead_dashboards_slows_no_other_services_upgrade(strategy: Json) -> None:
    async def scenario() -> None:
        async with in_memory(VirtualClock()) as environment:
            before, after = await disturbed(environment, strategy, dead=MOST)
            assert after <= before + 0.5
            # How many calls wait for dead heads is bounded over all services together, proxies included.
            assert 0 < environment.waiting <= len(environment.apps) * MAX_CONCURRENT_SLOW_CALLS

    virtual_time.run(scenario())
