"""One tenant and all five services in memory: watcher → stream → four reconcilers with their queues
and workers, in virtual time.

Everything on the way of an object is the code that runs in production: nesting check, relay,
messages, informer caches, quarantine, controllers, planners, statuses, Events, the adapter for
dashboards, the collectors of `/metrics`. Fakes are the API server, the stream, kubelet, the Gateway
controller and what dashboards answer.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cluster_reconciler import wiring as cluster_wiring
from cluster_reconciler.config import Config as ClusterConfig
from common import errors, labels, untrusted
from common.api.opaque import Body, Json
from common.bus import subjects
from common.bus.messages import Message
from common.feature_gates import BETA, FeatureGate
from common.kube import resources
from common.kube.resources import POD, Resource
from common.ray import serve_config_cache
from common.ray.dashboard import APPLICATIONS, METRICS, DirectDashboard
from common.ray.jobs import PATH as JOBS
from common.runtime.cache import Object
from common.runtime.controller import Reconcile
from common.runtime.key import Key
from common.runtime.replica import ReconcilerParts
from common.upgrade.sources import KINDS as TRAFFIC_KINDS
from job_reconciler import wiring as job_wiring
from job_reconciler.settings import Config as JobConfig
from scenario.hostile.attacks import TENANT, Attack
from service_reconciler import wiring as service_wiring
from service_reconciler.settings import Config as ServiceConfig
from support import crd_schema
from support.fakes.events import FakeEvents
from support.fakes.feed import FakeFeed, FakeStream
from support.fakes.gateway import FakeGatewayController
from support.fakes.kube import FakeKube, Request
from support.fakes.serve import FakeServe
from support.fakes.virtual_time import VirtualClock, VirtualLoop
from support.following import follow
from traffic_manager import wiring as traffic_wiring
from watcher.relay import Relay, RelaySource

TICK: Final = 0.25
FINALIZERS: Final = {labels.RAYSERVICE_FINALIZER, labels.RAYJOB_FINALIZER, labels.GCS_FT_FINALIZER}
MAX_HOLD: Final = 610.0
"""Seconds after its deletion within which each object is gone (docs/reference/annotations.md)."""
T = TypeVar("T")
WATCHED: Final = (
    resources.RAY_SERVICE,
    resources.RAY_CLUSTER,
    resources.RAY_JOB,
    resources.RAY_CRON_JOB,
    resources.SERVICE,
    resources.POD,
    resources.ENDPOINT_SLICE,
    resources.JOB,
    resources.CONTROLLER_REVISION,
    resources.GATEWAY,
    resources.HTTP_ROUTE,
    resources.GRPC_ROUTE,
)

VIEWS: Final = {
    **cluster_wiring.KINDS,
    **service_wiring.KINDS,
    **job_wiring.KINDS,
    **TRAFFIC_KINDS,
}
RAY_KINDS: Final = frozenset({"RayCluster", "RayService", "RayJob", "RayCronJob"})


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A reconcile that raised."""

    controller: str
    key: Key
    problem: Exception


class _Outlet:
    """What the relay puts goes straight to the stream; stands for `watcher.outbox.Outbox`."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream
        self._queue: asyncio.Queue[tuple[str, Message]] = asyncio.Queue()
        self.held: dict[str, Message] = {}

    def __len__(self) -> int:
        return self._queue.qsize()

    def list_stored(self) -> dict[str, str]:
        return {}

    async def get_newest(self, subject: str) -> Message | None:
        return self.held.get(subject)

    def put(self, subject: str, message: Message, *, received: int = 0, wait: float = 0.0) -> None:
        del received, wait
        self.held[subject] = message
        self._queue.put_nowait((subject, message))

    async def work(self) -> None:
        while True:
            await self._stream.store(*await self._queue.get())


class Tenancy:
    """A namespace, and the services that reconcile it."""

    namespace: Final = TENANT

    def __init__(self, attack: Attack) -> None:
        self.attack = attack
        self.clock = VirtualClock()
        self.kube = FakeKube(now=self.clock.now)
        self.gateway = FakeGatewayController(self.kube, self.clock)
        self.serve = FakeServe(self.clock)
        self.failures: list[Failure] = []
        self.reconciles: Counter[tuple[str, Key]] = Counter()
        self.asked: set[str] = set()
        """Hosts that were asked over HTTP."""
        self.last: dict[tuple[str, str, str], Body] = {}
        """What there was before the tenant deleted the object."""
        self.is_changed = False
        """Whether the tenant has changed the object."""
        self.restarts: list[str] = []
        """Why the watcher would begin anew, for all tenants."""
        self.registries = [CollectorRegistry() for _ in range(3)]
        self.stream = FakeStream()
        self._outlet = _Outlet(self.stream)
        self.relay = Relay(self._outlet, self.restarts.append)  # pyright: ignore[reportArgumentType]  (what it needs of an outbox)
        self._sources = {
            each.kind: RelaySource(self.relay, number, each) for number, each in enumerate(WATCHED)
        }
        self.kube.on_change.append(self._deliver)
        self.kube.faults.append(self._admission)
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._dashboard))
        dashboard = DirectDashboard(domain="cluster.local", client=http)
        self.apps = [
            cluster_wiring.assemble(self.kube, ClusterConfig(gates=BETA), clock=self.clock, instance="t", registry=self.registries[0]),
            service_wiring.assemble(
                self.kube, dashboard, ServiceConfig(gates=BETA), clock=self.clock, instance="t", bus=FakeEvents(self.clock), registry=self.registries[1]
            ),
            traffic_wiring.assemble(self.kube, dashboard, clock=self.clock, instance="t"),
            job_wiring.assemble(
                self.kube, dashboard, JobConfig(gates=BETA | {FeatureGate.CRON_JOB}), clock=self.clock, instance="t", bus=FakeEvents(self.clock), registry=self.registries[2]
            ),
        ]  # fmt: skip

    # --- the services ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run all services for the length of a block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._outlet.work()), group.create_task(self.relay.move())]
            await self.stream.mark("epoch", 1, frozenset(range(subjects.PARTITIONS)))
            self.relay.everything_is_listed()
            for app in self.apps:
                feed = FakeFeed(self.stream, tree=app.tree)
                tasks.append(
                    group.create_task(follow(feed, app.controller, range(subjects.PARTITIONS)))
                )
                tasks.append(group.create_task(self._spied(app).run(workers=4)))
            yield
            for task in tasks:
                task.cancel()

    def _spied(self, app: ReconcilerParts) -> ReconcilerParts:
        inner: Reconcile = app.reconciler

        async def reconcile(key: Key, now: datetime) -> datetime | None:
            self.reconciles[app.controller.name, key] += 1
            try:
                return await inner(key, now)
            except Exception as problem:
                self.failures.append(
                    Failure(controller=app.controller.name, key=key, problem=problem)
                )
                raise

        return msgspec.structs.replace(app, reconciler=reconcile)

    def scrape(self) -> None:
        """Collect the metrics of all services, as Prometheus does."""
        for registry in self.registries:
            generate_latest(registry)

    async def live(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / TICK)):
            self._kubelet()
            self._endpoints_follow()
            self.gateway.move_on()
            await asyncio.sleep(TICK)

    # --- what the tenant does ----------------------------------------------------------------------------------------

    def apply(self, resource: Resource, body: Body) -> None:
        """Create or change an object; what the CRD does not know is pruned where it admits the rest."""
        if resource.kind in RAY_KINDS and self.attack.is_admitted:
            body = {
                **body,
                "spec": crd_schema.pruned(body.get("spec"), crd_schema.of(resource.kind)),
            }
        meta: Json = body["metadata"]
        old = self.kube.objects.get((resource.kind, TENANT, meta["name"]))
        status = {"status": old["status"]} if old is not None and "status" in old else {}
        kept = {"finalizers": old["metadata"].get("finalizers", [])} if old is not None else {}
        self.kube.put(
            resource, {**body, **status, "metadata": {**meta, **kept, "namespace": TENANT}}
        )

    def mark(self) -> None:
        """Write the attack's annotations on what raybus made, and its status over that of the object."""
        self._forge_status()
        for (kind, _, _), body in list(self.kube.objects.items()):
            if kind in self.attack.marks:
                meta: Json = body["metadata"]
                annotated: Json = {
                    **meta,
                    "annotations": {**(meta.get("annotations") or {}), **self.attack.marks[kind]},
                }
                self.kube.put(
                    next(each for each in WATCHED if each.kind == kind),
                    {**body, "metadata": annotated},
                )

    def _forge_status(self) -> None:
        attack = self.attack
        old = self.kube.objects.get((attack.resource.kind, TENANT, attack.body["metadata"]["name"]))
        if old is None or not attack.status:
            return
        schema = crd_schema.of(attack.resource.kind, "status")
        status = crd_schema.pruned({**old.get("status", {}), **attack.status}, schema)
        if crd_schema.refusal(status, schema, "status") is None:
            self.kube.set_status(attack.resource, TENANT, old["metadata"]["name"], status)

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete the object, as its tenant does."""
        faults, self.kube.faults = self.kube.faults, []
        await self.kube.delete(resource, TENANT, name)
        self.kube.faults = faults

    def is_held(self) -> bool:
        """Return whether a finalizer of ours holds a deleted object that asks for no longer limit."""
        attack = self.attack
        held = self.kube.objects.get(
            (attack.resource.kind, TENANT, attack.body["metadata"]["name"])
        )
        if held is None or "deletionTimestamp" not in held["metadata"]:
            return False
        asked = labels.GCS_FT_DELETION_TIMEOUT in (held["metadata"].get("annotations") or {})
        return not (asked or FINALIZERS.isdisjoint(held["metadata"].get("finalizers") or []))

    def reasons(self) -> frozenset[str]:
        """Return the reasons of all conditions and Events about the tenant's object."""
        attack = self.attack
        name = attack.body["metadata"]["name"]
        status: Json = self.last.get((attack.resource.kind, TENANT, name), {}).get("status", {})
        events = {
            each.body["reason"]
            for each in self.kube.requests
            if each.kind == "Event"
            and each.verb == "create"
            and each.body["regarding"]["name"] == name
        }
        return frozenset(events | {each.get("reason", "") for each in status.get("conditions", [])})

    # --- what is around ----------------------------------------------------------------------------------------------

    def _deliver(self, kind: str, body: Body, is_gone: bool) -> None:
        source: RelaySource | None = self._sources.get(kind)
        if source is None:
            return
        raw = msgspec.json.encode(body)
        if untrusted.is_too_deep(raw):
            raw = untrusted.pruned(raw, untrusted.DEEPEST)
        if is_gone:
            source.gone(raw)
        else:
            source.present(raw, "it nests too deep" if untrusted.CUT in raw else "")

    def _admission(self, request: Request) -> errors.RaybusError | None:
        """Refuse what a quota or the kind's own schema refuses; our views stand for the schema."""
        if request.verb not in {"create", "patch"}:
            return None
        if request.kind in self.attack.refused:
            return errors.Forbidden(f"{request.kind} {request.name} is forbidden: exceeded quota")
        view = VIEWS.get(request.kind)
        try:
            return None if view is None or request.verb == "patch" else _checked(request.body, view)
        except msgspec.ValidationError as problem:
            return errors.Rejected(f"{request.kind} {request.name} is invalid: {problem}")

    def _kubelet(self) -> None:
        for number, pod in enumerate(self.kube.all(POD, TENANT)):
            if pod.get("status", {}).get("phase") is None:
                name = pod["metadata"]["name"]
                ready: Json = {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                }
                self.kube.set_status(
                    POD,
                    TENANT,
                    name,
                    {"phase": "Running", "podIP": f"10.0.{number % 250}.1", "conditions": [ready]},
                )

    def _endpoints_follow(self) -> None:
        pods = self.kube.all(POD, TENANT)
        for service in self.kube.all(resources.SERVICE, TENANT):
            selector: dict[str, str] = service["spec"].get("selector") or {}
            if not selector:
                continue
            endpoints = [
                {"addresses": [pod["status"]["podIP"]], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": pod["metadata"]["uid"]}}
                for pod in pods
                if selector.items() <= (pod["metadata"].get("labels") or {}).items() and pod.get("status", {}).get("podIP")
            ]  # fmt: skip
            name = service["metadata"]["name"]
            meta: Json = {
                "name": f"{name}-1",
                "namespace": TENANT,
                "labels": {labels.SERVICE_NAME: name},
                "ownerReferences": [
                    {"kind": "Service", "name": name, "uid": service["metadata"]["uid"]}
                ],
            }
            self.kube.put(resources.ENDPOINT_SLICE, {"metadata": meta, "endpoints": endpoints})

    def _dashboard(self, request: httpx.Request) -> httpx.Response:
        self.asked.add(request.url.host)
        if self.attack.location:
            return httpx.Response(
                307, headers={"Location": self.attack.location}, stream=httpx.ByteStream(b"")
            )
        if request.url.path.startswith(JOBS):
            return self._answer_job(request)
        if request.url.path == METRICS:
            return _answer(200, self.attack.metrics)
        if not request.url.path.startswith(APPLICATIONS):
            return _answer(200, b"success")
        return self._answer_serve(request)

    def _answer_serve(self, request: httpx.Request) -> httpx.Response:
        head = self.serve.head(request.headers["Host"].partition(".")[0])
        try:
            if request.method == "PUT":
                head.deploy(msgspec.json.decode(request.content))
                return _answer(200, b"{}")
            answer = self.attack.answer if self.is_changed or not self.attack.is_late else None
            return _answer(200, msgspec.json.encode(head.details()) if answer is None else answer)
        except Exception as problem:  # noqa: BLE001  (Serve answers what it cannot read with an error)
            return _answer(
                400 if request.method == "PUT" else 500, str(problem).encode(errors="replace")
            )

    def _answer_job(self, request: httpx.Request) -> httpx.Response:
        if self.attack.answer is not None and (self.is_changed or not self.attack.is_late):
            return _answer(200, self.attack.answer)
        jobs = self.serve.head(request.headers["Host"].partition(".")[0]).jobs
        path = request.url.raw_path.decode()
        body = msgspec.json.decode(request.content) if request.content else None
        code, text = jobs.answer(request.method, path, body)
        for job_id, job in jobs.jobs.items():
            if job.status == "PENDING":
                jobs.run(job_id)
        return _answer(code, text.encode(errors="replace"))


def _answer(status: int, body: bytes) -> httpx.Response:
    return httpx.Response(status, stream=httpx.ByteStream(body))


def _checked(body: Body, view: type[Object]) -> None:
    msgspec.json.decode(msgspec.json.encode(body), type=view)


class _Inline(ThreadPoolExecutor):
    """Runs at once what would run in a thread: virtual time does not wait for threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Watch(msgspec.Struct):
    """Longest time that the event loop was busy without a pause."""

    longest: float = 0.0
    """Seconds of processor time."""


class _WatchedLoop(VirtualLoop):
    """Measures each turn of the loop."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        super().__init__()

    def _run_once(self) -> None:
        began = time.process_time()
        super()._run_once()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  (asyncio's own)
        self._watch.longest = max(self._watch.longest, time.process_time() - began)


def suffered(attack: Attack, *, watch: Watch | None = None) -> Tenancy:
    """Return the services after an attack: the object is created, marked, changed and deleted."""

    async def scenario() -> Tenancy:
        tenancy = Tenancy(attack)
        for resource, body in attack.beside:
            tenancy.apply(resource, body)
        async with tenancy.running():
            await _play(tenancy)
        return tenancy

    return run_watched(scenario, watch or Watch())


def run_watched(scenario: Callable[[], Coroutine[Any, Any, T]], watch: Watch) -> T:
    """Run a scenario in virtual time, without threads, and measure the turns of its loop."""
    with (
        pytest.MonkeyPatch.context() as patched,
        asyncio.Runner(loop_factory=lambda: _WatchedLoop(watch)) as runner,
    ):
        patched.setattr(serve_config_cache, "ThreadPoolExecutor", _Inline)
        return runner.run(scenario())


async def _play(tenancy: Tenancy) -> None:
    attack = tenancy.attack
    tenancy.apply(attack.resource, attack.body)
    await tenancy.live(8)
    tenancy.mark()
    await tenancy.live(4)
    tenancy.scrape()
    tenancy.is_changed = True
    tenancy.apply(attack.resource, attack.later)
    await tenancy.live(8)
    tenancy.mark()
    await tenancy.live(2)
    tenancy.scrape()
    name = attack.body["metadata"]["name"]
    if (attack.resource.kind, TENANT, name) in tenancy.kube.objects:
        tenancy.last = dict(tenancy.kube.objects)
        await tenancy.delete(attack.resource, name)
    await tenancy.live(3)
    if tenancy.is_held():
        await tenancy.live(MAX_HOLD)
