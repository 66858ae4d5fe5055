"""The demo's RayService on the rig, in any version and with any options.

The whole history of its status is recorded, and load can be sent to it. Load is open loop: 25 short
requests a second (50 in the soak test) and one of 5 to 20 s every 2 s, over kept-alive connections.
No request is sent twice unless a test asks for it.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import yaml

from common import labels
from common.api.gateway import HttpRoute
from common.api.opaque import Json
from common.kube.resources import HTTP_ROUTE, RAY_SERVICE, Resource
from common.upgrade.receipt import Receipt
from localcluster.demo import demo_cluster, tally
from localcluster.demo.cluster_state import (
    LOAD_POD,
    NAMESPACE,
    SERVICE,
    DemoState,
    ObservedService,
    observe,
)
from localcluster.demo.demo_cluster import Load
from localcluster.demo.tally import LoadAnswer, LoadFigures, UpgradeWindow
from support.waiting import eventually, eventually_true

from .conftest import DEPLOY, Rig
from .upgrade_status import Moment, Move

GATEWAY = f"{SERVICE}-gateway"
ROUTE = f"{SERVICE}-httproute"
GRPC_PORT = 9000
GRPC_OPTIONS = f"""\
grpc_options:
  port: {GRPC_PORT}
  grpc_servicer_functions: [ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server]
"""
STREAMS_POD = "streams"
LOAD = Load(url="", rate=25.0, think="5-20", retry="none")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an upgrade in steps."""

    step: int = 25
    interval: int = 2
    surge: int = 50
    replicas: int = 2
    """Serve's replicas at full capacity."""
    takes_grpc: bool = False
    fail_percent: int = 0
    """Percent of the requests that fail."""
    policy: str = ""
    """The name of an UpgradePolicy."""
    environment: dict[str, str] = {}
    """Variables of Ray's containers."""
    annotations: dict[str, str] = {}
    """Annotations of the RayService."""
    is_head_only: bool = False
    """Whether the cluster has no workers, so that it starts sooner."""
    workers: int = 0
    """Number of workers with one replica of Serve each; 0 leaves both numbers as in the demo."""


class BlueGreen(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an upgrade that moves all traffic at once."""

    drains: bool
    """Whether the old cluster's proxies close kept-alive connections between requests."""
    has_ha_proxy: bool = False
    """Whether HAProxy is Serve's proxy."""
    policy: str = ""
    """The name of an UpgradePolicy."""
    environment: dict[str, str] = {}
    """Variables of Ray's containers."""


class Event(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Greeter:
    """The RayService of one test."""

    def __init__(self, rig: Rig, options: Options | BlueGreen, scripts: Path | None = None) -> None:
        self._rig = rig
        self._options = options
        self._scripts = scripts
        """Folder with an application and a load of this test, which replace those of the demo."""
        self._base: Json = {}
        self.version = 1
        """The active version. A test that runs again begins with a later version."""
        self._last = 1
        self.history: list[Moment] = []
        self.moves: list[Move] = []

    async def start(self) -> None:
        """Remove what is left of an earlier run, and start version 1."""
        await self._clear()
        folder = "demo/incremental-v1" if isinstance(self._options, Options) else "demo/v1"
        text = await self._rig.kubectl.run("kustomize", str(DEPLOY / folder))
        documents: list[Json] = [each for each in yaml.safe_load_all(text) if each]
        self._base = next(each for each in documents if each["kind"] == "RayService")
        self._replace_scripts(documents)
        for document in documents:
            if document["kind"] != "RayService":
                await self._apply(document)
        await self._ask_for(1)
        await self.wait("version 1 serving", _is_serving, within=240)

    async def stop(self) -> None:
        """Delete the RayService."""
        await self._rig.kubectl.run(
            "delete", "rayservice", SERVICE, "-n", NAMESPACE, "--ignore-not-found"
        )

    async def upgrade(self, options: Options | BlueGreen | None = None) -> str:
        """Apply a new version, which changes cluster and Serve config; return the cluster that
        serves then.

        The given options apply from now on.
        """
        self._options = options or self._options
        self._last += 1
        active = (await self.state()).active
        await self._ask_for(self._last)
        return active

    async def revert(self, options: Options) -> None:
        """Apply the serving version again with other options."""
        self._options = options
        await self._ask_for(self.version)

    async def append_group(self, name: str) -> None:
        """Append a worker group to the serving version."""
        groups = self._base["spec"]["rayClusterConfig"]["workerGroupSpecs"]
        groups.append({**groups[0], "groupName": name})
        await self._ask_for(self.version)

    async def drop_group(self) -> None:
        """Omit the last worker group in later versions."""
        self._base["spec"]["rayClusterConfig"]["workerGroupSpecs"].pop()

    @property
    def requested(self) -> int:
        """Return the number of the newest version that was applied."""
        return self._last

    async def _ask_for(self, version: int) -> None:
        await self._apply(self.manifest(version))

    def manifest(self, version: int) -> Json:
        """Return a version as a user writes it, with the options that hold."""
        body: Json = msgspec.json.decode(msgspec.json.encode(self._base))
        spec = body["spec"]
        deployment = {"name": "Greeter", "max_ongoing_requests": 200 + version}
        match self._options:
            case Options() as options:
                spec["upgradeStrategy"]["clusterUpgradeOptions"].update(
                    stepSizePercent=options.step,
                    intervalSeconds=options.interval,
                    maxSurgePercent=options.surge,
                )
                deployment["num_replicas"] = options.replicas
                if options.workers:
                    deployment.update(num_replicas=options.workers, max_replicas_per_node=1)
                    numbers = dict.fromkeys(
                        ("replicas", "minReplicas", "maxReplicas"), options.workers
                    )
                    spec["rayClusterConfig"]["workerGroupSpecs"][0].update(numbers)
                chosen = {labels.UPGRADE_POLICY: options.policy} if options.policy else {}
                if chosen or options.annotations:
                    body["metadata"]["annotations"] = {**chosen, **options.annotations}
            case BlueGreen(drains=drains, policy=policy):
                chosen = {labels.UPGRADE_POLICY: policy} if policy else {}
                body["metadata"]["annotations"] = {
                    "raybus.io/graceful-drain": str(drains).lower(),
                    **chosen,
                }
        spec["serveConfigV2"] += f"    deployments: [{msgspec.json.encode(deployment).decode()}]\n"
        config = spec["rayClusterConfig"]
        if isinstance(self._options, Options) and self._options.is_head_only:
            config["workerGroupSpecs"] = []
            config["headGroupSpec"]["rayStartParams"]["num-cpus"] = "1"
            spec["rayClusterDeletionDelaySeconds"] = 2
        for group in (config["headGroupSpec"], *config["workerGroupSpecs"]):
            self._configure(group["template"]["spec"]["containers"][0], version)
        if isinstance(self._options, Options) and self._options.takes_grpc:
            spec["serveConfigV2"] += GRPC_OPTIONS
        return body

    def _configure(self, container: Json, version: int) -> None:
        """Set in Ray's container what the options and the version ask for."""
        container["env"][0]["value"] = str(version)
        match self._options:
            case Options() as options:
                added = dict(options.environment)
                if options.fail_percent:
                    added["FAIL_PERCENT"] = str(options.fail_percent)
                if options.takes_grpc:
                    container["ports"].append({"name": "serve-grpc", "containerPort": GRPC_PORT})
            case BlueGreen(has_ha_proxy=has_ha_proxy, environment=environment):
                added = dict(environment) | (
                    {"RAY_SERVE_ENABLE_HA_PROXY": "1"} if has_ha_proxy else {}
                )
        container["env"] += [{"name": name, "value": text} for name, text in added.items()]

    async def allow_long_requests(self) -> None:
        """Write a timeout of the user on the route as soon as the route exists.

        The service may serve before it has a route.
        """

        async def is_there() -> bool:
            return bool(
                await self._rig.kubectl.run(
                    "get", "httproute", ROUTE, "-n", NAMESPACE, "--ignore-not-found"
                )
            )

        await eventually_true(is_there, within=60, what="the route")
        change = [{"op": "add", "path": "/spec/rules/0/timeouts", "value": {"request": "0s"}}]
        arguments = ("--type=json", "-p", msgspec.json.encode(change).decode())
        await self._rig.kubectl.run("patch", "httproute", ROUTE, "-n", NAMESPACE, *arguments)

    async def request_timeout(self) -> str:
        """Return the timeout of the user that is on the route."""
        path = "jsonpath={.spec.rules[0].timeouts.request}"
        return await self._rig.kubectl.run("get", "httproute", ROUTE, "-n", NAMESPACE, "-o", path)

    async def annotate(self, **annotations: str) -> None:
        """Set annotations `raybus.io/…` (an underscore stands for a dash); an empty value removes one."""
        arguments = [
            f"raybus.io/{name.replace('_', '-')}" + (f"={value}" if value else "-")
            for name, value in annotations.items()
        ]
        await self._rig.kubectl.run(
            "annotate", "rayservice", SERVICE, "-n", NAMESPACE, "--overwrite", *arguments
        )

    async def generation(self) -> int:
        """Return the generation of the spec."""
        return int(
            await self._rig.kubectl.run(
                "get",
                "rayservice",
                SERVICE,
                "-n",
                NAMESPACE,
                "-o",
                "jsonpath={.metadata.generation}",
            )
        )

    async def receipt(self) -> Receipt:
        """Return the receipt of the last upgrade."""
        path = "jsonpath={.metadata.annotations.raybus\\.io/upgrade-receipt}"
        text = await self._rig.kubectl.run(
            "get", "rayservice", SERVICE, "-n", NAMESPACE, "-o", path
        )
        return msgspec.json.decode(text, type=Receipt)

    async def state(self) -> DemoState:
        """Observe once."""
        return await observe(self._rig.kube)

    async def wait(
        self, what: str, holds: Callable[[DemoState], bool], *, within: float = 180
    ) -> DemoState:
        """Wait until a condition holds for the state of the cluster, and return that state."""
        state = DemoState()

        async def is_so() -> bool:
            nonlocal state
            state = await self.state()
            return holds(state)

        try:
            await eventually_true(is_so, within=within, every=0.2, what=what)
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {_summary(state)}; {self.history[-1:]}") from failure
        return state

    async def wait_for_share(self, percent: int, *, within: float = 180) -> None:
        """Wait until the pending cluster gets at least so many percent of the traffic."""
        await self.wait(
            f"a share of {percent} percent", lambda state: _share(state) >= percent, within=within
        )

    async def wait_for_promotion(self, old: str, *, within: float = 240) -> str:
        """Wait until another cluster serves and the old one and its pods are gone; return the new one's name."""
        await self.wait_for_another(old, within=within)
        await self.wait("the old cluster going", lambda state: _is_gone(state, old), within=within)
        return (await self.state()).active

    async def wait_for_another(self, old: str, *, within: float = 240) -> str:
        """Wait until another cluster serves, while the old one may still drain; return the new one's name."""
        state = await self.wait(
            "another cluster serving", lambda state: _has_moved(state, old), within=within
        )
        self.version = self._last
        return state.active

    async def wait_for_return(self, old: str, *, within: float = 240) -> None:
        """Wait until only the old cluster is there, and serves."""
        await self.wait(
            "the upgrade being withdrawn", lambda state: _is_alone(state, old), within=within
        )

    @asynccontextmanager
    async def followed(self) -> AsyncGenerator[list[Moment]]:
        """Note the status for the length of a `with` block."""
        self.history, self.moves = [], []
        async with asyncio.TaskGroup() as group:
            following = [
                group.create_task(self._watch(RAY_SERVICE, SERVICE, self._note)),
                group.create_task(self._watch(HTTP_ROUTE, ROUTE, self._note_route)),
            ]
            try:
                yield self.history
            finally:
                for each in following:
                    each.cancel()

    async def _watch(
        self, resource: Resource, name: str, note: Callable[[bytes, float], None]
    ) -> None:
        query = {"watch": "true", "fieldSelector": f"metadata.name={name}"}
        while True:
            async with self._rig.kube.stream(resource.path(NAMESPACE), query=query) as lines:
                async for line in lines:
                    event = msgspec.json.decode(line, type=Event)
                    if event.type in {"ADDED", "MODIFIED"}:
                        note(bytes(event.object), round(time.time(), 2))  # noqa: TID251  (the load's wall clock)

    @asynccontextmanager
    async def under_load(self, **changes: str | float) -> AsyncGenerator[list[LoadAnswer]]:
        """Send requests during a `with` block.

        The list of answers is complete at the end of the block.
        """
        load = msgspec.structs.replace(LOAD, url=await self._url(), **changes)
        text = await self._rig.kubectl.run("kustomize", str(DEPLOY / "demo/load"))
        documents: list[Json] = [
            each for each in yaml.safe_load_all(demo_cluster.set_load(text, load)) if each
        ]
        self._replace_scripts(documents)
        async with self._loaded(LOAD_POD, yaml.safe_dump_all(documents)) as answers:
            yield answers

    def _replace_scripts(self, documents: list[Json]) -> None:
        """Replace the demo's scripts by those of this service."""
        for document in (
            each for each in documents if each["kind"] == "ConfigMap" and self._scripts is not None
        ):
            document["data"] = {
                name: (self._scripts / name).read_text() for name in document["data"]
            }

    @asynccontextmanager
    async def under_streams(self) -> AsyncGenerator[list[LoadAnswer]]:
        """Hold gRPC streams open for the length of a `with` block."""
        text = await self._rig.kubectl.run("kustomize", str(DEPLOY / "demo/streams"))
        address = f"{await self._address()}:{GRPC_PORT}"
        async with self._loaded(
            STREAMS_POD, text.replace(f"{GATEWAY}:{GRPC_PORT}", address)
        ) as answers:
            yield answers

    @asynccontextmanager
    async def _loaded(self, pod: str, manifest: str) -> AsyncGenerator[list[LoadAnswer]]:
        answers: list[LoadAnswer] = []
        # that of an earlier block may be ending
        await self._rig.kubectl.run(
            "delete", "pod", "-n", NAMESPACE, pod, "--ignore-not-found", "--timeout=60s"
        )
        await self._rig.kubectl.run("apply", "-f", "-", stdin=manifest)
        await self._rig.kubectl.run(
            "wait", "-n", NAMESPACE, f"pod/{pod}", "--for=condition=Ready", "--timeout=60s"
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(pod, answers))
            await eventually(lambda: answers, within=60, what="a first answer")
            try:
                yield answers
            finally:
                await self._rig.kubectl.run("delete", "pod", "-n", NAMESPACE, pod, "--wait=false")

    async def _read(self, pod: str, answers: list[LoadAnswer]) -> None:
        async with self._rig.kubectl.follow("logs", "-n", NAMESPACE, "-f", f"pod/{pod}") as lines:
            async for line in lines:
                answers += tally.read([line])

    async def _url(self) -> str:
        if isinstance(self._options, BlueGreen):
            return f"http://{SERVICE}-serve-svc:8000/"
        return f"http://{await self._address()}/"

    async def _address(self) -> str:
        where = ("gateway", GATEWAY, "-n", NAMESPACE)
        await self._rig.kubectl.run("wait", *where, "--for=condition=Programmed", "--timeout=60s")
        return await self._rig.kubectl.run(
            "get", *where, "-o", "jsonpath={.status.addresses[0].value}"
        )

    async def _apply(self, body: Json) -> None:
        await self._rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(body).decode())

    async def _clear(self) -> None:
        known = await self._rig.kubectl.run(
            "get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "name"
        )
        if known:
            what = ("rayservice,pod", "-n", NAMESPACE, SERVICE, LOAD_POD, STREAMS_POD)
            await self._rig.kubectl.run("delete", *what, "--ignore-not-found", "--wait=false")
        await self.wait(
            "an earlier service going",
            lambda state: not state.clusters and not state.pods and not state.load,
        )

    def _note(self, body: bytes, at: float) -> None:
        status = msgspec.json.decode(body, type=ObservedService).status
        sides = (status.active_service_status, status.pending_service_status)
        moment = Moment(
            at=at,
            active=sides[0].ray_cluster_name,
            pending=sides[1].ray_cluster_name,
            capacities=(sides[0].target_capacity, sides[1].target_capacity),
            weights=(sides[0].traffic_routed_percent, sides[1].traffic_routed_percent),
            conditions=tuple(
                sorted(each.type for each in status.conditions if each.status == "True")
            ),
        )
        if not self.history or msgspec.structs.replace(self.history[-1], at=at) != moment:
            self.history.append(moment)

    def _note_route(self, body: bytes, at: float) -> None:
        route = msgspec.json.decode(body, type=HttpRoute)
        move = Move(
            at=at,
            weights={
                each.target.place[1]: each.weight
                for rule in route.spec.rules
                for each in route.backends(rule)
            },
        )
        if not self.moves or self.moves[-1].weights != move.weights:
            self.moves.append(move)


@asynccontextmanager
async def serving_in_steps(
    rig: Rig, options: Options, scripts: Path | None = None, *, kind: type[Greeter] = Greeter
) -> AsyncGenerator[Greeter]:
    """Run a service with upgrades in steps for the length of a `with` block; its requests may take as long as they like."""
    rig.need_gateway()
    greeter = kind(rig, options, scripts)
    async with asyncio.timeout(300):
        await greeter.start()
        await greeter.allow_long_requests()
    yield greeter
    await greeter.stop()


def expect_no_failure(greeter: Greeter, answers: list[LoadAnswer], *, at_least: int) -> LoadFigures:
    """Check that every request was answered with 200."""
    figures = tally.count(answers, UpgradeWindow())
    worst = [f"{each}" for each in answers if each.failed]
    assert not worst, "\n".join(
        [f"{len(worst)} of {len(answers)} failed", *worst[:40], *map(str, greeter.history)]
    )
    assert figures.requests >= at_least, f"only {figures.requests} requests were sent"
    return figures


def show(*lines: object) -> None:
    """Show lines while the run goes on."""
    sys.stdout.write("\n    ".join(map(str, lines)) + "\n")
    sys.stdout.flush()


async def settle(answers: list[LoadAnswer], *, more: int = 150) -> None:
    """Let some more requests be answered."""
    wanted = len(answers) + more
    await eventually(lambda: len(answers) >= wanted, within=60, what=f"{more} more answers")


def _is_serving(state: DemoState) -> bool:
    service = state.service
    return (
        service is not None and service.is_ready and bool(state.active) and not service.is_upgrading
    )


def _share(state: DemoState) -> int:
    return (
        0
        if state.service is None
        else state.service.status.pending_service_status.traffic_routed_percent or 0
    )


def _has_moved(state: DemoState, old: str) -> bool:
    return bool(state.active) and state.active != old and not state.pending


def _is_gone(state: DemoState, old: str) -> bool:
    return old not in state.clusters and not any(
        pod.metadata.labels.get("ray.io/cluster") == old for pod in state.pods
    )


def _is_alone(state: DemoState, cluster: str) -> bool:
    """Return whether a cluster serves alone, without a pod of any other."""
    homes = {pod.metadata.labels["ray.io/cluster"] for pod in state.pods}
    return (
        state.active == cluster
        and not state.pending
        and state.clusters == (cluster,)
        and homes == {cluster}
    )


def _summary(state: DemoState) -> str:
    if state.service is None:
        return "there is no RayService"
    conditions = [
        f"{each.type}={each.status} {each.reason} {each.message}"
        for each in state.service.status.conditions
    ]
    return f"clusters {state.clusters}; " + "; ".join(conditions)
