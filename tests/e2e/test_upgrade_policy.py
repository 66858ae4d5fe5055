"""UpgradePolicies on real Ray behind a real Envoy Gateway, under load.

A bad version takes itself back, and a good one is promoted. `make e2e` types both in part 4 of the
tutorial, so here they run on demand, with limits of time and of shares.
"""

import time
from collections.abc import AsyncGenerator

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Json
from localcluster.demo.cluster_state import NAMESPACE, DemoState
from support.builders.upgrade_policy import a_policy

from . import upgrade_status
from .conftest import Rig
from .greeter import Greeter, Options, expect_no_failure, serving_in_steps, settle, show

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPTIONS = Options(step=100, interval=1, surge=100, replicas=1, policy="careful")
POLICY: Json = {
    "steps": [{"weight": 10, "hold": "15s"}, {"weight": 50, "hold": "5s"}, {"weight": 100}],
    "gates": [{"metric": "errorRate", "max": "5%", "minRequests": 20}],
    "bake": "15s",
    "preview": {"service": True, "header": {"name": "x-raybus-version", "value": "next"}},
}
POLICIES: dict[str, Json] = {"careful": {**POLICY, "warmUp": {"requests": 10}}, "unwarmed": POLICY}
"""A version that fails by a third fails its warm-up already, and gets no traffic."""
TAKEN_BACK_SECONDS = 60
"""Ray exports its counters every 10 s, a node is read every 5 s, and 30 % of 2.5 requests a second fail."""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def service(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with upgrades by a policy."""
    async with serving_in_steps(rig, OPTIONS) as greeter:
        for name, spec in POLICIES.items():
            policy = a_policy(name, spec, namespace=NAMESPACE)
            await rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(policy).decode())
        yield greeter


def _is_aborted_by_a_gate(state: DemoState, generation: int) -> bool:
    held = [] if state.service is None else state.service.status.conditions
    wanted = ("UpgradeAborted", "True", "GateFailed")
    return any(
        (each.type, each.status, each.reason) == wanted
        and f"generation {generation} " in each.message
        for each in held
    )


async def _wait_for_a_gate(service: Greeter) -> None:
    generation = await service.generation()
    await service.wait("a gate failing", lambda state: _is_aborted_by_a_gate(state, generation))


@pytest.mark.ondemand
async def test_a_bad_version_is_taken_back_at_ten_percent(service: Greeter) -> None:
    async with service.followed() as history, service.under_load() as answers:
        await settle(answers)
        old = await service.upgrade(
            msgspec.structs.replace(OPTIONS, fail_percent=30, policy="unwarmed")
        )
        await service.wait_for_share(10)
        new = (await service.state()).pending
        await _wait_for_a_gate(service)
        back = time.time()  # noqa: TID251  (compared with the load's own wall clock)
        await service.wait_for_return(old)
        await settle(answers)
    upgrade_status.expect_sound(history, surge=OPTIONS.surge)
    assert max(upgrade_status.shares_of(history, new)) == 10
    failed = [each for each in answers if each.failed]
    assert failed, "the version did not fail, so nothing was shown"
    seconds = back - min(each.at for each in failed)
    show(
        "",
        f"{len(failed)} of {len(answers)} requests failed; aborted {seconds:.1f} s after the first of them",
        *service.moves,
    )
    assert seconds <= TAKEN_BACK_SECONDS
    assert {each.status for each in failed} == {500}
    assert max(each.at for each in failed) <= back + 5


async def test_a_version_that_fails_its_warm_up_gets_no_traffic(service: Greeter) -> None:
    async with service.under_load() as answers:
        await settle(answers)
        old = await service.upgrade(msgspec.structs.replace(OPTIONS, fail_percent=100))
        await _wait_for_a_gate(service)
        await service.wait_for_return(old)
        await settle(answers)
    expect_no_failure(service, answers, at_least=300)


@pytest.mark.ondemand
async def test_a_good_version_passes_and_bakes_before_its_promotion(service: Greeter) -> None:
    async with service.followed() as history, service.under_load() as answers:
        await settle(answers)
        old = await service.upgrade(OPTIONS)
        await service.wait_for_share(100)
        new = (await service.state()).pending
        whole = time.time()  # noqa: TID251  (compared with the history's own wall clock)
        assert (await service.state()).service is not None
        await service.wait_for_promotion(old)
        await settle(answers)
    expect_no_failure(service, answers, at_least=600)
    upgrade_status.expect_sound(history, surge=OPTIONS.surge)
    assert [each for each in upgrade_status.shares_of(history, new) if each] == [10, 50, 100]
    promoted = upgrade_status.first(history, lambda moment: moment.active == new)
    show("", f"promoted {promoted - whole:.1f} s after all traffic had moved", *service.moves)
    assert promoted - whole >= 13
