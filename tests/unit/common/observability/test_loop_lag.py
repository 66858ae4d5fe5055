import asyncio
import time

from prometheus_client import REGISTRY

from common.observability import metrics


def beyond(seconds: str) -> float:
    """Return the number of ticks that were later than a bucket's limit."""
    name = "raybus_event_loop_lag_seconds"
    within = REGISTRY.get_sample_value(f"{name}_bucket", {"le": seconds}) or 0
    return (REGISTRY.get_sample_value(f"{name}_count") or 0) - within


async def test_a_loop_that_is_blocked_for_half_a_second_is_seen_once() -> None:
    before = beyond("0.25")
    metrics.measure_lag(asyncio.get_running_loop())
    await asyncio.sleep(0)
    time.sleep(metrics.PERIOD_SECONDS + 0.4)  # noqa: ASYNC251  (the fault that is measured)
    await asyncio.sleep(metrics.PERIOD_SECONDS)
    assert beyond("0.25") == before + 1
