"""`raybus demo`: a model is upgraded under load, in either way, and no client notices."""

import asyncio

import pytest

from localcluster.demo.demo_cluster import Load
from localcluster.demo.scenario import DemoOptions, DemoStrategy

from . import raybus
from .conftest import DEPLOY, Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    "strategy",
    [DemoStrategy.BLUE_GREEN, pytest.param(DemoStrategy.INCREMENTAL, marks=pytest.mark.soak)],
    ids=str,
)
async def test_the_demo_upgrades_under_load_without_a_failed_request(
    rig: Rig, strategy: DemoStrategy
) -> None:
    if strategy is DemoStrategy.INCREMENTAL:
        rig.need_gateway()
    scenario = rig.scenario(DemoOptions(manifests=DEPLOY, strategy=strategy, load=Load(rate=20.0)))
    async with asyncio.timeout(500):
        await scenario.serve()
        receipt = await scenario.run_upgrade()
    assert receipt.traffic.failures == []
    assert receipt.problem is None
    assert receipt.traffic.requests >= 3000
    assert {"version 1, status 200", "version 2, status 200"} == set(receipt.traffic.by_answer)
    assert receipt.new_cluster != receipt.old_cluster
    assert await raybus.is_well(rig)
