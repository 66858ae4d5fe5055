"""Heads that take connections and never answer, on real sockets; spec rayservice §17.13, §18 W20, acceptance 89."""

import pytest

from common.ray.cluster_dashboards import MAX_CONCURRENT_SLOW_CALLS
from scenario.service_reconciler.environment import on_loopback
from scenario.service_reconciler.test_isolation import AT_ONCE, disturbed
from support.waiting import eventually


@pytest.mark.acceptance("rayservice", 89)
async def test_89_black_holes_on_the_network_hold_few_connections_and_no_other_service() -> None:
    async with on_loopback() as environment:
        _, after = await disturbed(environment, AT_ONCE, dead=40)
        assert after < 20  # on a machine that has other things to do; the test above measures
        await eventually(
            lambda: 0 < environment.waiting <= len(environment.apps) * MAX_CONCURRENT_SLOW_CALLS,
            what="few wait for dead heads",
        )
