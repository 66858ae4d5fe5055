"""Gates before all traffic moves at once, on real Ray under load (ADR 37).

A version that is slow in its warm-up reaches no client; a good version is promoted.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio

from localcluster.demo.cluster_state import NAMESPACE, DemoState
from support.builders.upgrade_policy import a_policy

from .conftest import Rig
from .greeter import BlueGreen, Greeter, expect_no_failure, settle, show

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.policies]

SCRIPTS: Final = Path(__file__).parent / "versions"
POLICY: Final = a_policy(
    "warmed",
    {
        "warmUp": {"requests": 400, "path": "/", "concurrency": 4},
        "gates": [{"metric": "latencyP95", "max": "500ms", "minRequests": 300}],
    },
    namespace=NAMESPACE,
)
OPTIONS: Final = BlueGreen(drains=True, policy="warmed")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def service(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with gates that decide on the requests of its warm-up."""
    async with asyncio.timeout(300):
        greeter = Greeter(rig, OPTIONS, SCRIPTS)
        await greeter.start()
        await rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(POLICY).decode())
    yield greeter
    await greeter.stop()


def aborted(state: DemoState) -> str:
    """Return why a gate aborted the upgrade, with the figures; empty if none did."""
    held = [] if state.service is None else state.service.status.conditions
    return next(
        (
            each.message
            for each in held
            if (each.type, each.reason) == ("UpgradeAborted", "GateFailed")
        ),
        "",
    )


async def test_a_version_that_is_slow_in_its_warm_up_reaches_no_client(service: Greeter) -> None:
    fault = {"FAULT": json.dumps({"slower": 12})}
    async with asyncio.timeout(400), service.under_load(rate=50.0) as answers:
        await settle(answers)
        old = await service.upgrade(msgspec.structs.replace(OPTIONS, environment=fault))
        state = await service.wait("a gate failing", lambda state: bool(aborted(state)), within=300)
        await service.wait_for_return(old)
        await settle(answers)
    show(aborted(state))
    assert "latencyP95" in aborted(state)
    expect_no_failure(service, answers, at_least=300)
    assert {each.version for each in answers} == {"1"}


async def test_a_good_version_is_promoted_after_its_gates(service: Greeter) -> None:
    async with asyncio.timeout(400), service.under_load(rate=50.0) as answers:
        await settle(answers)
        await service.wait_for_promotion(await service.upgrade(OPTIONS))
        await settle(answers)
    expect_no_failure(service, answers, at_least=300)
    assert {each.version for each in answers} == {"1", str(service.version)}
