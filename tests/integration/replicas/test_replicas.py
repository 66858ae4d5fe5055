"""How long a change waits while replicas come, go, die and freeze; figures are logged, and held to three times the goal."""

import signal
import time

import pytest
import structlog

from integration.replicas.conftest import ChangingClusters
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration, pytest.mark.long]

log = structlog.get_logger()

SLOW = 3.0
"""Factor by which this machine may be slower than an idle one.

The wait of a change while nothing happens is added."""


async def test_replicas_share_the_work_whatever_happens_to_them(changing: ChangingClusters) -> None:
    changing.start()
    await changing.rest()
    usual = await _usual_gap(changing)
    began = time.monotonic()
    changing.start()
    changing.start()
    await changing.rest()
    log.info(
        "longest gap", case="1 → 3 replicas", seconds=round(await changing.longest_gap(began), 2)
    )

    began = time.monotonic()
    changing.replicas.end(changing.replicas.running[0], signal.SIGTERM)
    await changing.rest()
    gap = await changing.longest_gap(began)
    log.info("longest gap", case="SIGTERM", seconds=round(gap, 2))
    assert gap < (1.0 + usual) * SLOW

    changing.start()
    await changing.rest()
    began = time.monotonic()
    changing.replicas.end(changing.replicas.running[0], signal.SIGKILL)
    await changing.rest()
    gap = await changing.longest_gap(began)
    log.info("longest gap", case="kill -9", seconds=round(gap, 2))
    assert gap < (10.0 + usual) * SLOW


async def test_a_frozen_replica_returns_with_no_partition_and_is_assigned_its_part(
    changing: ChangingClusters,
) -> None:
    changing.start()
    changing.start()
    await changing.rest()
    usual = await _usual_gap(changing)
    frozen = changing.replicas.running[0]
    began = time.monotonic()
    frozen.send_signal(signal.SIGSTOP)
    await eventually_true(
        lambda: _is_alone(changing), within=60, every=0.1, what="the loss of its Lease"
    )
    gap = await changing.longest_gap(began)
    log.info("longest gap", case="SIGSTOP", seconds=round(gap, 2))
    assert gap < (10.0 + usual) * SLOW

    frozen.send_signal(signal.SIGCONT)
    await changing.rest()
    assert await frozen.metric("raybus_partition_handovers_total") > 0
    assert "Lease deleted; all partitions lost" in frozen.reported
    await changing.longest_gap(time.monotonic())
    assert "Traceback" not in "".join(each.reported for each in changing.replicas.running)


async def test_a_container_that_restarts_goes_on_at_once(changing: ChangingClusters) -> None:
    changing.start("one")
    await changing.rest()
    began = time.monotonic()
    changing.replicas.end(changing.replicas.running[0], signal.SIGKILL)
    changing.start("one")
    await changing.rest()
    log.info("longest gap", case="restart", seconds=round(await changing.longest_gap(began), 2))


async def test_of_two_replicas_with_one_identity_only_one_works_and_the_other_reports_why(
    changing: ChangingClusters,
) -> None:
    changing.start("same")
    await changing.rest()
    ousted = changing.replicas.running[0]
    changing.start("same")
    await eventually_true(
        lambda: _has_reason(ousted.reported),
        within=60,
        every=0.1,
        what="a message about the identity",
    )
    assert not await ousted.is_ready()
    changing.replicas.end(ousted, signal.SIGTERM)
    await changing.rest()
    await changing.longest_gap(time.monotonic())


async def _usual_gap(changing: ChangingClusters) -> float:
    """Return how long a change waits while nothing happens, on this machine and now."""
    began = time.monotonic()
    await changing.longest_gap(began)
    gap = await changing.longest_gap(began)
    log.info("longest gap", case="nothing happens", seconds=round(gap, 2))
    return gap


async def _is_alone(changing: ChangingClusters) -> bool:
    held = await changing.replicas.held()
    return (
        list(held) == [changing.replicas.running[1].name] and len(next(iter(held.values()))) == 64
    )


async def _has_reason(reported: str) -> bool:
    return "give every replica an identity of its own (RAYBUS_IDENTITY)" in reported
