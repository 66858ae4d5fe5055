"""Upgrades in steps through a real Envoy Gateway, under load, forward and back: nothing fails, and no time is lost.

One service lives through all of them. A share of requests takes up to 20 s, which is longer than the gateway's own limit, so a
user's time-out stands on the route: it has to survive every one of our writes.
"""

import time
from collections.abc import AsyncGenerator

import msgspec
import pytest
import pytest_asyncio

from . import upgrade_status
from .conftest import Rig
from .greeter import Greeter, Options, expect_no_failure, serving_in_steps, settle, show

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPTIONS = Options(takes_grpc=True)
SLOW = Options(interval=8, takes_grpc=True)
"""Options of a slow upgrade, which leaves a user time to act between two steps."""
QUICK_ABORT_SECONDS = 5
ABORT_SECONDS = 30
"""Seconds within which all traffic must be back on the old cluster after an abort.

This is no measurement: the old cluster's replicas may have to start again first."""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def service(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with upgrades in steps."""
    async with serving_in_steps(rig, OPTIONS) as greeter:
        yield greeter


async def test_forward_with_requests_and_streams(service: Greeter) -> None:
    async with (
        service.followed() as history,
        service.under_load() as answers,
        service.under_streams() as streams,
    ):
        await settle(streams, more=10)
        before = service.version
        old = await service.upgrade(OPTIONS)
        new = await service.wait_for_promotion(old)
        await settle(streams, more=10)
    expect_no_failure(service, answers, at_least=600)
    expect_no_failure(service, streams, at_least=40)
    assert {answer.version for answer in streams} == {str(before), str(service.version)}
    upgrade_status.expect_sound(history, surge=OPTIONS.surge)
    assert upgrade_status.shares_of(history, new) == [0, 25, 50, 75, 100]
    show("", upgrade_status.times(history, service.moves, new), *history, *service.moves)
    assert await service.request_timeout() == "0s"


@pytest.mark.soak
@pytest.mark.parametrize("percent", [25, 50, 75])
async def test_a_reverted_spec_takes_the_traffic_back(service: Greeter, percent: int) -> None:
    async with service.followed() as history, service.under_load() as answers:
        await settle(answers)
        old = await service.upgrade(SLOW)
        await service.wait_for_share(percent)
        new = (await service.state()).pending
        await service.revert(OPTIONS)
        await service.wait_for_return(old)
        await settle(answers)
    expect_no_failure(service, answers, at_least=600)
    upgrade_status.expect_sound(history, surge=OPTIONS.surge)
    assert max(upgrade_status.shares_of(history, new)) == percent
    assert any("RollbackInProgress" in moment.conditions for moment in history)


@pytest.mark.ondemand
async def test_a_third_spec_rolls_back_first_and_then_forward(service: Greeter) -> None:
    async with service.followed() as history, service.under_load() as answers:
        await settle(answers)
        old = await service.upgrade(SLOW)
        await service.wait_for_share(50)
        second = (await service.state()).pending
        await service.upgrade(OPTIONS)
        await service.wait("the second spec being withdrawn", lambda state: state.pending != second)
        third = await service.wait_for_promotion(old)
        await settle(answers)
    expect_no_failure(service, answers, at_least=600)
    upgrade_status.expect_sound(history, surge=OPTIONS.surge)
    assert len({old, second, third}) == 3
    assert upgrade_status.shares_of(history, second)[-1] == 0


@pytest.mark.ondemand
async def test_a_pause_holds_everything_and_an_abort_takes_the_traffic_back(
    service: Greeter,
) -> None:
    async with service.followed() as history, service.under_load() as answers:
        await settle(answers)
        old = await service.upgrade(SLOW)
        await service.wait_for_share(50)
        await service.annotate(pause="true")
        await settle(answers)
        held = history[-1]
        await settle(answers, more=400)
        assert (history[-1].weights, history[-1].capacities) == (held.weights, held.capacities)
        began = time.time()  # noqa: TID251  (compared with the history's own wall clock)
        await service.annotate(pause="", abort=str(await service.generation()))
        await service.wait_for_return(old)
        await settle(answers)
    expect_no_failure(service, answers, at_least=600)
    upgrade_status.expect_sound(history, surge=OPTIONS.surge)
    back = upgrade_status.first(
        history, lambda moment: moment.at > began and moment.weights[0] in {None, 100}
    )
    show("", f"all traffic was back {back - began:.1f} s after the abort")
    assert back - began <= ABORT_SECONDS


@pytest.mark.soak
@pytest.mark.parametrize(
    ("options", "demand"),
    [
        # Traffic moves four times: 25, 50, 75, 100.
        pytest.param(
            Options(step=25, interval=2, surge=50, replicas=1, takes_grpc=True), 6.0, id="25-2-50"
        ),
        # Twenty times.
        pytest.param(
            Options(step=5, interval=1, surge=20, replicas=1, takes_grpc=True), 19.0, id="5-1-20"
        ),
    ],
)
async def test_no_time_is_lost(service: Greeter, options: Options, demand: float) -> None:
    """With one replica at every capacity there is no readiness to wait for between the first share and the last."""
    async with service.followed() as history, service.under_load() as answers:
        old = await service.upgrade(options)
        new = await service.wait_for_promotion(old)
        await settle(answers)
    expect_no_failure(service, answers, at_least=600)
    upgrade_status.expect_sound(history, surge=options.surge)
    assert upgrade_status.shares_of(history, new) == list(range(0, 101, options.step))
    times = upgrade_status.times(history, service.moves, new)
    show("", times, *history, *service.moves)
    assert times.moving <= 1.1 * demand


@pytest.mark.soak
async def test_no_time_is_lost_on_the_way_back(service: Greeter) -> None:
    """With one replica at every capacity, all traffic is back within 5 s of an abort, whatever the interval."""
    alone = Options(replicas=1, takes_grpc=True)
    async with service.followed() as history, service.under_load() as answers:
        await service.wait_for_promotion(await service.upgrade(alone))
        old = await service.upgrade(msgspec.structs.replace(alone, interval=8))
        await service.wait_for_share(50)
        began = time.time()  # noqa: TID251  (compared with the history's own wall clock)
        await service.annotate(abort=str(await service.generation()))
        await service.wait_for_return(old)
        await settle(answers)
    expect_no_failure(service, answers, at_least=600)
    upgrade_status.expect_sound(history, surge=alone.surge)
    back = upgrade_status.first(
        history, lambda moment: moment.at > began and moment.weights[0] in {None, 100}
    )
    show("", f"all traffic was back {back - began:.1f} s after the abort")
    assert back - began <= QUICK_ABORT_SECONDS
