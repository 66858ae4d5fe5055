"""What do metrics cost per reconcile, per API request and per scrape of N RayServices?

raybus-dev bench metrics-cost [-n 1000]
"""

import argparse
import sys
import time
import timeit
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from common.api import ray_cluster, ray_service
from common.api.ray_cluster import RayCluster
from common.clock import Clock
from common.observability.metrics import ReconcileMeter, RequestMeter
from common.ray import owner
from common.ray.serve_status import ServeDetails
from common.runtime.cache import Cache
from service_reconciler.metrics import RayServiceCollector
from support.builders.ray_service import a_ray_service
from support.fakes.clock import FakeClock

REPETITIONS: Final = 50_000


class _Polls:
    def seen(self, cluster: RayCluster) -> tuple[ServeDetails | None, float] | None:
        del cluster
        return None, 1.0


def micros(do: Callable[[], object], times: int) -> float:
    """Return the microseconds of processor time of one call.

    It is the mean over `times` calls, in the fastest of three series.
    """
    return min(timeit.repeat(do, timer=time.process_time, number=times, repeat=3)) / times * 1e6


def a_reconcile(meter: ReconcileMeter) -> None:
    """Record the metrics that a service records for one reconcile."""
    meter.adds.inc()
    meter.wait.observe(0.0003)
    meter.results["requeue_after"].inc()
    meter.seconds.observe(0.0015)
    meter.work.observe(0.0015)


def a_request(meter: RequestMeter) -> None:
    """Record the metrics that a service records for one API request."""
    meter.sent("PATCH", b"x" * 300)
    meter.answered("PATCH", "200", 0.002)
    meter.read("PATCH", b"x" * 3000)


def exported(count: int, clock: Clock) -> CollectorRegistry:
    """Return a registry with the metrics of `count` RayServices, each with a serving cluster."""
    cache, registry = Cache(), CollectorRegistry()
    for number in range(count):
        name = f"s{number:05}"
        meta = {"namespace": "default", "resourceVersion": str(number + 1)}
        body = a_ray_service(name=name)
        body["metadata"] |= meta | {"uid": name}
        body["status"] = {"activeServiceStatus": {"rayClusterName": f"{name}-a"}}
        cache.put(ray_service.decode(body))
        cluster = meta | {"name": f"{name}-a", "uid": f"{name}-a", "labels": owner.marks(name)}
        cache.put(ray_cluster.decode({"metadata": cluster, "spec": {}}))
    registry.register(RayServiceCollector(cache, _Polls().seen, clock))
    return registry


def main() -> int:
    """Measure the three costs and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=1000, help="RayServices (1000)")
    count = parser.parse_args().n
    reconciles, requests = ReconcileMeter("bench"), RequestMeter("127.0.0.1:6443")
    registry = exported(count, FakeClock())
    lines = [
        f"a reconcile: {micros(lambda: a_reconcile(reconciles), REPETITIONS):.1f} µs",
        f"a request to the API server: {micros(lambda: a_request(requests), REPETITIONS):.1f} µs",
        f"a scrape of {count} RayServices, in the event loop: "
        f"{micros(lambda: list(registry.collect()), 3) / 1e3:.0f} ms",
        "the same with its text, which is written beside it: "
        f"{micros(lambda: generate_latest(registry), 3) / 1e3:.0f} ms",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
