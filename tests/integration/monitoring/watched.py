"""An upgrade and a rollback on four real services, scraped by a real Prometheus.

    python -m integration.monitoring.watched [DASHBOARD.json…]

The run shows what the dashboards draw. It uses a network of its own, where one process simulates
all Ray heads, and prints Prometheus' knowledge as JSON. Other dashboards, such as KubeRay's, are
tried too if they are named.
"""

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import msgspec

from bench.rig import BACKGROUND
from chaos.schedule import RECONCILERS
from common.api.opaque import Body
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE
from generators.monitoring import files, kuberay
from generators.monitoring.dashboards import DASHBOARDS
from integration.isolated import isolate, log_progress, print_result
from integration.monitoring import ground, objects
from integration.monitoring.causes_of_users import BEYOND, CUT, MISSING
from integration.monitoring.ground import Ground
from integration.monitoring.objects import Demo
from support.servers.prometheus import Prometheus, Series

LOGS: Final = Path(__file__).parents[3] / "build" / "watched"
VARIABLES: Final = (
    (r"\$__rate_interval", "10s"),
    (r"\$__range", "10m"),
    (r'=~?"\$\{?\w+\}?"', '=~".*"'),
)
"""Values that Grafana would insert for its variables if everything is selected."""
METRIC: Final = re.compile(
    r"\b(?:raybus|kuberay|controller_runtime|workqueue|rest_client|process)_[a-z_]+\b"
)
MARKS: Final = re.compile(r'"[^"]*"')


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The knowledge of Prometheus at the end of the run."""

    targets: dict[str, str]
    """Health of each scraped process."""
    queries: dict[str, int]
    """Number of lines that each query of the dashboards draws, without lines that have no
    number."""
    metrics: dict[str, int]
    """Number of series of each metric that the dashboards name.

    A query may draw a 0 of its own without any series."""
    asked: dict[str, int]
    """Number of lines of each query of KubeRay's operator dashboard about RayClusters and
    RayServices."""
    labels: dict[str, list[str]]
    """Labels of each metric that KubeRay's dashboards read."""
    namespaces: dict[str, list[str]]
    """Values of the label `namespace` of these metrics."""
    heads: dict[str, str]
    """The pods that are heads, with the kind that owns them; kube-state-metrics exports these for KubeRay's dashboard."""


class Run:
    """One run."""

    def __init__(self, found: Ground, *, more: list[str]) -> None:
        self._kube = found.stack.kube
        self._heads = found.stack.heads
        self._server: Prometheus = found.server
        self._demo = Demo(self._kube, "demo")
        self._more = more
        self._began = _wall_clock()

    async def execute(self) -> Report:
        """Run it."""
        log_progress("a service and a cluster come up")
        await self._kube.create(RAY_CLUSTER, BACKGROUND, objects.a_cluster("alone"))
        await self._kube.create(RAY_CLUSTER, BACKGROUND, objects.a_cluster("refused", port=BEYOND))
        await self._kube.create(
            RAY_SERVICE, BACKGROUND, objects.a_service("broken", interval=None, import_path=MISSING)
        )
        await self._demo.begin()
        await self._until("count(raybus_partitions_held) by (controller)", count=len(RECONCILERS))
        log_progress("an upgrade in steps, with requests in flight when its old cluster goes")
        self._heads.ongoing = CUT
        await self._demo.upgrade()
        await self._demo.served()
        await self._until("increase(raybus_upgrades_total[10m]) > 0")
        await self._until("increase(raybus_drain_requests_cut_total[10m]) > 0")
        self._heads.ongoing = 0
        log_progress("an upgrade that does not progress, and is taken back")
        await self._demo.annotate({"raybus.io/progress-deadline": "3s"})
        await self._demo.upgrade(import_path=MISSING)
        await self._until('raybus_service_condition_upgrade_stalled{condition="true"}')
        await self._demo.revert()
        await self._until("sum(increase(raybus_upgrades_total[10m])) > 1.5")
        held = {metric: await self._server.query(metric) for metric in kuberay.LABELS}
        return Report(
            targets=await self._server.scraped(),
            queries={query: await self._lines(query) for query in [*_queries(), *self._more]},
            metrics={metric: await self._lines(metric) for metric in _metrics()},
            asked={each: await self._lines(each) for each in kuberay.questions()},
            labels={metric: _in_all(found) for metric, found in held.items()},
            namespaces={
                metric: sorted({each.metric["namespace"] for each in found})
                for metric, found in held.items()
            },
            heads=await self._head_pods(),
        )

    async def _head_pods(self) -> dict[str, str]:
        listed: Mapping[str, list[Body]] = msgspec.json.decode(
            await self._kube.list(POD, BACKGROUND, label_selector="ray.io/node-type=head")
        )
        return {
            each["metadata"]["name"]: each["metadata"]["ownerReferences"][0]["kind"]
            for each in listed["items"]
        }

    async def _until(self, expression: str, *, count: int = 1) -> None:
        await ground.until(self._server, expression, count=count)

    async def _lines(self, query: str) -> int:
        for pattern, value in VARIABLES:
            query = re.sub(pattern, value, query)
        return await self._server.drawn(query, since=self._began, until=_wall_clock())


def _in_all(found: list[Series]) -> list[str]:
    """Return the labels that every series has."""
    return (
        sorted(label for label in found[0].metric if all(label in each.metric for each in found))
        if found
        else []
    )


def _queries() -> list[str]:
    return [
        query.expr
        for page in DASHBOARDS.values()
        for row in page.rows
        for panel in row.panels
        for query in panel.queries
    ]


def _metrics() -> list[str]:
    return sorted({name for query in _queries() for name in METRIC.findall(MARKS.sub("", query))})


def _expressions(node: object) -> Iterator[str]:
    """Yield the queries of a dashboard."""
    if isinstance(node, list):
        for each in cast("list[object]", node):
            yield from _expressions(each)
    elif isinstance(node, dict):
        for key, each in cast("dict[str, object]", node).items():
            if key == "expr" and isinstance(each, str):
                yield each
            yield from _expressions(each)


async def run(more: list[str]) -> Report:
    """Start everything, and run it; `more` are queries to be tried beside our own."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="raybus-watched-") as work:
        async with ground.started(Path(work), LOGS, log_progress, rules=files.RULES) as found:
            return await Run(found, more=more).execute()


def _wall_clock() -> float:
    return time.time()  # noqa: TID251  (Prometheus wants Unix time)


def main() -> None:
    """Enter the network of our own and print what was found."""
    isolate("integration.monitoring.watched")
    more = [
        query
        for each in sys.argv[1:]
        for query in _expressions(msgspec.json.decode(Path(each).read_bytes()))
    ]
    print_result(asyncio.run(run(more)))


if __name__ == "__main__":
    main()
