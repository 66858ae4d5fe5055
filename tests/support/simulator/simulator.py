"""One RayService with everything around it, as scenario tests and the simulation of upgrades use
it.

The simulator is made of parts: an API server, dashboards, RayClusters, a Gateway controller, and
the servers that gates ask, all in memory; a bus; the services, each of which has its own cache; a
clock; and a driver, which decides when a service reconciles and when time passes.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry

from common import errors, labels
from common.api.gateway import PERCENTAGE_MIRROR
from common.api.opaque import Body, Json
from common.feature_gates import BETA, Gates
from common.kube.resources import (
    GATEWAY,
    GATEWAY_CLASS,
    GRPC_ROUTE,
    HTTP_ROUTE,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
)
from common.runtime.key import Key
from common.runtime.replica import ReconcilerParts
from common.upgrade.sources import KINDS as TRAFFIC_KINDS
from service_reconciler import wiring as services
from service_reconciler.settings import Config
from support.builders.ray_service import (
    NAME,
    NAMESPACE,
    a_cluster_config,
    a_group,
    a_ray_service,
    a_strategy,
)
from support.fakes.clock import FakeClock
from support.fakes.clusters import FakeClusters
from support.fakes.events import FakeEvents
from support.fakes.gateway import FakeGatewayController, a_gateway_class
from support.fakes.kube import FakeKube, Request
from support.fakes.serve import FakeServe
from support.fakes.webhook import FakeServers
from support.plans import checked
from support.simulator.observer import Observer, View
from support.simulator.scripted import TICK, Scripted
from support.simulator.services import SimulatedBus, SimulatedService
from support.simulator.writes import Writes
from traffic_manager import wiring as traffic

KEY: Final = Key(NAMESPACE, NAME)
READS: Final = frozenset({"get", "list"})
_CONFIG: Final = Config()


class Driver(Protocol):
    """Decides when the services receive changes and reconcile, and advances the time."""

    def begin(self, service: SimulatedService) -> None:
        """Start a new process of a service."""
        ...

    def changed(self) -> None:
        """React to a change that was just published on the bus."""
        ...

    async def run(self, seconds: float) -> None:
        """Advance the time by some seconds."""
        ...

    async def reconcile(self) -> None:
        """Let the services reconcile until nothing is due now."""
        ...


class Simulator:
    """A RayService, the services that reconcile it, and everything else that they communicate with."""

    def __init__(
        self,
        *,
        settings: Config = _CONFIG,
        has_traffic_manager: bool = False,
        clock: FakeClock | None = None,
        serve: FakeServe | None = None,
        driver: Callable[[Any], Driver] = Scripted,
    ) -> None:
        self.clock = clock or FakeClock()
        self.kube = FakeKube(now=self.clock.now)
        self.serve = serve or FakeServe(self.clock)
        self.ray_clusters = FakeClusters(self.kube, self.serve, self.clock)
        self.gateway = FakeGatewayController(self.kube, self.clock)
        self.kube.put(GATEWAY_CLASS, a_gateway_class(PERCENTAGE_MIRROR))
        self.servers = FakeServers()
        """The servers that gates query."""
        self.events = FakeEvents(self.clock)
        self.bus = SimulatedBus(self.clock)
        self.writes = Writes(self.clock)
        self.settings = settings
        self.defaults: Json = {}
        """Fields of each RayService for which `apply` has no argument."""
        self.key = KEY
        """Key of the RayService that most tests apply."""
        self.other_services: list[Key] = []
        self.failed: list[str] = []
        """Errors that failed a reconcile, except conflicts."""
        self.unknown_kinds: set[str] = set()
        """Kinds that the API server does not know."""
        self.is_reconciling = False
        """Whether a request that is sent now comes from a service."""
        self.observer = Observer(self)
        self.driver = driver(self)
        self.services = {
            "service": SimulatedService(
                name="service", kinds=services.KINDS, assemble=self._assemble_service
            )
        }
        if has_traffic_manager:
            self.services["traffic"] = SimulatedService(
                name="traffic", kinds=TRAFFIC_KINDS, assemble=self._assemble_traffic
            )
        self.kube.on_change.append(self._changed)
        self.kube.faults.append(self._meet)
        self.serve.on_put.append(self.writes.note_put)
        self.events.on_publish.append(self.writes.note_publish)
        self.restart()

    def _assemble_service(self) -> ReconcilerParts:
        self.metrics = CollectorRegistry()
        return checked(
            services.assemble(
                self.kube,
                self.serve,
                self.settings,
                clock=self.clock,
                instance="test",
                bus=self.events,
                registry=self.metrics,
                outbound=self.servers,
            )
        )

    def _assemble_traffic(self) -> ReconcilerParts:
        return checked(
            traffic.assemble(
                self.kube, self.serve, clock=self.clock, instance="test", outbound=self.servers
            )
        )

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        self.bus.publish(kind, body, is_gone=is_gone)
        self._notice(kind, body, is_gone=is_gone)
        self.driver.changed()
        if self.is_reconciling:
            self.writes.end()

    def _notice(self, kind: str, body: Body, *, is_gone: bool) -> None:
        """Record a change before the services receive it."""

    def _meet(self, request: Request) -> errors.RaybusError | None:
        """Count a request of the services; return the error with which the API server answers it,
        if any.
        """
        if self.is_reconciling and request.verb not in READS:
            self.writes.note_request(request)
        return errors.NotFound("page not found") if request.kind in self.unknown_kinds else None

    # --- time and processes --------------------------------------------------------------------------

    def restart(self, *names: str) -> None:
        """Start a new process of each named service, or of all."""
        for name in names or tuple(self.services):
            self.driver.begin(self.services[name])

    async def run(self, seconds: float) -> None:
        """Advance the time by some seconds."""
        await self.driver.run(seconds)

    async def reconcile(self) -> None:
        """Let the services reconcile until nothing is due now."""
        await self.driver.reconcile()

    async def until(self, holds: Callable[[], object], *, seconds: float = 60.0) -> None:
        """Advance the time until a condition holds."""
        for _ in range(round(seconds / TICK)):
            if holds():
                return
            await self.run(TICK)
        msg = f"it does not hold after {seconds} s; status: {self.status}"
        raise AssertionError(msg)

    def jump(self, by: timedelta) -> None:
        """Change the wall clock; timers continue, like those of the event loop."""
        self.clock.jump(by)

    # --- what a user does and sees -------------------------------------------------------------------------------------

    def apply(self, **fields: Any) -> None:
        """Apply a RayService; keywords are those of the builder."""
        body = a_ray_service(**self.defaults | fields)
        name = body["metadata"]["name"]
        if (key := Key(NAMESPACE, name)) not in {self.key, *self.other_services}:
            self.other_services.append(key)
        old = self.kube.objects.get((RAY_SERVICE.kind, NAMESPACE, name))
        if old is not None:
            body = {
                **old,
                "spec": body["spec"],
                "metadata": {**old["metadata"], "annotations": body["metadata"]["annotations"]},
            }
        self.kube.put(RAY_SERVICE, body)

    @property
    def has_service(self) -> bool:
        return (RAY_SERVICE.kind, NAMESPACE, NAME) in self.kube.objects

    @property
    def service(self) -> Body:
        return self.kube.objects[(RAY_SERVICE.kind, NAMESPACE, NAME)]

    @property
    def status(self) -> Json:
        return self.service.get("status", {})

    def status_of(self, name: str) -> Json:
        """Return the status of a RayService."""
        return self.kube.objects[(RAY_SERVICE.kind, NAMESPACE, name)].get("status", {})

    @property
    def active(self) -> str:
        return self.status.get("activeServiceStatus", {}).get("rayClusterName", "")

    @property
    def pending(self) -> str:
        return self.status.get("pendingServiceStatus", {}).get("rayClusterName", "")

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        for condition in self.status.get("conditions", []):
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        return "", ""

    def message(self, kind: str) -> str:
        """Return the message of a condition."""
        return next(each["message"] for each in self.status["conditions"] if each["type"] == kind)

    @property
    def clusters(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.kube.all(RAY_CLUSTER)]

    def selected(self, service: str = f"{NAME}-serve-svc") -> str:
        """Return the cluster that a Service selects, empty for one that selects no single cluster."""
        body = self.kube.objects.get((SERVICE.kind, NAMESPACE, service))
        return body["spec"]["selector"].get(labels.CLUSTER, "") if body else ""

    def is_ready(self) -> bool:
        return self.condition("Ready")[0] == "True"

    def is_complete(self) -> bool:
        """Return whether the service serves with one cluster and no pending one."""
        return self.is_ready() and bool(self.active) and not self.pending

    def reasons(self) -> list[str]:
        """Return the reasons of all Events, in order."""
        return [reason for _, reason, _ in self.kube.events()]

    @property
    def route(self) -> Body | None:
        return self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute"))

    @property
    def gateways(self) -> list[Body]:
        return self.kube.all(GATEWAY)

    @property
    def weights(self) -> dict[str, int]:
        """Return the weight of each backend of the route."""
        route = self.route
        return weights_of(route) if route is not None else {}

    @property
    def grpc_route(self) -> Body | None:
        return self.kube.objects.get((GRPC_ROUTE.kind, NAMESPACE, f"{NAME}-grpcroute"))

    @property
    def view(self) -> View:
        held = [self.status.get(f"{role}ServiceStatus", {}) for role in ("active", "pending")]
        return View(
            (held[0].get("targetCapacity"), held[1].get("targetCapacity")),
            (held[0].get("trafficRoutedPercent"), held[1].get("trafficRoutedPercent")),
        )

    def puts(self, cluster: str) -> list[Json]:
        """Return the configs that a cluster was sent."""
        return self.serve.head(f"{cluster}-head-svc").puts

    def capacities(self, cluster: str) -> list[int]:
        """Return the target capacities that a cluster was sent, in order."""
        return [each["target_capacity"] for each in self.puts(cluster)]

    def is_rolling_back(self) -> bool:
        return self.condition("RollbackInProgress")[0] == "True"


async def a_running_simulator(*, settings: Config = _CONFIG, **fields: Any) -> Simulator:
    """Return a simulator with a RayService that serves; keywords are those of the builder."""
    sim = Simulator(settings=settings)
    sim.apply(**fields)
    await sim.until(sim.is_complete)
    return sim


def a_config(image: str = "rayproject/ray:2.52.0", *groups: Json) -> Json:
    """Return a cluster that Ray's autoscaler scales."""
    return a_cluster_config(
        *(groups or (a_group(replicas=3, minReplicas=0),)),
        image=image,
        enableInTreeAutoscaling=True,
    )


BLUE = a_config()
GREEN = a_config("rayproject/ray:2.53.0")
RED = a_config("rayproject/ray:2.54.0")


def a_pair(*, gates: Gates = BETA) -> Simulator:
    """Return service-reconciler and traffic-manager, with an upgrade in steps as the default."""
    sim = Simulator(settings=Config(gates=gates), has_traffic_manager=True)
    sim.defaults = {"config": BLUE, "upgradeStrategy": a_strategy()}
    return sim


async def a_running_pair(**fields: Any) -> Simulator:
    """Return a simulator with a service that serves through its route."""
    sim = a_pair()
    sim.apply(**fields)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights))
    await sim.run(2)
    sim.observer.trace.clear()
    return sim


def weights_of(route: Body, *, rule: int = 0) -> dict[str, int]:
    """Return the weight of each backend of one rule."""
    refs: list[Json] = route["spec"]["rules"][rule].get("backendRefs", [])
    return {each["name"].removesuffix("-serve-svc"): each["weight"] for each in refs}


def trace_of_writes(sim: Simulator, lines: list[tuple[float, str]]) -> str:
    """Return as text what the services wrote and when, without the random parts of names."""
    text = "\n".join(f"t+{at:6.2f}  {line}" for at, line in lines)
    created = [
        request.name
        for request in sim.kube.requests
        if str(request).startswith("create RayCluster")
    ]
    for number, name in enumerate(dict.fromkeys(created), start=1):
        text = text.replace(name, f"{NAME}-{number}")
    return text + "\n"
