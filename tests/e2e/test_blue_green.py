"""Upgrades at once, by the selector of a plain Service, under load, while parts of raybus die.

A worker group is appended too. With graceful drain no client needs a retry. Without it, clients
need the standard retry, as with KubeRay, and nothing more.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
import pytest_asyncio

from support import victims
from support.waiting import eventually_true

from . import raybus
from .conftest import Rig
from .greeter import BlueGreen, Greeter, expect_no_failure, settle
from .ray_cluster import spread

pytestmark = pytest.mark.asyncio(loop_scope="session")

Harm = Callable[[Rig], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def draining(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with old clusters that close kept-alive connections between requests."""
    async with asyncio.timeout(300):
        greeter = Greeter(rig, BlueGreen(drains=True))
        await greeter.start()
    yield greeter
    await greeter.stop()


@pytest.mark.ondemand
async def test_an_appended_group_disturbs_nobody(draining: Greeter) -> None:
    before = await draining.state()
    async with draining.under_load() as answers:
        await settle(answers)
        await draining.append_group("more")
        after = await draining.wait(
            "a pod of the new group", lambda state: len(state.pods) == len(before.pods) + 1
        )
        await settle(answers)
    expect_no_failure(draining, answers, at_least=300)
    assert (after.active, after.clusters) == (before.active, before.clusters)
    assert spread(list(before.pods)).items() <= spread(list(after.pods)).items()
    await draining.drop_group()


async def no_harm(_: Rig) -> None:
    """Kill nothing."""


async def kill_each_service(rig: Rig) -> None:
    for name in raybus.SERVICES:
        victims.kill((await raybus.pod_of(rig, name)).metadata.uid, raybus.COMMANDS[name])
        await asyncio.sleep(3)


async def kill_nats(rig: Rig) -> None:
    victims.kill((await raybus.pod_of(rig, "nats")).metadata.uid, "nats-server")


async def lose_the_volume(rig: Rig) -> None:
    victims.kill_and_empty((await raybus.pod_of(rig, "nats")).metadata.uid, "nats-server", "/data")


async def kill_all(rig: Rig) -> None:
    await lose_the_volume(rig)
    await kill_each_service(rig)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(no_harm, id="no harm", marks=pytest.mark.soak),
        pytest.param(kill_all, id="kill -9 of NATS with loss of its volume, and of each service"),
        pytest.param(
            kill_each_service,
            id="kill -9 of each service, one after the other",
            marks=pytest.mark.soak,
        ),
        pytest.param(kill_nats, id="kill -9 of NATS", marks=pytest.mark.soak),
        pytest.param(
            lose_the_volume,
            id="kill -9 of NATS and loss of the JetStream volume",
            marks=pytest.mark.soak,
        ),
    ],
)
async def test_with_drain_no_request_fails_or_is_sent_twice(
    rig: Rig, draining: Greeter, harm: Harm
) -> None:
    async with asyncio.timeout(400), draining.under_load() as answers:
        await settle(answers)
        old = await draining.upgrade()
        await draining.wait("a pending cluster", lambda state: bool(state.pending))
        await harm(rig)
        new = await draining.wait_for_promotion(old)
        await settle(answers)
    expect_no_failure(draining, answers, at_least=600)
    await eventually_true(lambda: raybus.is_well(rig), within=90, what="raybus being well again")
    await draining.wait_for_return(new)


@pytest.mark.ondemand
async def test_without_drain_the_standard_retry_is_enough(draining: Greeter) -> None:
    # Nobody waits for requests that take longer than the deletion delay.
    async with asyncio.timeout(400), draining.under_load(think="8", retry="standard") as answers:
        await settle(answers)
        old = await draining.upgrade(BlueGreen(drains=False))
        await draining.wait_for_promotion(old)
        await settle(answers)
    expect_no_failure(draining, answers, at_least=600)
