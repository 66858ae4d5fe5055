"""A simulated upgrade: both services, heads with replicas, a user, and everybody else who may
interfere.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from common import annotation_record, errors, labels
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.feature_gates import BETA, FeatureGate, Gates
from common.kube.resources import (
    GATEWAY,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.upgrade import traffic_record
from common.upgrade.traffic_record import Record
from scenario.simulation.boundaries import SkewedClock
from scenario.simulation.configs import config_of, image_of, read_config
from scenario.simulation.draws import Draw, World
from scenario.simulation.elastic import PORT, ElasticHead, ElasticServe, a_config
from scenario.simulation.gate_sources import FAILING, Count, Sources
from scenario.simulation.memo import of_objects
from scenario.simulation.ray import Slowness
from scenario.simulation.rule_judge import RuleJudge
from scenario.simulation.upgrade_trace import UpgradeTrace
from support.builders.ray_service import NAME, NAMESPACE, a_ray_service
from support.fakes.clock import FakeClock
from support.fakes.kube import Request
from support.simulator.observer import View
from support.simulator.simulator import READS, Driver, Simulator

AnyJudge = TypeVar("AnyJudge", bound=RuleJudge)
OWN_ROUTE: Final = "mine"
OTHER_NAME: Final = f"{NAME}-small"
"""Another RayService on the same route, which nobody reconciles."""
DRAINS: Final = 8.0
"""Seconds for which requests are in flight after the last one came."""
SERVE: Final = "-serve-svc"
GRPC_PORT: Final = 9100
TWINS: Final[tuple[Json, ...]] = (
    {"name": f"{NAME}{SERVE}", "namespace": "east", "port": 8000, "weight": 1},
    {
        "group": "multicluster.x-k8s.io",
        "kind": "ServiceImport",
        "name": f"{NAME}{SERVE}",
        "port": 8000,
        "weight": 1,
    },
)
"""Foreign backends with the name of our Service."""
WATCHED: Final = frozenset({HTTP_ROUTE.kind, RAY_SERVICE.kind, RAY_CLUSTER.kind, SERVICE.kind})
"""Kinds whose changes the judge checks at once."""


class UpgradeSimulator(Simulator, Generic[AnyJudge]):
    """The simulator of one drawn upgrade; `judge` checks every change, `driver` lets time pass."""

    def __init__(  # noqa: PLR0915  (a state, no logic)
        self,
        draw: Draw,
        *,
        judge: Callable[[Any], AnyJudge],
        driver: Callable[[Any], Driver],
        is_traced: bool = True,
    ) -> None:
        self.draw = draw
        self.setting = draw.setting
        self.read_at = -1
        """Version of the API server's objects at which `read_of` was filled."""
        self.read_of: dict[tuple[object, ...], Any] = {}
        """Results of reads of the objects, by method and arguments."""
        self.slowness = Slowness(draw.setting.seed, most=draw.setting.slow)
        self.refusal: Callable[[Request], errors.RaybusError | None] | None = None
        """A fault of the API server that affects only writes of the services."""
        self.refusal_of: Callable[[Request], errors.RaybusError | None] | None = None
        """Refuses writes of a single kind."""
        self.refused_kind = ""
        self.loses_answers = False
        """Whether writes are carried out but their answers are lost."""
        self.surge = draw.setting.surge
        self.may_hurry = not (draw.setting.surge and draw.setting.step)
        self.victims: dict[str, str] = {}
        """The cluster that a fault struck, by role."""
        self.first = ""
        """The cluster that served before the upgrade."""
        self.actor = ""
        """The service that acts now."""
        self.effective: dict[str, int] = {}
        """The weights by which the Gateway sends requests."""
        self.effective_of: dict[str, dict[str, int]] = {}
        """The weights by which the Gateway sends requests, by route."""
        self.unfollowed_at = -1e9
        """Time at which the Gateway last did not follow the routes."""
        self.wall_clocks: dict[str, SkewedClock] = {}
        self.gates_of: dict[str, Gates] = {}
        self.goals: list[tuple[str, str]] = []
        """Image and Serve config of every spec."""
        self.edits_made = 0
        """Number of edits of the policy by the user."""
        self.applications = draw.world.applications
        """Number of applications beside the first one."""
        self.starved = set[str]()
        """Services that get no answer of a dashboard in time."""
        self.wants_again = False
        """Whether the user creates the RayService again once it is gone."""
        self.is_blind = False
        """Whether traffic-manager started while the bus was silent, so that it knows of no
        upgrade."""
        self.approved: dict[str, set[str]] = {}
        """Configs that the pending cluster ran and was to run, by approval."""
        self._message = ""
        self._last_fields: Json = {}
        self._paused_at: float | None = None
        clock = FakeClock()
        self.sources = Sources(draw.sources)
        self.sources.clock = clock
        self.sources.deployed = self.deployed
        serve = ElasticServe(clock, self.slowness)
        serve.deployed = self.deployed
        self.trace = UpgradeTrace(self, is_traced=is_traced)
        self.judge = judge(self)
        super().__init__(clock=clock, serve=serve, has_traffic_manager=True, driver=driver)
        self.serve = serve
        self.serve.on_put.insert(0, self.judge.note_put)
        self.serve.on_put.append(self._put_happened)
        self.kube.faults.append(self._fail)
        self.gateway.others_in_status = draw.world.parents
        self.gateway.states_generations = draw.world.reports_generations
        if draw.world.has_sidecar:
            self.ray_clusters.sidecars = [{"name": "mesh-proxy", "image": "mesh"}]
        self.ray_clusters.on_create.append(self._count_at)
        if draw.has_own_route:
            self._bring_route()

    def _count_at(self, cluster: str) -> None:
        self.model(cluster).counts_at = self.draw.world.counts_at

    def _notice(self, kind: str, body: Body, *, is_gone: bool) -> None:
        if kind == RAY_CLUSTER.kind and is_gone:
            self.serve.forget(f"{body['metadata']['name']}-head-svc")
        if kind in WATCHED:
            self._judge_change()
        if self.is_reconciling and self.loses_answers and not is_gone:
            raise errors.Unavailable("the connection was lost")

    def _put_happened(self, what: str) -> None:
        if what.startswith("after"):
            self._judge_change()
            if self.loses_answers:
                raise errors.Unavailable("the connection was lost")

    def _judge_change(self) -> None:
        actor = self.actor if self.is_reconciling else "others"
        self.judge.check(actor, by_hand=not self.is_reconciling)

    def _fail(self, request: Request) -> errors.RaybusError | None:
        if not self.is_reconciling or request.verb in READS:
            return None
        self.judge.judge_request(request)
        error = None
        if self.refusal is not None and request.kind != "Event":
            error = self.refusal(request)
        if error is None and self.refusal_of is not None:
            error = self.refusal_of(request)
        return error

    # --- the state of the objects ----------------------------------------------------------------

    @property
    def is_promoted(self) -> bool:
        """Return whether another cluster is the active one than before the upgrade."""
        return self.active not in {"", self.first}

    def target_of(self, cluster: str) -> int:
        """Return the target capacity that a cluster got last."""
        puts = self.puts(cluster) if cluster else []
        return puts[-1].get("target_capacity", 100) if puts else 0

    def set_head(self, cluster: str, *, is_ready: bool) -> None:
        """Let a cluster's head be ready or not."""
        if is_ready:
            self.ray_clusters.make_ready(cluster)
            return
        lost = {
            "type": "HeadPodReady",
            "status": "False",
            "reason": "ContainersNotReady",
            "message": "",
        }
        when = {"lastTransitionTime": rfc3339(self.clock.now())}
        self.kube.set_status(
            RAY_CLUSTER, NAMESPACE, cluster, {"state": "", "conditions": [{**lost, **when}]}
        )

    def remove(self, resource: Resource, name: str) -> None:
        """Let a user delete an object, as `kubectl delete` does."""
        body = self.kube.objects.get((resource.kind, NAMESPACE, name))
        if body is not None and body["metadata"].get("finalizers"):
            stamp = rfc3339(self.clock.now())
            self.kube.put(
                resource, {**body, "metadata": {**body["metadata"], "deletionTimestamp": stamp}}
            )
        elif body is not None:
            self.kube.finish_deletion(resource, NAMESPACE, name)

    @property
    @of_objects
    def has_failed(self) -> bool:
        """Return whether the route has on record that a gate ended the upgrade that is on."""
        record = self.record()
        upgrade = (
            None if record is None else traffic_record.upgrade_of(record, self.active, self.pending)
        )
        return upgrade is not None and bool(upgrade.failed)

    def record(self) -> Record | None:
        annotations = (self.route or {}).get("metadata", {}).get("annotations", {})
        text = annotations.get(traffic_record.ANNOTATION)
        return annotation_record.decode(text, Record) if text else None

    def recorded_capacities(self) -> dict[str, int]:
        """Return the capacities in the traffic record."""
        record = self.record()
        shares = {} if record is None else record.clusters
        return {name: share.capacity for name, share in shares.items()}

    @property
    @of_objects
    def policy(self) -> str:
        """Return the record of the policy that the upgrade follows; empty without one."""
        body = self.kube.objects.get((RAY_CLUSTER.kind, NAMESPACE, self.pending), {})
        text: str = (
            body.get("metadata", {}).get("annotations", {}).get(labels.UPGRADE_POLICY_RECORD, "")
        )
        if text:
            self.judge.former.setdefault(self.pending, {})[self.steps] = None
        return text

    @property
    @of_objects
    def steps(self) -> tuple[int, ...]:
        """Return the weights of the policy that the upgrade follows; none where its user promotes
        it.
        """
        body = self.kube.objects.get((RAY_CLUSTER.kind, NAMESPACE, self.pending), {})
        record = body.get("metadata", {}).get("annotations", {}).get(labels.UPGRADE_POLICY_RECORD)
        if record is None or labels.PROMOTE in self.service["metadata"].get("annotations", {}):
            return ()
        return tuple(
            each["weight"] for each in msgspec.json.decode(record)["spec"].get("steps", [])
        )

    @of_objects
    def has_ready_head(self, name: str) -> bool:
        status = self.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, name)].get("status", {})
        return any(each["status"] == "True" for each in status.get("conditions", []))

    @property
    def gateway_is_well(self) -> bool:
        return (
            self.gateway.is_programmed
            and self.gateway.accepts_routes
            and not self.gateway.is_asleep
        )

    def silence_bus(self, *, is_silent: bool) -> None:
        """Let no change reach a process any more, or all that happened meanwhile."""
        self.bus.is_silent, self.is_blind = is_silent, False
        for process in self.services.values():
            process.due = self.clock.monotonic()

    def by_hand(self, do: Callable[["AnyUpgrade"], None]) -> None:
        """Let somebody else do something, which is not held against the services."""
        do(self)
        self.judge.check("others", by_hand=True)

    def set_gate(self, name: str, *, is_on: bool) -> None:
        """Restart one service with the gate of upgrades in steps on or off."""
        self.gates_of[name] = BETA if is_on else BETA - {FeatureGate.INCREMENTAL_UPGRADE}
        self.driver.begin(self.services[name])

    def make_again(self) -> None:
        """Let the user apply the RayService anew, as it was, once it is gone."""
        if self.wants_again and not self.has_service:
            self.trace.log("user: makes the RayService again")
            self.wants_again = False
            self.kube.put(RAY_SERVICE, a_ray_service(**self._last_fields))
            self.judge.check("others", by_hand=True)

    @property
    @of_objects
    def clusters(self) -> list[str]:
        return super().clusters

    @property
    @of_objects
    def view(self) -> View:
        return super().view

    @of_objects
    def condition(self, kind: str) -> tuple[str, str]:
        return super().condition(kind)

    def is_ready(self) -> bool:
        """Return whether Ready is True or, if Serve has no proxy, whether Ready names that cause."""
        if self.draw.world.proxy_location != "Disabled":
            return super().is_ready()
        conditions: list[Json] = self.status.get("conditions", [])
        texts = [each["message"] for each in conditions if each["type"] == "Ready"]
        return any("proxy_location: Disabled" in text for text in texts)

    @of_objects
    def selected(self, service: str = f"{NAME}{SERVE}") -> str:
        return super().selected(service)

    def model(self, cluster: str) -> ElasticHead:
        return self.serve.head(f"{cluster}-head-svc")

    def ask(self, config: Json, **fields: Any) -> None:
        """Apply a spec; the applications differ with the image of the clusters, and the rest stays
        as it is.
        """
        world, image = self.draw.world, image_of(config)
        message = self._message = fields.pop("message", image)
        serve = a_config(
            message,
            is_autoscaled=self.draw.is_autoscaled,
            applications=self.applications,
            world=world,
        )
        fields.setdefault("serve", serve)
        fields.setdefault("rayClusterDeletionDelaySeconds", world.deletion_delay)
        fields.setdefault("annotations", self.annotations)
        strategy = self.service.get("spec", {}).get("upgradeStrategy", self.setting.strategy)
        fields.setdefault("upgradeStrategy", strategy)
        self.goals.append((image, fields["serve"]))
        config = _with_ports(config, world)
        self._last_fields = {"config": config, **fields}
        self.apply(config=config, **fields)

    def ask_again(self, **fields: Any) -> None:
        """Apply the spec once more, with the applications that the user has now."""
        self.ask(self.service["spec"]["rayClusterConfig"], message=self._message, **fields)

    @property
    def service(self) -> Body:
        """Return the RayService, an empty one while there is none."""
        return self.kube.objects.get((RAY_SERVICE.kind, NAMESPACE, NAME), {})

    @property
    @of_objects
    def is_going(self) -> bool:
        """Return whether the RayService is deleted or suspended."""
        service = self.service
        if not service or "deletionTimestamp" in service["metadata"]:
            return True
        conditions = {
            each["type"] for each in self.status.get("conditions", []) if each["status"] == "True"
        }
        return bool(service["spec"].get("suspend") or conditions & {"Suspending", "Suspended"})

    def deployed(self, cluster: str) -> str:
        """Return the Serve config that a cluster runs, without its capacity."""
        puts = self.puts(cluster) if cluster in self.clusters else []
        return config_of(puts[-1]) if puts else ""

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations that the user wants now."""
        service = self.kube.objects.get((RAY_SERVICE.kind, NAMESPACE, NAME))
        return (
            dict(self.draw.annotations)
            if service is None
            else service["metadata"].get("annotations", {})
        )

    def annotate(self, **values: str | None) -> None:
        """Set or remove annotations of ours, as `kubectl annotate` does; underscores stand for
        hyphens.
        """
        service = self.service
        annotations = dict(service["metadata"].get("annotations", {}))
        for name, value in values.items():
            key = f"raybus.io/{name.replace('_', '-')}"
            annotations.pop(key, None)
            if value is not None:
                annotations[key] = value
        self.kube.put(
            RAY_SERVICE,
            {**service, "metadata": {**service["metadata"], "annotations": annotations}},
        )

    def set_pods(self, cluster: str, *, are_ready: bool) -> None:
        """Let a cluster's worker die with its replicas, or come back."""
        place = (POD.kind, NAMESPACE, f"{cluster}-worker")
        if place not in self.kube.objects or not self.has_ready_head(cluster):
            return
        for role in ("head", "worker"):
            body = self.kube.objects[(POD.kind, NAMESPACE, f"{cluster}-{role}")]
            status = {**body.get("status", {}), "phase": "Running" if are_ready else "Failed"}
            self.kube.set_status(POD, NAMESPACE, f"{cluster}-{role}", status)
        self.model(cluster).most_replicas = 20 if are_ready else 0

    @property
    def route(self) -> Body | None:
        if labels.HTTP_ROUTE in self.annotations_now:
            return self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, OWN_ROUTE))
        return self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute"))

    @property
    def annotations_now(self) -> dict[str, str]:
        """Return the annotations of the RayService, none without one."""
        service = self.kube.objects.get((RAY_SERVICE.kind, NAMESPACE, NAME))
        return {} if service is None else service["metadata"].get("annotations", {})

    @property
    @of_objects
    def weights(self) -> dict[str, int]:
        route = self.route
        return {} if route is None else own_weights(route)

    def _bring_route(self) -> None:
        self.kube.put(
            GATEWAY, {"metadata": {"name": "shared"}, "spec": {"gatewayClassName": "fast"}}
        )
        rule: Json = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}
        if self.draw.world.has_twins:
            rule["backendRefs"] = [dict(each) for each in TWINS]
        if self.draw.has_other_service:
            other = {"name": f"{OTHER_NAME}{SERVE}", "port": 8000, "weight": 1}
            rule["backendRefs"] = [*rule.get("backendRefs", []), other]
            self.kube.put(
                SERVICE,
                {
                    "metadata": {
                        "name": f"{OTHER_NAME}{SERVE}",
                        "labels": {labels.ORIGIN_NAME: OTHER_NAME},
                    },
                    "spec": {
                        "selector": {labels.CLUSTER: "other"},
                        "ports": [{"name": "serve", "port": 8000}],
                    },
                },
            )
        rules: list[Json] = [rule, {"matches": [{"path": {"type": "PathPrefix", "value": "/b"}}]}]
        if not self.draw.has_other_service:
            rules = rules[:1]
        spec = {"parentRefs": [{"name": "shared"}], "rules": rules}
        self.kube.put(
            HTTP_ROUTE,
            {
                "metadata": {"name": OWN_ROUTE, "annotations": {"raybus.io/rayservice": NAME}},
                "spec": spec,
            },
        )

    def gateway_moves(self) -> None:
        self.gateway.move_on()
        for name in (OWN_ROUTE, f"{NAME}-httproute"):
            route = self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, name))
            if route is None:
                self.effective_of.pop(name, None)
            elif self.gateway.is_programmed and self._is_routed(route):
                self.effective_of[name] = own_weights(route)
        route = OWN_ROUTE if labels.HTTP_ROUTE in self.annotations_now else f"{NAME}-httproute"
        self.effective = self.effective_of.get(route, {})
        if not self.gateway_is_well:
            self.unfollowed_at = self.clock.monotonic()

    def _is_routed(self, route: Body) -> bool:
        """Return whether the Gateway sends requests by a route as it is now."""
        meta = route["metadata"]
        return self.gateway.routed.get(meta["uid"]) == meta["generation"]

    def ray_moves(self) -> None:
        weights, selected, now = self.effective, self.selected(), self.clock.monotonic()
        pending = self.pending if self.has_service else ""
        for name in self.clusters:
            head = self.model(name)
            head.share = (
                weights.get(name, 0) if weights else (100 if name in {selected, self.active} else 0)
            )
            if head.share:
                head.ongoing_until = now + DRAINS
            self._answer(head, is_new=name == pending)
            head.ongoing = 5 if head.ongoing_until > now else 0
            if name == pending and self.sources.now("metrics") == "none":
                head.ongoing = None
            else:
                head.shown = Count(all=head.answered, well=head.answered_well)
            head.move_on()

    def _answer(self, head: ElasticHead, *, is_new: bool) -> None:
        """Let a cluster answer requests; those of a bad version fail in part. Users of a preview
        send some before all traffic moves at once.
        """
        count = head.share / 4
        count += 1 if is_new and self.view.capacities[1] is None else 0
        is_bad = is_new and self.sources.now("metrics") == "bad" and count > 0
        head.answered += count
        head.failed += count * FAILING if is_bad else 0.0
        head.answered_well += 0.0 if is_bad else count
        self.sources.proven_bad |= {self.pending} if is_bad else set()

    def resume(self, after: float | None) -> None:
        """Let the user end a pause of the policy that has lasted for some seconds."""
        now = self.clock.monotonic()
        if self.is_going or self.condition("UpgradePaused") != ("True", "PausedByPolicy"):
            self._paused_at = None
            return
        self._paused_at = now if self._paused_at is None else self._paused_at
        if after is not None and now - self._paused_at >= after:
            weight = self.view.weights[1]
            self.trace.log("user: ends the pause")
            text = f"{self.pending}/{100 if weight is None else weight}@{self.generation}"
            self.approved[text] = {self.deployed(self.pending), read_config(self.goals[-1][1])}
            self.annotate(approved_step=text)

    def overrule(self) -> None:
        """Let the user promote an upgrade that a gate ended."""
        if any(
            self.condition(each) == ("True", "GateFailed")
            for each in ("UpgradePaused", "UpgradeAborted")
        ):
            self.trace.log("user: promotes what failed")
            self.annotate(promote="true")

    @property
    def generation(self) -> int:
        """Return the generation of the spec."""
        return self.service.get("metadata", {}).get("generation", 0)

    def meta(self, cluster: str) -> Json:
        return self.kube.objects[RAY_CLUSTER.kind, NAMESPACE, cluster]["metadata"]


AnyUpgrade = UpgradeSimulator[Any]


def own_weights(route: Body) -> dict[str, int]:
    """Return the weights of our clusters, as the first rule has them that names one."""
    for rule in route["spec"]["rules"]:
        refs = [each for each in rule.get("backendRefs", []) if each not in TWINS]
        own = {each["name"].removesuffix(SERVE): each["weight"] for each in refs}
        own = {name: weight for name, weight in own.items() if not name.startswith(OTHER_NAME)}
        if own:
            return own
    return {}


def _with_ports(config: Json, world: World) -> Json:
    """Return a cluster of which the head declares the ports that differ from the usual ones."""
    ports = [{"name": "serve", "containerPort": world.port}]
    ports += [{"name": "serve-grpc", "containerPort": GRPC_PORT}] if world.has_grpc else []
    if not world.has_grpc and world.port == PORT:
        return config
    head = config["headGroupSpec"]
    container = {**head["template"]["spec"]["containers"][0], "ports": ports}
    return {**config, "headGroupSpec": {**head, "template": {"spec": {"containers": [container]}}}}
