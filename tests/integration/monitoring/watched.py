"""An upgrade, and then what alerts are for, on four real services that a real Prometheus scrapes.

Run in a network of its own (`bench.pod_network`), where one process plays all Ray heads; prints what Prometheus knew as JSON:

    python -m integration.monitoring.watched [DASHBOARD.json…]

Dashboards of others, KubeRay's for example, are tried as well when they are named.
Alerts are those of deploy/monitoring with shorter times, so that a run takes a minute or two and not an hour.
"""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import yaml

from bench import heads, pod_network, rig
from bench.heads import Heads
from bench.rig import CROWD, Rig
from common.api.opaque import Body, Json
from common.kube.client import Patch
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from localcluster.api import read_manifests
from localcluster.binaries import locate
from localcluster.settings import Settings
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service, a_serve_config, a_strategy
from support.monitoring import files
from support.monitoring.catalogue import OWNERS
from support.monitoring.dashboards import DASHBOARDS
from support.servers import prometheus, raybus_up
from support.servers.gateway_controller import GatewayController
from support.servers.prometheus import Prometheus, Series
from support.waiting import eventually_true

PATIENCE: Final = 180.0
GATEWAY_KINDS: Final = {"Gateway", "HTTPRoute", "GRPCRoute"}
CUT: Final = 3
"""Requests that each pod works on for ever."""
STEPS: Final[Json] = a_strategy(surge=50, step=25, interval=2)
PROVOKED: Final = {
    "RaybusNatsAway",
    "RaybusNoLeaderWatcher",
    "RaybusPartitionsWithoutOwner",
    "RaybusReconcileErrors",
    "RaybusRequestsCut",
    "RaybusServeSilent",
    "RaybusServiceDown",
    "RaybusUpgradeRolledBack",
    "RaybusUpgradeStalled",
}
"""The others keep their times: on a busy machine something may well be slow for two seconds."""
SHORTER: Final = ((r"\[5m\]", "[10s]"), (r"poll_age_seconds(.*) > 180", r"poll_age_seconds\1 > 15"))
VARIABLES: Final = (
    (r"\$__rate_interval", "10s"),
    (r"\$__range", "10m"),
    (r'=~?"\$\{?\w+\}?"', '=~".*"'),
)
"""What Grafana would put in their place when all is chosen."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What Prometheus knew."""

    targets: dict[str, str]
    """Health of each scraped process."""
    queries: dict[str, int]
    """How many lines each query of the dashboards has drawn, those without a number left out."""
    labels: dict[str, list[str]]
    """Labels of each metric that KubeRay's dashboards read."""
    namespaces: dict[str, list[str]]
    """The values of their label `namespace`."""
    quiet: list[str]
    """Alerts that fired during the upgrade, although nothing was wrong."""
    fired: dict[str, list[str]]
    """Alerts that fired, by what was done."""
    texts: list[str]
    """What they said."""


class Story:
    """One run."""

    def __init__(self, found: Rig, played: Heads, server: Prometheus, *, pids: dict[str, int], more: list[str]) -> None:
        self._rig = found
        self._played = played
        self._server = server
        self._pids = pids
        self._more = more
        self._began = _wall_clock()
        self._fired: dict[str, list[str]] = {}
        self._texts: set[str] = set()
        self._seen_firing: set[str] = set()

    async def tell(self) -> Told:
        """Run it."""
        say("a service and a cluster come up")
        await self._rig.kube.create(RAY_CLUSTER, CROWD, _a_cluster("alone", port=6379))
        await self._rig.kube.create(RAY_SERVICE, CROWD, _a_service())
        first = await self._until_active(other_than="")
        await self._until("count(raybus_partitions_held) by (controller)", count=3)
        await self._until_quiet()
        say("an upgrade in steps")
        await self._change(_a_config("rayproject/ray:2.53.0"))
        second = await self._until_active(other_than=first)
        quiet = sorted(self._seen_firing)
        await self._until("raybus_service_last_upgrade_finished_timestamp_seconds")
        await self._until("increase(raybus_upgrades_total[10m]) > 0")
        await self._until_fired("requests were cut", "RaybusRequestsCut")
        queries = {query: await self._lines(query) for query in [*_queries(), *self._more]}
        held = {metric: await self._server.query(metric) for metric in KUBERAY}
        targets = await self._server.scraped()
        await self._break(second)
        return Told(
            targets=targets,
            queries=queries,
            labels={metric: _in_all(found) for metric, found in held.items()},
            namespaces={metric: sorted({each.metric["namespace"] for each in found}) for metric, found in held.items()},
            quiet=quiet,
            fired=self._fired,
            texts=sorted(self._texts),
        )

    async def _break(self, active: str) -> None:
        """Do what alerts are for, one after the other."""
        say("an upgrade that does not get on")
        await self._annotate({"raybus.io/progress-deadline": "3s"})
        await self._change(_a_config("rayproject/ray:2.54.0"), serve=a_serve_config(import_path="missing:app"))
        await self._until_fired("an application that does not start", "RaybusUpgradeStalled")
        await self._annotate({"raybus.io/abort": "true"})
        await self._until_fired("an abort", "RaybusUpgradeRolledBack")
        say("a cluster that the API server refuses, and a dashboard that fails")
        await self._rig.kube.create(RAY_CLUSTER, CROWD, _a_cluster("refused", port=99999))
        self._played.serve.head(f"{active}-head-svc").behaviour = "500"
        await self._until_fired("pods that are refused", "RaybusReconcileErrors")
        await self._until_fired("a dashboard that fails", "RaybusServeSilent")
        say("NATS, a reconciler and the watcher freeze, one after the other")
        await self._frozen("nats", "RaybusNatsAway")
        await self._frozen("cluster-reconciler", "RaybusServiceDown", "RaybusPartitionsWithoutOwner")
        await self._frozen("watcher", "RaybusNoLeaderWatcher")

    async def _frozen(self, program: str, *alerts: str) -> None:
        os.kill(self._pids[program], signal.SIGSTOP)
        try:
            await self._until_fired(f"{program} is frozen", *alerts)
        finally:
            os.kill(self._pids[program], signal.SIGCONT)
        await self._until(
            f'sum(up{{job="raybus"}}) == {len(OWNERS) - 1} and sum(raybus_bus_connected) == {len(OWNERS) - 1}'
        )

    async def _until_fired(self, cause: str, *alerts: str) -> None:
        wanted = set(alerts)

        async def fires() -> bool:
            return wanted <= await self._server.firing()

        await eventually_true(fires, within=PATIENCE, what=f"{', '.join(alerts)} after: {cause}")
        self._fired[cause] = sorted(wanted)
        self._texts |= await self._server.texts()

    async def _until_quiet(self) -> None:
        """Wait until nothing fires: what is absent before the first scrape does not count."""

        async def is_quiet() -> bool:
            return not await self._server.firing()

        await eventually_true(is_quiet, within=PATIENCE, what="a moment without an alert")

    async def _until(self, expression: str, *, count: int = 1) -> None:
        async def holds() -> bool:
            return len(await self._server.query(expression)) >= count

        await eventually_true(holds, within=PATIENCE, what=expression)

    async def _until_active(self, *, other_than: str) -> str:
        name = ""

        async def serves() -> bool:
            nonlocal name
            self._seen_firing |= await self._server.firing() if other_than else set()
            body: Body = msgspec.json.decode(await self._rig.kube.get(RAY_SERVICE, CROWD, "demo"))
            status: Json = body.get("status", {})
            name = status.get("activeServiceStatus", {}).get("rayClusterName", "")
            is_alone = not status.get("pendingServiceStatus", {}).get("rayClusterName", "")
            return status.get("serviceStatus") == "Running" and is_alone and name != other_than

        await eventually_true(serves, within=PATIENCE, what="a cluster that serves")
        return name

    async def _change(self, config: Json, *, serve: str = "") -> None:
        spec: Json = {"rayClusterConfig": config} | ({"serveConfigV2": serve} if serve else {})
        await self._rig.kube.patch(RAY_SERVICE, CROWD, "demo", Patch(body={"spec": spec}))

    async def _annotate(self, annotations: dict[str, str]) -> None:
        body: Json = {"metadata": {"annotations": annotations}}
        await self._rig.kube.patch(RAY_SERVICE, CROWD, "demo", Patch(body=body))

    async def _lines(self, query: str) -> int:
        for pattern, value in VARIABLES:
            query = re.sub(pattern, value, query)
        return await self._server.drawn(query, since=self._began, until=_wall_clock())


KUBERAY: Final = (
    "workqueue_depth",
    "controller_runtime_active_workers",
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_time_seconds_bucket",
    "kuberay_cluster_info",
    "kuberay_cluster_provisioned_duration_seconds",
    "kuberay_cluster_condition_provisioned",
    "kuberay_service_info",
    "kuberay_service_condition_ready",
    "kuberay_service_condition_upgrade_in_progress",
)


def _in_all(found: list[Series]) -> list[str]:
    """Return the labels that every line has."""
    return sorted(label for label in found[0].metric if all(label in each.metric for each in found)) if found else []


def _queries() -> list[str]:
    return [
        query.expr
        for page in DASHBOARDS.values()
        for row in page.rows
        for panel in row.panels
        for query in panel.queries
    ]


def _a_config(image: str) -> Json:
    return a_cluster_config(a_group(minReplicas=1, replicas=1), image=image, enableInTreeAutoscaling=True)


def _a_service() -> Body:
    annotations = {"raybus.io/drain-timeout": "1s"}
    body = a_ray_service(
        config=_a_config("rayproject/ray:2.52.0"),
        annotations=annotations,
        upgradeStrategy=STEPS,
        rayClusterDeletionDelaySeconds=0,
    )
    del body["metadata"]["namespace"]
    return body


def _a_cluster(name: str, *, port: int) -> Body:
    spec = a_cluster_config()
    spec["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] = [
        {"name": "gcs-server", "containerPort": port}
    ]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}


def _jobs(pids: dict[str, int]) -> list[dict[str, Any]]:
    """Return the scrape configuration, as deploy/monitoring/scrape.yaml has it, for processes of this machine."""
    services = [name for name in pids if name.replace("-", "_") in OWNERS]
    targets = [
        {
            "targets": [f"127.0.0.1:{_port(pids[name])}"],
            "labels": {"service": name, "pod": f"{name}-0", "namespace": "raybus"},
        }
        for name in services
    ]
    return [{"job_name": "raybus", "honor_labels": True, "static_configs": targets}]


def _port(pid: int) -> str:
    held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(each for each in held if each.startswith(b"RAYBUS_HTTP_PORT=")).partition(b"=")[2].decode()


def _shorter_rules(folder: Path) -> Path:
    groups = [{**group, "rules": [_shorter(rule) for rule in group["rules"]]} for group in files.groups()]
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups}))
    return path


def _shorter(rule: Json) -> Json:
    if rule["alert"] not in PROVOKED:
        return rule
    expression: str = rule["expr"]
    for pattern, value in SHORTER:
        expression = re.sub(pattern, value, expression)
    return {**rule, "expr": expression, **({"for": "2s"} if "for" in rule else {})}


@asynccontextmanager
async def _gateway(found: Rig) -> AsyncGenerator[None]:
    """Play a Gateway's controller for the length of a block."""
    crds, _ = locate(["gateway-crds"], Settings.from_environment())
    async with found.control_plane.api() as api:
        held = read_manifests(crds["gateway-crds"])
        await api.apply_definitions([each for each in held if each["spec"]["names"]["kind"] in GATEWAY_KINDS])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(GatewayController(found.kube, CROWD).run())
        yield
        task.cancel()


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


async def run(more: list[str]) -> Told:
    """Start everything, and run the story; `more` are queries to be tried beside our own."""
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(rig.fresh())
        played = await stack.enter_async_context(heads.played())
        await stack.enter_async_context(_gateway(found))
        played.ongoing = CUT
        up = raybus_up.started(found.work / "up", "--kubeconfig", str(found.kubeconfig))
        announced = await stack.enter_context(up).ready(within=PATIENCE)
        pids = {name: announced.one(name) for name in announced.pids}
        jobs, rules = _jobs(pids), _shorter_rules(found.work)
        server = await stack.enter_async_context(prometheus.started(found.work / "prometheus", jobs=jobs, rules=rules))
        return await Story(found, played, server, pids=pids, more=more).tell()


def _wall_clock() -> float:
    return time.time()  # noqa: TID251  (Prometheus wants Unix time)


def say(line: str) -> None:
    """Tell whoever waits what goes on."""
    sys.stderr.write(f"watched: {time.monotonic():.0f} s: {line}\n")
    sys.stderr.flush()


def main() -> None:
    """Enter the network of our own and print what was found."""
    named = [each for each in sys.argv[1:] if each != "--inside"]
    if "--inside" not in sys.argv:
        pod_network.enter("integration.monitoring.watched", named)
    pod_network.prepare()
    more = [query for each in named for query in _expressions(msgspec.json.decode(Path(each).read_bytes()))]
    sys.stdout.write(msgspec.json.encode(asyncio.run(run(more))).decode() + "\n")


if __name__ == "__main__":
    main()
