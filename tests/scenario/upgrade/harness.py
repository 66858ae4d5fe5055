"""service-reconciler and traffic-manager together, around one RayService with traffic that moves in steps.

Each is its own process: it has its own cache, receives changes, and remembers nothing after a restart. What users can see is
noted at every change, with the rules that must hold at every moment.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from common import errors, labels
from common.api.opaque import Body, Json
from common.feature_gates import BETA, Gates
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, RAY_SERVICE, SERVICE
from common.runtime.replica import ReconcilerParts
from common.upgrade.sources import KINDS
from scenario.service_reconciler.harness import TICK, Harness, Killed
from service_reconciler.settings import Config
from support import route_laws
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config, a_group, a_strategy
from support.fakes.gateway import FakeGatewayController
from support.fakes.kube import Request
from support.plans import checked
from traffic_manager import wiring as traffic

GATEWAY_API = frozenset({GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind})


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


class View(msgspec.Struct, frozen=True):
    """Capacities and weights, of the active and of the pending cluster, as the status shows them."""

    capacities: tuple[int | None, int | None]
    weights: tuple[int | None, int | None]

    def __str__(self) -> str:
        return f"TC {_pair(self.capacities)}  TR {_pair(self.weights)}"


class Pair(Harness):
    """Both services."""

    def __init__(self, *, gates: Gates = BETA) -> None:
        self.traffic: ReconcilerParts
        self._traffic_next: datetime | None = None
        self.is_traffic_down = False
        self.is_service_down = False
        self.is_bus_silent = False
        """With it no change reaches a cache, service-reconciler decides nothing, and traffic-manager guards alone."""
        self.trace: list[tuple[float, View]] = []
        self._seen_clusters: set[str] = set()
        """All clusters that there ever were."""
        self._gone: dict[tuple[str, str], float] = {}
        """Since when a route sends requests to a cluster that is gone, by their names."""
        self._noted = 0
        """The last change that was noted."""
        self.unknown_kinds: set[str] = set()
        """Kinds of the Gateway API that the API server does not know."""
        self.is_sharded = False
        """With it the bus delivers only what is labelled as part of the service."""
        super().__init__(config=Config(gates=gates))
        self.gateway = FakeGatewayController(self.kube, self.clock)
        self.kube.faults.append(self._refuse_gateways)

    # --- the processes -------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        self.restart_service()
        self.restart_traffic()

    def restart_service(self) -> None:
        """Begin a new service-reconciler."""
        super().restart()

    def restart_traffic(self) -> None:
        """Begin a new traffic-manager."""
        self.traffic = checked(
            traffic.assemble(
                self.kube, self.serve, clock=self.clock, instance="test", outbound=self.servers
            )
        )
        for (kind, _, _), body in self.kube.objects.items():
            self._give(kind, body)
        self._traffic_next = self.clock.now()

    async def reconcile(self) -> None:
        """Let both reconcile until nothing is due now."""
        for _ in range(80):
            if not self.is_service_down and not self.is_bus_silent:
                await super().reconcile()
            self._note()
            if (
                self.is_traffic_down
                or self._traffic_next is None
                or self._traffic_next > self.clock.now()
            ):
                return
            await self._reconcile_traffic()
            self._note()
        msg = f"the services do not come to rest: {self.kube.writes()[-8:]}"
        raise AssertionError(msg)

    async def _reconcile_traffic(self) -> None:
        self._traffic_next = None
        now = self.clock.now()
        self._is_reconciling = True
        try:
            reconcile = self.traffic.guard if self.is_bus_silent else self.traffic.reconciler
            assert reconcile is not None
            again = await reconcile(self.key, now)
        except Killed:
            self.restart()
            again = now
        except errors.NotFound as problem:
            self.failed.append(f"NotFound: {problem}")
            again = now + timedelta(seconds=1)
        except errors.Conflict:
            again = now
        except errors.RaybusError as problem:
            self.failed.append(f"{type(problem).__name__}: {problem}")
            again = now + timedelta(seconds=1)
        finally:
            self._is_reconciling = False
        if again is not None:
            self._traffic_next = (
                again if self._traffic_next is None else min(again, self._traffic_next)
            )

    async def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK)):
            self.gateway.move_on()
            await super().run(TICK)

    # --- what users see ------------------------------------------------------------------------------------------------

    def apply(self, **fields: Any) -> None:
        fields.setdefault("config", BLUE)
        fields.setdefault("upgradeStrategy", a_strategy())
        super().apply(**fields)

    @property
    def route(self) -> Body | None:
        return self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute"))

    @property
    def gateways(self) -> list[Body]:
        return self.kube.all(GATEWAY)

    @property
    def weights(self) -> dict[str, int]:
        """Return backend to weight, as the route has them."""
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
        """Return the configs that a cluster got."""
        return self.serve.head(f"{cluster}-head-svc").puts

    def capacities(self, cluster: str) -> list[int]:
        """Return the target capacities that a cluster got, in order."""
        return [each["target_capacity"] for each in self.puts(cluster)]

    def is_rolling_back(self) -> bool:
        return self.condition("RollbackInProgress")[0] == "True"

    def _note(self) -> None:
        if self._noted == self.kube.version and not self._gone:
            return
        self._noted = self.kube.version
        if (RAY_SERVICE.kind, NAMESPACE, NAME) not in self.kube.objects:
            return
        view = self.view
        if not self.trace or self.trace[-1][1] != view:
            self.trace.append((self.clock.monotonic(), view))
        self._check()

    def _check(self) -> None:
        """Hold what users see against the rules that hold at every moment."""
        weights = self.weights
        assert not weights or sum(weights.values()) == 100, weights
        now = self.clock.monotonic()
        self._seen_clusters.update(self.clusters)
        routes = [*self.kube.all(HTTP_ROUTE), *self.kube.all(GRPC_ROUTE)]
        deleted = self._seen_clusters.difference(self.clusters)
        dead = route_laws.dead_backends(routes, deleted)
        self._gone = {each: self._gone.get(each, now) for each in dead}
        for (route, cluster), since in self._gone.items():
            assert now - since <= 1, f"{cluster} is gone and {route} sends requests to it"

    def _refuse_gateways(self, request: Request) -> errors.RaybusError | None:
        return errors.NotFound("page not found") if request.kind in self.unknown_kinds else None

    # --- inside ----------------------------------------------------------------------------------------------------------

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        if self.is_bus_silent or self._is_withheld(kind, body):
            return
        if kind in KINDS:
            meta = body["metadata"]
            if is_gone:
                version = int(meta["resourceVersion"])
                self.traffic.cache.remove(
                    KINDS[kind], meta["namespace"], meta["name"], version=version
                )
            else:
                self._give(kind, body)
            self._traffic_next = self.clock.now()
        super()._changed(kind, body, is_gone)

    def _put(self, kind: str, body: Body) -> None:
        if not self._is_withheld(kind, body):
            super()._put(kind, body)

    def _is_withheld(self, kind: str, body: Body) -> bool:
        meta = body["metadata"]
        is_ours = not {labels.ORIGIN_NAME, labels.CLUSTER}.isdisjoint(meta.get("labels", {}))
        is_ours |= kind in GATEWAY_API and bool(meta.get("ownerReferences"))
        return self.is_sharded and kind in {*GATEWAY_API, SERVICE.kind} and not is_ours

    def _give(self, kind: str, body: Body) -> None:
        if kind in KINDS and not self._is_withheld(kind, body):
            self.traffic.cache.put(
                msgspec.json.decode(msgspec.json.encode(body), type=KINDS[kind]), partition=0
            )


def weights_of(route: Body, *, rule: int = 0) -> dict[str, int]:
    """Return backend to weight, as one rule has them."""
    refs: list[Json] = route["spec"]["rules"][rule].get("backendRefs", [])
    return {each["name"].removesuffix("-serve-svc"): each["weight"] for each in refs}


def _pair(numbers: tuple[int | None, int | None]) -> str:
    return "/".join("-" if each is None else str(each) for each in numbers)


async def a_running_pair(**fields: Any) -> Pair:
    """Return a service that serves through its route."""
    harness = Pair()
    harness.apply(**fields)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights))
    await harness.run(2)
    harness.trace.clear()
    return harness


def trace_of(harness: Pair, *, since: float) -> str:
    """Return what users saw and when."""
    return "".join(f"t+{at - since:6.2f}  {view}\n" for at, view in harness.trace)
