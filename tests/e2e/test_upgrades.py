"""Upgrades of every kind under load on real Ray and a real gateway, with deaths of workers; it ends with a table of what failed, and why.

40 requests a second and one of 8 s every 2 s; nothing is sent a second time. `make e2e-upgrades`; the table goes to build/upgrades.txt.
"""

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio

from common import labels
from localcluster.demo.tally import LoadAnswer
from support import victims

from .conftest import Rig
from .greeter import BlueGreen, Greeter, Options, settle, show

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.upgrades]

FIGURES: Final = Path(__file__).parents[2] / "build" / "upgrades.txt"
STEPS: Final = Options()
SLOW: Final = Options(interval=8)
"""Leaves the time to act between two steps."""
DRAINING: Final = BlueGreen(drains=True)
HA_PROXY: Final = BlueGreen(drains=True, has_ha_proxy=True)
SHED_SECONDS: Final = 8.0
"""From a worker's death to weights that leave it out: 5 s from its first failed observation, which the kubelet makes."""
LONGEST: Final = 18.0
"""Seconds that a request may be in flight."""
MAX_DRAIN: Final = 50
"""Seconds: 16 of delay, 25 until HAProxy's numbers count, and a pod's end; its cap would be 76."""


class Case:
    """One upgrade under load, and what clients had of it."""

    def __init__(self, name: str, answers: list[LoadAnswer]) -> None:
        self.name = name
        self.answers = answers
        self.died_at: float | None = None
        self.ended = False

    @property
    def failed(self) -> list[LoadAnswer]:
        """Return the requests that a user would have noticed."""
        return [each for each in self.answers if each.failed]

    @property
    def late(self) -> list[LoadAnswer]:
        """Return the failed requests that no death explains."""
        died = self.died_at
        if died is None:
            return self.failed
        return [each for each in self.failed if not died - LONGEST < each.at < died + SHED_SECONDS]

    @property
    def why(self) -> str:
        """Return why requests failed."""
        reasons = [] if self.ended else ["the upgrade did not end"]
        explained = [each for each in self.failed if each not in self.late]
        if explained and self.died_at is not None:
            ends = [each.at - self.died_at for each in explained]
            reasons.append(
                f"{len(explained)} were the dead worker's, begun {min(ends):+.1f} to {max(ends):+.1f} s from its death"
            )
        if self.late:
            reasons.append(f"{len(self.late)} unexplained, such as {self.late[0]}")
        return "; ".join(reasons)

    async def kill_the_only_worker(self, greeter: Greeter, cluster: str) -> None:
        """Kill all of Ray in it with -9."""
        pods = [
            pod
            for pod in (await greeter.state()).pods
            if pod.metadata.labels[labels.CLUSTER] == cluster
            and pod.metadata.labels[labels.NODE_TYPE] == "worker"
        ]
        (worker,) = pods
        self.died_at = time.time()  # noqa: TID251  (compared with the load's wall clock)
        victims.kill(worker.metadata.uid, "ray")

    def __str__(self) -> str:
        """Return a line of the table."""
        retried = sum(each.retries for each in self.answers)
        return f"{self.name:<52}{len(self.answers):>9}{len(self.failed):>8}{retried:>9}  {self.why}".rstrip()

    def expect_no_failure(self, *, at_least: int = 800) -> None:
        """Expect that every request was answered, but those that a dead worker had or was sent before it was noticed."""
        assert self.late == [], f"{self}\n" + "\n".join(map(str, self.late[:40]))
        assert len(self.answers) >= at_least, f"only {len(self.answers)} requests were sent"


class Table:
    """All cases so far."""

    def __init__(self) -> None:
        self._cases: list[Case] = []

    @asynccontextmanager
    async def case(self, name: str, greeter: Greeter) -> AsyncGenerator[Case]:
        """Count the requests of a block, from before it to after it."""
        async with greeter.under_load(rate=40.0, think="8") as answers:
            case = Case(name, answers)
            self._cases.append(case)
            await settle(answers)
            yield case
            await settle(answers)
            case.ended = True
        show("", case)

    def __str__(self) -> str:
        """Return the whole table."""
        head = f"{'case':<52}{'requests':>9}{'failed':>8}{'retried':>9}  why"
        total = sum(len(each.answers) for each in self._cases)
        failed = sum(len(each.failed) for each in self._cases)
        return "\n".join([head, *map(str, self._cases), f"{'all':<52}{total:>9}{failed:>8}"])


@pytest.fixture(scope="module")
def table() -> Generator[Table]:
    """Collect the figures of all cases, and print them at the end."""
    found = Table()
    yield found
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(f"{found}\n")
    show("", str(found))


@asynccontextmanager
async def serving(rig: Rig, options: Options | BlueGreen) -> AsyncGenerator[Greeter]:
    greeter = Greeter(rig, options)
    await greeter.start()
    yield greeter
    await greeter.stop()


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def in_steps(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with traffic that moves in steps; requests may take as long as they like."""
    rig.need_gateway()
    async with serving(rig, STEPS) as greeter:
        await greeter.allow_long_requests()
        yield greeter


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def at_once(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with traffic that moves at once."""
    async with serving(rig, DRAINING) as greeter:
        yield greeter


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def behind_ha_proxy(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with HAProxies that hold the connections of clients."""
    async with serving(rig, HA_PROXY) as greeter:
        yield greeter


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_in_steps(in_steps: Greeter, table: Table, number: int) -> None:
    async with table.case(f"in steps, {number}", in_steps) as case:
        await in_steps.wait_for_promotion(await in_steps.upgrade(STEPS))
    case.expect_no_failure()


@pytest.mark.parametrize("number", [1, 2])
async def test_a_rollback_at_half_of_the_traffic(
    in_steps: Greeter, table: Table, number: int
) -> None:
    async with table.case(f"rollback at 50 %, {number}", in_steps) as case:
        old = await in_steps.upgrade(SLOW)
        await in_steps.wait_for_share(50)
        await in_steps.revert(STEPS)
        await in_steps.wait_for_return(old)
    case.expect_no_failure()


async def test_the_pending_clusters_only_worker_dies(in_steps: Greeter, table: Table) -> None:
    async with table.case("kill -9 of the pending cluster's only worker at 50 %", in_steps) as case:
        old = await in_steps.upgrade(SLOW)
        await in_steps.wait_for_share(50)
        await case.kill_the_only_worker(in_steps, (await in_steps.state()).pending)
        await in_steps.wait_for_promotion(old, within=400)
    case.expect_no_failure()


async def test_the_active_clusters_only_worker_dies(in_steps: Greeter, table: Table) -> None:
    async with table.case("kill -9 of the active cluster's only worker at 50 %", in_steps) as case:
        old = await in_steps.upgrade(SLOW)
        await in_steps.wait_for_share(50)
        await case.kill_the_only_worker(in_steps, old)
        await in_steps.wait_for_promotion(old, within=400)
    case.expect_no_failure()


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_at_once(at_once: Greeter, table: Table, number: int) -> None:
    async with table.case(f"blue/green with graceful drain, {number}", at_once) as case:
        await at_once.wait_for_promotion(await at_once.upgrade(DRAINING))
    case.expect_no_failure()


@pytest.mark.parametrize("number", [1, 2])
async def test_behind_ha_proxy(behind_ha_proxy: Greeter, table: Table, number: int) -> None:
    async with table.case(
        f"blue/green behind HAProxy with graceful drain, {number}", behind_ha_proxy
    ) as case:
        await behind_ha_proxy.wait_for_promotion(await behind_ha_proxy.upgrade(HA_PROXY))
    case.expect_no_failure()
    receipt = await behind_ha_proxy.receipt()
    show("", msgspec.json.encode(receipt).decode())
    assert receipt.requests_cut == 0
    assert receipt.seconds.draining is not None
    assert receipt.seconds.draining <= MAX_DRAIN
