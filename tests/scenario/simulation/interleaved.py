"""Both services taken apart: a pass stops between any two of its writes, and everybody else goes on meanwhile.

Each pass is a task. At a boundary (`boundaries`) it may be parked until a moment of the simulated clock; chance picks the one process that continues
next among all that are due. So another process, a user, a crash, a lost answer or an old cache comes between any two writes and
around each PUT. All chance comes from the seed; the same draw gives the same trace.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache, wraps
from types import SimpleNamespace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import msgspec
import structlog

from common import errors, labels
from common.api.opaque import Body, Json
from common.feature_gates import BETA, Gate, Gates
from common.kube.resources import (
    CONTROLLER_REVISION,
    ENDPOINT_SLICE,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
)
from common.ray import revision, serve_config
from common.ray.revision import Outcome, Revision
from scenario.service_reconciler.harness import TICK
from scenario.simulation import acts, laws, rules
from scenario.simulation.boundaries import (
    Boundaries,
    Caller,
    Fate,
    GatedKube,
    GatedServe,
    SkewedClock,
    Strike,
)
from scenario.simulation.draws import Draw, World
from scenario.simulation.elastic import PORT, ElasticHead, ElasticServe, a_config
from scenario.simulation.gate_sources import FAILING, MAX_PASS, Count, Sources
from scenario.simulation.laws import State
from scenario.simulation.rules import Moment
from scenario.simulation.sim import Process, Sim
from scenario.upgrade.harness import BLUE, View
from service_reconciler import observe
from service_reconciler import wiring as services
from service_reconciler.settings import Config
from service_reconciler.status.conditions import BOTH
from support.builders.ray_service import NAME, NAMESPACE, a_ray_service
from support.fakes.kube import Request
from support.plans import contradictions
from traffic_manager import wiring as traffic

OBSERVED: Final = 1.5
"""Seconds until what a dashboard reports is observed: clusters that share the traffic are asked each second."""
MAX_TURNS: Final = 150
"""Turns of all processes without the clock moving."""
IDLE: Final = 1.0
"""Seconds that the clock moves at once while nobody has anything to do."""
OWN_ROUTE: Final = "mine"
OTHER_NAME: Final = f"{NAME}-small"
"""Another RayService on the same route; nobody reconciles it."""
MAX_WAIT: Final = 5.0
DRAINS: Final = 8.0
"""Seconds for which requests are in flight after the last one came."""
SERVE: Final = "-serve-svc"
GRPC_PORT: Final = 9100
STANDS: Final = 60.0
"""Seconds until what holds an upgrade up is named, where no deadline runs; holds and bakes of policies take less."""
HARMED: Final = 30.0
"""Seconds for which a cluster that could not serve counts as harmed."""
REPEAT: Final = 10.0
"""Seconds until a Serve config that could not be sent or recorded is tried again."""
UNREADY: Final = 3.0
"""Seconds after which a worker that is not ready counts as a loss (ADR 41)."""
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
"""Backends of others, with the name of our Service."""


class _Still(msgspec.Struct):
    """An upgrade in which nothing moves."""

    shape: tuple[Any, ...] = ()
    """What would move."""
    number: int = 0
    """How many shapes there were before."""
    is_named: bool = False
    """Whether a Warning reported something since."""


class NeverRests(Exception):
    """The services go on for ever without the clock moving."""


class Parked(msgspec.Struct, eq=False):
    """A pass at a boundary."""

    caller: Caller
    until: float
    future: Any
    where: str


class Running(msgspec.Struct, eq=False):
    """A pass under way."""

    task: Any
    began: datetime
    caller: Caller


class Late(msgspec.Struct, eq=False):
    """What Ray applies although its caller timed out."""

    at: float
    carry_out: Callable[[], Awaitable[object]]


P = ParamSpec("P")
T = TypeVar("T")


def of_objects(
    read: Callable[Concatenate["Interleaved", P], T],
) -> Callable[Concatenate["Interleaved", P], T]:
    """Remember what a method reads from the objects of the API server until one of them changes."""

    @wraps(read)
    def remembered(sim: "Interleaved", *args: P.args, **kwargs: P.kwargs) -> T:
        if sim.read_at != sim.kube.version:
            sim.read_at = sim.kube.version
            sim.read_of.clear()
        place = (read, args)
        if place not in sim.read_of:
            sim.read_of[place] = read(sim, *args, **kwargs)
        return sim.read_of[place]

    return remembered


class Interleaved(Sim):
    """One RayService, both services, and everybody else; implements `boundaries.Schedule`."""

    def __init__(self, draw: Draw, *, is_traced: bool = False) -> None:  # noqa: PLR0915  (a state, no logic)
        self.draw = draw
        self.read_at = -1
        """The version of the API server at which `read_of` was read."""
        self.read_of: dict[tuple[object, ...], Any] = {}
        """By method and arguments: what was read from the objects."""
        self.is_traced = is_traced
        self.rng = random.Random(f"schedule {draw.seed}")
        self.found: dict[tuple[str, str], str] = {}
        """What was broken: by law and subject, when and how."""
        self.wall_clocks: dict[str, SkewedClock] = {}
        self.gates_of: dict[str, Gates] = {}
        self._running: dict[str, Running] = {}
        self._parked: list[Parked] = []
        self._late: list[Late] = []
        self._surprised_at: dict[str, float] = {}
        self._unready_since: dict[str, float] = {}
        self._struck_at = -REPEAT
        self._silent_at: dict[str, float] = {}
        self._active_seen = ""
        self._replaced = ""
        """The cluster that was active before the present one."""
        self._targets_before: dict[str, int] = {}
        """Target capacities before Ray applied a late PUT, until they are restored."""
        self._lives: dict[str, Caller] = {}
        self._failures: Counter[str] = Counter()
        self._returns: dict[str, float] = {}
        """When processes that died begin anew."""
        self.counts_from: int | None = None
        """The write after which strikes are counted; None before the upgrade."""
        self.write_count = 0
        self._strikes = {each.write: each for each in draw.strikes}
        self._stamp = State(at=0.0)
        self.timers = laws.Timers()
        self._effective_of: dict[str, dict[str, int]] = {}
        self.complete_configs: dict[str, frozenset[str]] = {}
        """What the active cluster may be given while another one is pending: what it runs, or what was wanted of it last."""
        self.goals: list[tuple[str, str]] = []
        """Image and Serve config of every spec."""
        self._pending_seen = ""
        self._goals_seen = 0
        """How many goals there were when the pending cluster was named."""
        self._puts_at: dict[str, list[float]] = {}
        self._writes_at: list[float] = []
        self.has_stalled = False
        self.edits_made = 0
        """How often the user edited the policy."""
        self._allowed_at: dict[int, float] = {}
        """When the user last allowed so much capacity to be missing."""
        self._unmet: tuple[str, ...] = ()
        """What the upgrade lacked at its weight, before the last write began."""
        self._policy_at = ("", -MAX_PASS)
        """The policy that the upgrade follows, and since when."""
        self._weighed: tuple[tuple[str, int, str], float, Count] = (("", 0, ""), 0.0, Count())
        """The pending cluster with its weight and its Serve config, since when, and what it had answered until then."""
        self._failed_at: dict[int, str] = {}
        """`onFailure` of the upgrades that a gate ended, by the generation of their spec."""
        self._failed_for: dict[str, int] = {}
        """The generation at which a gate ended the upgrade to a pending cluster."""
        self._paused_at: float | None = None
        self.applications = draw.world.applications
        """Declared beside the first one."""
        self.starved = set[str]()
        """Processes that get no answer of a dashboard in time, by a fault of their own."""
        self.wants_again = False
        """Whether the user makes the RayService anew once it is gone."""
        self._message = ""
        self._last_fields: Json = {}
        self._reconcile_of: dict[str, Any] = {}
        self._guard: Any = None
        self._is_blind = False
        """Whether traffic-manager began while the bus was silent, so that it knows of no upgrade."""
        self._still = _Still()
        self._step_at: dict[int, float] = {}
        """When the user last allowed steps of this size."""
        self._harmed_at: dict[str, float] = {}
        """When a cluster last could not serve what it was sent; a dashboard that hangs harms nobody."""
        self.approved: dict[str, set[str]] = {}
        """What the user approved, with the configs that the pending cluster ran and was to run."""
        self.refusal_of: Callable[[Request], errors.RaybusError | None] | None = None
        """Writes of a single kind that are refused."""
        self.refused_kind = ""
        self.sources = Sources(draw.sources)
        super().__init__(draw.setting)
        self.sources.clock = self.clock
        self.sources.deployed = self.deployed
        self._build_world()
        self.serve = ElasticServe(self.clock, self.slowness)
        self.serve.deployed = self.deployed
        waits = max(
            (each.seconds for each in draw.strikes if "STOP" in each.fate.name), default=0.0
        )
        self.serve.lookback = 0.75 + 3 * draw.longest_stop + waits
        self.serve.on_put.append(self._count_put)
        if draw.has_own_route:
            self._bring_route()
        self.restart()

    def _build_world(self) -> None:
        world = self.draw.world
        self.gateway.others_in_status = world.parents
        self.gateway.states_generations = world.reports_generations
        self.sidecars = [{"name": "mesh-proxy", "image": "mesh"}] if world.has_sidecar else []

    # --- processes -----------------------------------------------------------------------------------------------------

    def begin(self, process: Process) -> None:
        """Begin a new process: it knows what the watcher has published, and remembers nothing."""
        name = process.name
        old = self._running.pop(name, None)
        if name in self._lives:
            self._lives[name].is_dead = True
        if old is not None:
            self._forsake(old)
        caller = self._lives[name] = Caller(name=name)
        at = Boundaries(self, caller)
        kube, serve = GatedKube(self.kube, at), GatedServe(self.serve, at)
        clock = self.wall_clocks.setdefault(name, SkewedClock(self.clock))
        gates = self.gates_of.get(name, BETA)
        if name == "service":
            self.app = services.assemble(
                kube,
                serve,
                Config(gates=gates),
                clock=clock,
                instance="test",
                bus=self.events,
                outbound=self.sources,
            )
        else:
            self.traffic = traffic.assemble(
                kube, serve, clock=clock, instance="test", outbound=self.sources
            )
            self._guard = self._held_to_laws(self.traffic.guard)
            self._is_blind = self.is_bus_silent
        app = self.app if name == "service" else self.traffic
        self._reconcile_of[name] = self._held_to_laws(app.reconciler)
        self._failures[name] = 0
        process.received = 0
        process.due = self.clock.monotonic()
        self._receive(process)

    def _held_to_laws(self, reconciler: Any) -> Any:
        """Return a reconciler with plans that are held to the laws of plans."""
        honest = reconciler.make_plan

        def make_plan(observed: Any, now: datetime) -> Any:
            plan = honest(observed, now)
            for text in contradictions(plan, observed.service):
                self.break_law("plan", text.partition(":")[0], text)
            return plan

        return msgspec.structs.replace(reconciler, make_plan=make_plan)

    def silence_bus(self, *, is_silent: bool) -> None:
        """Let no change reach a process any more, or all that happened meanwhile."""
        self.is_bus_silent, self._is_blind = is_silent, False
        for process in self.processes.values():
            process.due = self.clock.monotonic()

    def is_starved(self, caller: Caller) -> bool:
        return caller.name in self.starved

    def _receive(self, process: Process) -> None:
        if not self.is_bus_silent:
            super()._receive(process)

    def _forsake(self, old: Running) -> None:
        old.caller.is_dead = True
        old.task.cancel()
        self._parked = [each for each in self._parked if each.caller is not old.caller]

    def by_hand(self, do: Callable[["Sim"], None]) -> None:
        """Let somebody else do something, which is not held against the services."""
        do(self)
        self.check("others", by_hand=True)

    def set_gate(self, name: str, *, is_on: bool) -> None:
        """Restart one service with the gate of upgrades in steps on or off."""
        self.gates_of[name] = BETA if is_on else BETA - {Gate.INCREMENTAL_UPGRADE}
        self.begin(self.processes[name])

    def _start_pass(self, process: Process) -> None:
        process.due = None
        now = self.wall_clocks[process.name].now()
        reconcile = self._guard if self.is_bus_silent else self._reconcile_of[process.name]
        task = asyncio.get_running_loop().create_task(reconcile(self.key, now))
        self._running[process.name] = Running(
            task=task, began=now, caller=self._lives[process.name]
        )

    def _reap(self) -> None:
        """Take the results of passes that have ended."""
        for name, each in list(self._running.items()):
            if each.task.done():
                del self._running[name]
                self._ended(self.processes[name], each)

    def _ended(self, process: Process, each: Running) -> None:
        if each.task.cancelled():
            return
        problem, at = each.task.exception(), self.clock.monotonic()
        if problem is None:
            self._failures[process.name] = 0
            again = each.task.result()
            if again is None:
                return
            wait = max(0.0, (again - self.wall_clocks[process.name].now()).total_seconds())
        elif isinstance(problem, errors.RaybusError):
            self._failures[process.name] += 1
            wait = min(MAX_WAIT, TICK * 2 ** min(self._failures[process.name] - 1, 6))
        else:
            raise problem
        process.due = at + wait if process.due is None else min(at + wait, process.due)

    # --- boundaries: `boundaries.Schedule` -----------------------------------------------------------------------------

    def fate(self, caller: Caller, what: str) -> Strike | None:
        self._check_alive(caller)
        if "Event" in what or self.counts_from is None:
            return None
        self.write_count += 1
        strike = self._strikes.get(self.write_count)
        if strike is not None:
            self.log(f"strike: {caller.name}: {what}: {strike}")
            self._struck_at = self.clock.monotonic()
        return strike

    async def stop(self, caller: Caller, seconds: float, where: str) -> None:
        self._check_alive(caller)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(
            Parked(
                caller=caller, until=self.clock.monotonic() + seconds, future=future, where=where
            )
        )
        await future
        self._check_alive(caller)

    async def pause(self, caller: Caller, where: str) -> None:
        if self.counts_from is None or "Event" in where or self.rng.random() >= self.draw.stops:
            return
        seconds = self.rng.choice((0.0, 0.0, self.rng.uniform(0.0, self.draw.longest_stop)))
        await self.stop(caller, seconds, where)

    async def die(self, caller: Caller, seconds: float) -> None:
        self.log(f"{caller.name} dies")
        process = self.processes[caller.name]
        self.begin(process)
        process.is_down = seconds > 0
        self._returns[caller.name] = self.clock.monotonic() + seconds
        await asyncio.get_running_loop().create_future()

    def later(self, seconds: float, carry_out: Callable[[], Awaitable[object]]) -> None:
        self._late.append(Late(at=self.clock.monotonic() + seconds, carry_out=carry_out))

    def acts(self, caller: Caller) -> None:
        self._check_alive(caller)
        self._is_reconciling, self._actor = True, caller.name
        self._writes_at.append(self.clock.monotonic())
        self._unmet = tuple(self._lacking())

    def has_acted(self) -> None:
        self._is_reconciling = False

    def _check_alive(self, caller: Caller) -> None:
        if caller.is_dead:
            raise errors.OwnershipLost("this process is gone")

    # --- time ----------------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        level = logging.DEBUG if self.is_traced else logging.CRITICAL
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
        ends = self.clock.monotonic() + seconds
        with structlog.testing.capture_logs() as self.notes, _named_by(self.rng):
            while self.clock.monotonic() < ends - 1e-9:
                await self._step(ends)
                self.notes.clear()

    async def _step(self, ends: float) -> None:
        others = [
            self._gateway_moves,
            self.clusters_move_on,
            self.endpoints_follow,
            self._ray_moves,
        ]
        self.gateway.seconds = self.slowness.draw()
        self.rng.shuffle(others)
        for each in others:
            each()
        self.kube.collect_garbage()
        self._note_active()
        self._note_sickness()
        self._return()
        self._make_again()
        await self._carry_out_late()
        await self._interleave()
        by = min(self._idle(), ends - self.clock.monotonic())
        self.clock.advance(by)
        self._passed(by)

    def _idle(self) -> float:
        """Return how far the clock may move: nobody is due before."""
        now = self.clock.monotonic()
        moments = [
            each.due
            for each in self.processes.values()
            if each.due is not None and not each.is_down
        ]
        moments += [each.until for each in self._parked]
        moments += [each.at for each in self._late]
        is_busy = (
            any(each.lag for each in self.processes.values())
            or self.pending
            or len(self.clusters) != 1
        )
        nearest = min(moments, default=now + IDLE) - now
        return min(IDLE if not is_busy else 2 * TICK, max(TICK, nearest))

    def _return(self) -> None:
        now = self.clock.monotonic()
        for name in [name for name, at in self._returns.items() if at <= now]:
            del self._returns[name]
            self.processes[name].is_down = False
            self.processes[name].due = now

    async def _interleave(self) -> None:
        for _ in range(MAX_TURNS):
            for each in self.processes.values():
                self._receive(each)
            now = self.clock.monotonic()
            due: list[Any] = [each for each in self._parked if each.until <= now]
            due += [each for each in self.processes.values() if self._is_due(each, now)]
            if not due:
                return
            chosen = due[0] if len(due) == 1 else self.rng.choice(due)
            if isinstance(chosen, Parked):
                self._parked.remove(chosen)
                chosen.future.set_result(None)
            else:
                self._start_pass(chosen)
            await self._quiesce()
            self._reap()
        self.counts_from = self.counts_from or 0
        self.break_law("hot", "both", f"more than {MAX_TURNS} turns without the clock moving")
        raise NeverRests

    def _is_due(self, process: Process, now: float) -> bool:
        is_idle = not process.is_down and process.name not in self._running
        is_idle &= not self.is_bus_silent or process.name == "traffic"
        return is_idle and process.due is not None and process.due <= now

    async def _quiesce(self) -> None:
        """Let every task run until it is parked or has ended."""
        ready = cast("Any", asyncio.get_running_loop())._ready
        await asyncio.sleep(0)
        while ready:  # noqa: ASYNC110  (no event is set when all tasks wait)
            await asyncio.sleep(0)

    async def _carry_out_late(self) -> None:
        now = self.clock.monotonic()
        due = [each for each in self._late if each.at <= now]
        self._late = [each for each in self._late if each.at > now]
        for each in due:
            self.log("Ray applies what its caller timed out on")
            was = {name: self.model(name).target for name in self.clusters}
            try:
                await each.carry_out()
            except errors.RaybusError:
                continue
            changed = {
                name: target for name, target in was.items() if self.model(name).target != target
            }
            self._surprised_at |= dict.fromkeys(changed, now)
            self._targets_before = changed | self._targets_before

    def _make_again(self) -> None:
        """Let the user apply the RayService anew, as it was, once it is gone."""
        if self.wants_again and not self.has_service:
            self.log("user: makes the RayService again")
            self.wants_again = False
            self.kube.put(RAY_SERVICE, a_ray_service(**self._last_fields))
            self.check("others", by_hand=True)

    # --- the state of the objects ---------------------------------------------------------------

    @property
    @of_objects
    def clusters(self) -> list[str]:
        return super().clusters

    @property
    @of_objects
    def view(self) -> View:
        return super().view

    @property
    @of_objects
    def has_failed(self) -> bool:
        return super().has_failed

    @property
    @of_objects
    def policy(self) -> str:
        return super().policy

    @property
    @of_objects
    def steps(self) -> tuple[int, ...]:
        return super().steps

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

    @of_objects
    def _has_ready_head(self, name: str) -> bool:
        return super()._has_ready_head(name)

    # --- everybody else ------------------------------------------------------------------------------------------------

    def model(self, cluster: str) -> ElasticHead:
        return self.serve.head(f"{cluster}-head-svc")

    def ask(self, config: Json, **fields: Any) -> None:
        world, image = self.draw.world, _image(config)
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
        service = self.kube.objects.get((RAY_SERVICE.kind, NAMESPACE, NAME))
        if service is not None:
            fields.setdefault("upgradeStrategy", service["spec"]["upgradeStrategy"])
        self.goals.append((image, fields["serve"]))
        config = _with_ports(config, world)
        self._last_fields = {"config": config, **fields}
        super().ask(config, **fields)

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
        held = {
            each["type"] for each in self.status.get("conditions", []) if each["status"] == "True"
        }
        return bool(service["spec"].get("suspend") or held & {"Suspending", "Suspended"})

    @is_going.setter
    def is_going(self, value: bool) -> None:
        """What faults note of themselves is known from the objects here."""

    def deployed(self, cluster: str) -> str:
        """Return the Serve config that a cluster runs, without its capacity."""
        puts = self.puts(cluster) if cluster in self.clusters else []
        return _config(puts[-1]) if puts else ""

    def _create_parts(self, cluster: Body) -> None:
        super()._create_parts(cluster)
        self.model(cluster["metadata"]["name"]).counts_at = self.draw.world.counts_at

    @property
    def annotations(self) -> dict[str, str]:
        """Return what the user wants now."""
        service = self.kube.objects.get((RAY_SERVICE.kind, NAMESPACE, NAME))
        return (
            dict(self.draw.annotations)
            if service is None
            else service["metadata"].get("annotations", {})
        )

    def annotate(self, **values: str | None) -> None:
        """Set or remove annotations of ours, as `kubectl annotate` does; underscores stand for hyphens."""
        service = self.service
        held = dict(service["metadata"].get("annotations", {}))
        for name, value in values.items():
            key = f"raybus.io/{name.replace('_', '-')}"
            held.pop(key, None)
            if value is not None:
                held[key] = value
        self.kube.put(
            RAY_SERVICE, {**service, "metadata": {**service["metadata"], "annotations": held}}
        )

    def set_pods(self, cluster: str, *, are_ready: bool) -> None:
        """Let a cluster's worker die with its replicas, or come back."""
        place = (POD.kind, NAMESPACE, f"{cluster}-worker")
        if place not in self.kube.objects or not self._has_ready_head(cluster):
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
        return {} if route is None else _own(route)

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

    def _gateway_moves(self) -> None:
        self.gateway.move_on()
        for name in (OWN_ROUTE, f"{NAME}-httproute"):
            route = self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, name))
            if route is None:
                self._effective_of.pop(name, None)
            elif self.gateway.is_programmed and self._is_routed(route):
                self._effective_of[name] = _own(route)
        route = OWN_ROUTE if labels.HTTP_ROUTE in self.annotations_now else f"{NAME}-httproute"
        self._effective = self._effective_of.get(route, {})
        if not self._gateway_is_well:
            self._unfollowed_at = self.clock.monotonic()

    def _is_routed(self, route: Body) -> bool:
        """Return whether the Gateway sends requests by a route as it is now."""
        meta = route["metadata"]
        return self.gateway.routed.get(meta["uid"]) == meta["generation"]

    def _ray_moves(self) -> None:
        weights, selected, now = self._effective, self.selected(), self.clock.monotonic()
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
        """Let a cluster answer requests; those of a bad version fail in part. Users of a preview send some before all traffic moves at once."""
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
            self.log("user: ends the pause")
            text = f"{self.pending}/{100 if weight is None else weight}@{self.generation}"
            self.approved[text] = {self.deployed(self.pending), _read(self.goals[-1][1])}
            self.annotate(approved_step=text)

    def overrule(self) -> None:
        """Let the user promote an upgrade that a gate ended."""
        if any(
            self.condition(each) == ("True", "GateFailed")
            for each in ("UpgradePaused", "UpgradeAborted")
        ):
            self.log("user: promotes what failed")
            self.annotate(promote="true")

    # --- the gates of the upgrade --------------------------------------------------------------------------------------

    @property
    def has_service(self) -> bool:
        """Return whether the RayService exists."""
        return (RAY_SERVICE.kind, NAMESPACE, NAME) in self.kube.objects

    @property
    def generation(self) -> int:
        """Return the generation of the spec."""
        return self.service.get("metadata", {}).get("generation", 0)

    def _lacking(self) -> Iterator[str]:
        """Yield what the upgrade lacks at its weight to move on.

        By its policy nothing right after an edit of that, or where the user promotes.
        """
        (cluster, weight, config), since, before = self._weighed
        if cluster in self.clusters and weight < rules.WHOLE:
            yield from (f"its application {each}" for each in self.model(cluster).lacking)
        text, policy_at = self._policy_at
        is_known = (
            self.has_service and bool(text) and self.clock.monotonic() - policy_at >= MAX_PASS
        )
        if not is_known or labels.PROMOTE in self.annotations_now:
            return
        spec, in_steps = msgspec.json.decode(text)["spec"], self.view.capacities[1] is not None
        steps = {each["weight"]: each for each in spec.get("steps", [])}
        if in_steps and weight and steps and weight not in steps:  # capacity allowed no more
            return
        head = self.model(cluster)
        is_silent = self.sources.now("metrics") == "none"
        read = head.shown if is_silent else Count(all=head.answered, well=head.answered_well)
        answered = Count(all=read.all - before.all, well=read.well - before.well)
        is_used = in_steps or "warmUp" in spec or spec.get("preview", {}).get("service", False)
        for gate in spec.get("gates", []):
            if "metric" in gate and not is_used:
                continue
            if self.sources.unmet(gate, cluster, weight, since, answered, in_steps=in_steps):
                yield f"{gate} at {weight} percent"
        if "warmUp" in spec and (weight == 0 or not in_steps):
            warmed = self.serve.warmed.get((cluster, config), 0)
            if warmed < spec["warmUp"]["requests"]:
                yield f"{warmed} of the requests of its warm-up"
        is_last = not in_steps or weight == rules.WHOLE
        pauses = (
            "pause" in steps.get(weight, {}) if in_steps else "pause" in steps.get(rules.WHOLE, {})
        )
        if pauses or (is_last and not spec.get("autoPromote", True)):
            yield from self._unapproved(cluster, weight if in_steps else rules.WHOLE, config)

    def _unapproved(self, cluster: str, weight: int, config: str) -> Iterator[str]:
        """Yield an approval that is missing, or was given to another Serve config."""
        text = self.annotations_now.get(labels.APPROVED_STEP, "")
        approved, _, percent = text.partition("@")[0].rpartition("/")
        is_of_another = config not in self.approved.get(text, {config})
        if approved != cluster or int(percent) < weight or is_of_another:
            yield f"an approval at {weight} percent"

    def _note_upgrade(self) -> None:
        """Note since when the upgrade has its policy and its weight, and whether a gate ended it."""
        now, pending = self.clock.monotonic(), self.pending if self.has_service else ""
        policy = self.policy if pending else ""
        if policy != self._policy_at[0]:
            self._policy_at = policy, now if self._policy_at[0] else -MAX_PASS
        at = pending, self.weights.get(pending, 0), self.deployed(pending)
        in_steps = self.has_service and self.view.capacities[1] is not None
        if at != self._weighed[0] and (
            self.weights or not in_steps
        ):  # without its route for a while it keeps its step
            head = self.model(pending) if pending in self.clusters else None
            # in steps those that Ray has exported by then; all of a cluster that has no traffic yet count before it gets all at once
            counted = (
                Count()
                if head is None or not in_steps
                else Count(all=head.shown.all, well=head.shown.well)
            )
            self._weighed = at, now, counted
        if (
            self.has_service
            and self._is_failed()
            and self.status.get("observedGeneration") == self.generation
        ):
            spec: Json = msgspec.json.decode(policy)["spec"] if policy else {}
            first = (
                self._failed_for.setdefault(pending, self.generation)
                if pending
                else self.generation
            )
            if first == self.generation:  # a later spec has an upgrade of its own
                self._failed_at.setdefault(self.generation, spec.get("onFailure", "Rollback"))

    @of_objects
    def _is_failed(self) -> bool:
        """Return whether it is on record that a gate ended the upgrade."""
        kinds = ("UpgradeAborted", "UpgradePaused")
        return self.has_failed or ("True", "GateFailed") in map(self.condition, kinds)

    # --- laws ----------------------------------------------------------------------------------------------------------

    def moment(self) -> Moment:
        return msgspec.structs.replace(
            super().moment(), carries={name: self._carries(name) for name in self.clusters}
        )

    def check(self, actor: str, *, by_hand: bool = False) -> None:
        after = self.moment()
        stamp = self.state(actor)
        restored = {
            name
            for name, target in self._targets_before.items()
            if self.model(name).target <= target
        }
        self._targets_before = {
            name: at for name, at in self._targets_before.items() if name not in restored
        }
        if not by_hand and self.counts_from is not None:
            for law, text in laws.of_a_change(self._moment, after, self._stamp, stamp):
                self.break_law(law, text.split()[0], text)
        self._moment, self._stamp = after, stamp
        self._note_names()
        self._note_upgrade()
        self._log_state(after, actor) if self.is_traced else None

    def state(self, actor: str) -> State:
        """Return what the laws ask for, as it truly is."""
        now = self.clock.monotonic()
        clusters = set(self.clusters)
        has_service = (RAY_SERVICE.kind, NAMESPACE, NAME) in self.kube.objects
        names = sorted(clusters | set(self.weights))
        pods = {
            name: self.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
            .get("status", {})
            .get("phase")
            for name in names
        }
        return State(
            at=now,
            actor=actor,
            route=self.weights if self.route is not None else None,
            effective=[dict(each) for each in self._effective_of.values()],
            carries={name: self._carries(name) for name in names},
            targets={
                name: self.model(name).target
                for name in names
                if name in clusters and self.model(name).puts
            },
            targets_before=dict(self._targets_before),
            surprised=frozenset(
                name for name, at in self._surprised_at.items() if now - at <= OBSERVED
            ),
            missing=frozenset(
                name for name in names if name not in clusters or pods[name] == "Failed"
            ),
            silent=frozenset(name for name in clusters if self.model(name).behaviour != "ok"),
            unheard=self._unheard(now),
            autoscaled=frozenset(name for name in clusters if self.model(name).is_autoscaled),
            follows={
                name: self.model(name).follows
                for name in clusters
                if self.model(name).is_autoscaled
            },
            in_steps=has_service and self.view.capacities[1] is not None,
            active=self.active if has_service else "",
            is_alone=has_service and self.is_complete() and len(clusters) == 1,
            unserved=frozenset(name for name in clusters if self._is_unserved(name)),
            plain=self._plain(),
            deadline=self._deadline(),
            has_stalled=self.has_stalled,
            is_awaited=(f"{OTHER_NAME}{SERVE}", 1) if self.draw.has_other_service else None,
            in_flight=frozenset(
                name
                for name in clusters
                if self.model(name).ongoing and labels.DRAIN_TIMEOUT not in self.annotations_now
            ),
            allowance=self._allowance(now),
            foreign=self._foreign(),
            unmet=self._unmet,
            is_failed=has_service and self._is_failed(),
            ended_by=self._ended_by() if has_service else "",
            proven_bad=frozenset(self.sources.proven_bad),
            is_going=self.is_going or not has_service,
            unharmed=frozenset(self._unharmed(now)),
            step=self._largest_step(now),
            promotes=labels.PROMOTE in self.annotations_now,
            beside=self._beside(),
            twins_left=self._twins_left() if self.draw.world.has_twins else None,
        )

    def _unharmed(self, now: float) -> Iterator[str]:
        """Yield the clusters that serve all that they are sent, and did so lately."""
        for name in self.clusters:
            is_whole = self._carries(name) >= max(1, self.weights.get(name, 0))
            is_there = "deletionTimestamp" not in self._meta(name) and self._has_ready_head(name)
            if is_whole and is_there and now - self._harmed_at.get(name, -HARMED) >= HARMED:
                yield name

    def _meta(self, cluster: str) -> Json:
        return self.kube.objects[RAY_CLUSTER.kind, NAMESPACE, cluster]["metadata"]

    def _largest_step(self, now: float) -> int:
        """Return the largest step that the user allowed lately; all at once without steps."""
        options = self.service.get("spec", {}).get("upgradeStrategy", {})
        options = options.get("clusterUpgradeOptions", {})
        size = options.get("stepSizePercent", rules.WHOLE)
        if size == options.get("maxSurgePercent") == 0:  # the steps are what may be missing
            missing = int(self.annotations_now.get(labels.MAX_UNAVAILABLE, 0))
            size = min(rules.WHOLE, rules.WHOLE * missing // (rules.WHOLE - missing))
        self._step_at[size] = now
        return max(each for each, at in self._step_at.items() if now - at <= laws.WINDOW)

    @of_objects
    def _beside(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of backend and route for users' requests beside the weighted route."""
        return tuple(self._refs_beside())

    def _refs_beside(self) -> Iterator[tuple[str, str]]:
        for (kind, _, name), body in self.kube.objects.items():
            if kind not in {HTTP_ROUTE.kind, GRPC_ROUTE.kind} or not self._is_own(body):
                continue
            if kind == HTTP_ROUTE.kind and name in {OWN_ROUTE, f"{NAME}-httproute"}:
                continue
            for ref in (ref for rule in body["spec"]["rules"] for ref in rule["backendRefs"]):
                if ref.get("weight", 1):
                    yield name, ref["name"].removesuffix(SERVE)

    def _is_own(self, body: Body) -> bool:
        uid = self.service["metadata"]["uid"] if self.has_service else ""
        return any(each["uid"] == uid for each in body["metadata"].get("ownerReferences", []))

    def _twins_left(self) -> int:
        """Return how many backends of others with the name of ours the user's route has."""
        route = self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, OWN_ROUTE))
        rules_of: list[Json] = [] if route is None else route["spec"]["rules"]
        return sum(ref in TWINS for rule in rules_of for ref in rule.get("backendRefs", []))

    def _ended_by(self) -> str:
        """Return `onFailure` where a gate ended the upgrade to the spec as it is, and the user does not promote it nevertheless."""
        is_overruled = labels.PROMOTE in self.annotations_now
        return "" if is_overruled else self._failed_at.get(self.generation, "")

    def _is_unserved(self, name: str) -> bool:
        """Return whether a cluster with a head has no Serve config; a pending one gets none from a spec that is invalid (ADR 41)."""
        head = self.model(name)
        has_config = bool(head.puts) or not self.pending  # no config fits a version never served
        is_needed = (name == self.active and has_config) or (
            name == self.pending and self._is_valid()
        )
        return (
            is_needed
            and head.behaviour == "ok"
            and self._has_ready_head(name)
            and (head.has_forgotten or not head.puts)
        )

    @of_objects
    def _is_valid(self) -> bool:
        """Return whether the status calls the spec valid."""
        return "spec is invalid" not in str(self.status.get("conditions"))

    @of_objects
    def _plain(self) -> frozenset[str] | None:
        """Return the clusters that clients of the plain Service reach; None without such a Service."""
        name = f"{NAME}{SERVE}"
        slices = self.kube.objects.get((ENDPOINT_SLICE.kind, NAMESPACE, f"{name}-1"))
        if slices is None or (SERVICE.kind, NAMESPACE, name) not in self.kube.objects:
            return None
        ready = [each for each in slices["endpoints"] if each["conditions"]["ready"]]
        uids = {each["targetRef"]["uid"] for each in ready}
        pods = self.kube.all(POD)
        return frozenset(
            each["metadata"]["labels"][labels.CLUSTER]
            for each in pods
            if each["metadata"]["uid"] in uids
        )

    def _deadline(self) -> float:
        text = self.annotations_now.get(labels.PROGRESS_DEADLINE, "600")
        return float(text) if text.isdigit() else 600.0

    def _carries(self, name: str) -> int:
        if (RAY_CLUSTER.kind, NAMESPACE, name) not in self.kube.objects:
            return 0
        phase = (
            self.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
            .get("status", {})
            .get("phase")
        )
        is_lost = self._unready_for(name, self.clock.monotonic()) >= UNREADY
        return self.model(name).carries if phase == "Running" and not is_lost else 0

    def _allowance(self, now: float) -> int:
        text = self.annotations_now.get(labels.MAX_UNAVAILABLE, "0")
        allowed = int(text) if text.isdigit() else 0
        self._allowed_at[allowed] = now
        return max(each for each, at in self._allowed_at.items() if now - at <= laws.MEMORY)

    @of_objects
    def _foreign(self) -> tuple[tuple[str, int], ...]:
        route = self.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, OWN_ROUTE))
        if route is None:
            return ()
        refs = [ref for rule in route["spec"]["rules"] for ref in rule.get("backendRefs", [])]
        return tuple(
            (ref["name"], ref["weight"]) for ref in refs if ref["name"].startswith(OTHER_NAME)
        )

    def _passed(self, seconds: float) -> None:
        """Let laws count what lasts."""
        if self.counts_from is None:
            return
        now = self.clock.monotonic()
        stamp = self._stamp = self.state("time")
        if self.condition("UpgradeStalled")[0] == "True" if not stamp.is_going else False:
            self.has_stalled = True
        are_well = self._are_well()
        for law, subject, text in laws.of_time(
            self.timers, stamp, seconds, is_excused=not are_well
        ):
            self.break_law(law, subject, text)
        for law, subject, text in laws.of_side_routes(
            self.timers, stamp, seconds, is_excused=not (are_well or self._guards())
        ):
            self.break_law(law, subject, text)
        for law, subject, text in laws.of_serving(
            self.timers, stamp, seconds, is_excused=not self._may_serve()
        ):
            self.break_law(law, subject, text)
        for law, subject, text in (
            *self._ending(seconds, are_well),
            *self._standing(seconds, are_well),
        ):
            self.break_law(law, subject, text)
        others = dict(self._versions()) if not stamp.is_going else {}
        for name, text in others.items():
            if (
                self.timers.lasts(("version", name), seconds, holds=True, is_excused=not are_well)
                > laws.STABLE_AFTER
            ):
                self.break_law("version", name, text)
        self.timers.keep("version", set(others))
        self._count_hot(now)

    def _ending(self, seconds: float, are_well: bool) -> Iterator[tuple[str, str, str]]:
        """Yield a deletion, or a suspension, that does not end."""
        service, held = self.service, ""
        if service and "deletionTimestamp" in service["metadata"]:
            held = "deletion"
        elif service.get("spec", {}).get("suspend") and self.condition("Suspended")[0] != "True":
            held = "suspension"
        for what in ("deletion", "suspension"):
            lasts = self.timers.lasts(
                ("ends", what), seconds, holds=what == held, is_excused=not are_well
            )
            if lasts > laws.GOES:
                left = [
                    *self.clusters,
                    *(each["metadata"]["name"] for each in self.kube.all(SERVICE)),
                ]
                yield "ends", what, f"its {what} does not end; there are {left}: {self.status}"

    def _standing(self, seconds: float, are_well: bool) -> Iterator[tuple[str, str, str]]:
        """Yield an upgrade in which nothing moves although its user asks for it, and nothing says why."""
        still, pending = self._still, self.pending
        puts = {name: len(self.model(name).puts) for name in self.clusters}
        shape = (
            self.active,
            pending,
            self.weights,
            puts,
            self.generation,
            tuple(self.annotations_now),
        )
        if shape != still.shape:
            self._still = still = _Still(shape=shape, number=still.number + 1)
        active = self.kube.objects.get((RAY_CLUSTER.kind, NAMESPACE, self.active))
        is_asked = bool(self.goals) and active is not None and acts.essence(active) != self._goal()
        is_wanting = not self.is_going and (bool(pending) or is_asked)
        holds = is_wanting and not still.is_named and not self._is_named()
        limit = self._deadline() + self.setting.interval + 2 * STANDS if pending else STANDS
        lasts = self.timers.lasts(
            ("named", str(still.number)), seconds, holds=holds, is_excused=not are_well
        )
        if lasts > limit:
            yield "named", "the upgrade", f"nothing moves for {lasts:.0f} s, and nothing says why"

    @of_objects
    def _goal(self) -> tuple[str, int]:
        config = self.service["spec"]["rayClusterConfig"]
        return acts.essence({"spec": config})

    def _is_named(self) -> bool:
        """Return whether the status says why the upgrade stands still."""
        kinds = ("UpgradeStalled", "UpgradePaused", "UpgradeAborted", "ClusterSpecIgnored")
        if any(self.condition(each)[0] == "True" for each in kinds) or not self.is_ready():
            return True
        held = {each["type"]: each["message"] for each in self.status.get("conditions", [])}
        text = held.get("UpgradeInProgress", "")
        return text.startswith(BOTH) and text.rstrip(".") != BOTH

    def _note_sickness(self) -> None:
        """Note which clusters cannot serve, before a service observes it and acts."""
        for name in self.clusters:
            carries, is_ready = self._carries(name) > 0, self._has_ready_head(name)
            self._were_ready |= {name} if carries and is_ready else set()
            is_down = name in self._were_ready and not (
                is_ready and (carries or not self.model(name).target)
            )
            head, now = self.model(name), self.clock.monotonic()
            if head.is_sick or is_down:
                self._sick_at[name] = now
            if is_down or head.app_state is not None or self._lacks(name):
                self._harmed_at[name] = now

    def _unheard(self, now: float) -> frozenset[str]:
        """Return the clusters that were silent, or whose caller was too late, until lately."""
        for name in self.clusters:
            if self.starved or self.model(name).behaviour != "ok":
                self._silent_at[name] = now
        lasts = OBSERVED + 2 * self.draw.setting.slow
        return frozenset(name for name, at in self._silent_at.items() if now - at <= lasts)

    def _unready_for(self, name: str, now: float) -> float:
        """Return the seconds for which a cluster's worker has taken no requests."""
        if not self._takes_no_requests(name):
            self._unready_since.pop(name, None)
            return 0.0
        return now - self._unready_since.setdefault(name, now)

    def _takes_no_requests(self, name: str) -> bool:
        """Return whether a cluster's worker should take requests and is not ready."""
        status = self.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {}).get(
            "status", {}
        )
        is_unready = any(each["status"] != "True" for each in status.get("conditions", []))
        return is_unready and self.draw.world.proxy_location == "EveryNode"

    def _lacks(self, name: str) -> bool:
        """Return whether a cluster carries less than it is sent, or its pods take no requests."""
        return self._takes_no_requests(name) or self._carries(name) < self.weights.get(name, 0)

    def _may_serve(self) -> bool:
        """Return whether the writer of Serve configs runs, receives changes, and may record them; routing is not checked."""
        if self.clock.monotonic() - self._struck_at <= REPEAT:
            return False
        text = "" if self.refusal_of is None else self.refused_kind
        is_free = text in {"", HTTP_ROUTE.kind, GATEWAY.kind}
        held, self.refusal_of = self.refusal_of, None
        try:
            return is_free and self._are_well()
        finally:
            self.refusal_of = held

    def _are_well(self) -> bool:
        """Return whether both services run, receive changes, may write, and wait for nothing."""
        return (
            not self.is_bus_silent
            and not self.starved
            and self.refusal is None
            and self.refusal_of is None
            and not self.loses_answers
            and not self._late
            and not any(each.lag or each.is_down for each in self.processes.values())
            and not any(each.until > self.clock.monotonic() for each in self._parked)
            and all(gates == BETA for gates in self.gates_of.values())
        )

    def _guards(self) -> bool:
        """Return whether traffic-manager guards an upgrade while the bus is silent."""
        held, self.is_bus_silent = self.is_bus_silent, False
        try:
            return held and not self._is_blind and self._are_well()
        finally:
            self.is_bus_silent = held

    def _versions(self) -> Iterator[tuple[str, str]]:
        """Yield clusters that run something else than what is recorded.

        An intent without an outcome leaves open whether Ray carried it out, so what was recorded before it counts as well, down
        to what Ray accepted (ADR 5); what Ray refused does not.
        """
        for name in self.clusters:
            head = self.model(name)
            if (
                not head.puts
                or head.behaviour != "ok"
                or head.has_forgotten
                or not self._has_ready_head(name)
            ):
                continue
            recorded = self._recorded(name)
            runs = _config(head.puts[-1])
            if recorded and runs not in recorded:
                yield (
                    name,
                    f"{name} runs {_short(runs)} and the record contains {', '.join(map(_short, sorted(recorded)))}",
                )

    @of_objects
    def _recorded(self, name: str) -> set[str]:
        uid = self.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, name)]["metadata"]["uid"]
        held = [
            msgspec.convert(each, Revision)
            for each in self.kube.all(CONTROLLER_REVISION)
            if each["metadata"]["labels"].get(revision.RECORD) == revision.SERVE_CONFIG
            and each["metadata"]["ownerReferences"][0]["uid"] == uid
        ]
        newest_first = sorted(
            held, key=lambda each: (each.revision, each.metadata.name), reverse=True
        )
        possible = revision.open_ones(newest_first)
        return {
            _read(each.data.serve_config)
            for each in possible
            if each.outcome is not Outcome.REFUSED
        }

    def _note_names(self) -> None:
        """When a cluster is named pending, remember what the active one may be given until the end."""
        if (
            RAY_SERVICE.kind,
            NAMESPACE,
            NAME,
        ) not in self.kube.objects or self.pending == self._pending_seen:
            return
        self._pending_seen = self.pending
        self._goals_seen = len(self.goals)
        self.complete_configs = {}
        active = self.active
        if self.pending and active in self.clusters and self.model(active).puts:
            held = _image(self.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, active)]["spec"])
            wanted = [_read(serve) for image, serve in self.goals if image == held][-1:]
            runs = _config(self.model(active).puts[-1])
            self.complete_configs = {active: frozenset({runs, *wanted})}

    def _count_put(self, what: str) -> None:
        if what.startswith("after"):
            cluster = what.removeprefix("after put ").removesuffix("-head-svc")
            self._puts_at.setdefault(cluster, []).append(self.clock.monotonic())
            self._judge_config(cluster)
        super()._count_put(what)

    def _judge_config(self, cluster: str) -> None:
        allowed = self.complete_configs.get(cluster)
        if (
            allowed is None
            or not self._is_reconciling
            or cluster != self.active
            or not self.pending
        ):
            return
        new = _config(self.model(cluster).puts[-1])
        if new not in allowed | self._reverted_configs(cluster):
            text = f"{cluster} is active in an upgrade and was given {_short(new)} instead of {_short(min(allowed))}"
            self.break_law("frozen", cluster, text)

    def _reverted_configs(self, cluster: str) -> frozenset[str]:
        """Return the Serve configs that came with a spec that is the cluster's own, after another one was named.

        Such a spec ends a blue/green upgrade in the reconcile that sends its config: nothing was sent to the other cluster, so
        there is nothing to wait for, and the status shows the end right after. In steps the status shows the end first.
        """
        if self.view.capacities[1] is not None:
            return frozenset()
        held = _image(self.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster)]["spec"])
        return frozenset(
            _read(serve) for image, serve in self.goals[self._goals_seen :] if image == held
        )

    def _fail(self, request: Request) -> errors.RaybusError | None:
        if self._is_reconciling and request.verb not in {"get", "list"}:
            self._judge_request(request)
        problem = super()._fail(request)
        if (
            problem is not None
            or self.refusal_of is None
            or not self._is_reconciling
            or request.verb in {"get", "list"}
        ):
            return problem
        return self.refusal_of(request)

    def _judge_request(self, request: Request) -> None:
        if request.kind == "Event":
            self._still.is_named |= (
                request.body is not None and request.body.get("type") == "Warning"
            )
            return
        if not acts.is_allowed(request, self.kube.objects, NAME):
            self.break_law("foreign", request.name, f"{request} touches an object of others")
        if request.kind == POD.kind and self._is_withdrawn(request):
            text = f"{request.name} is to get no requests, and its proxy has been healthy all along"
            self.break_law("withdrawn", request.name, text)
        again = acts.twin(request, self.kube.objects, self._is_whole)
        if again is not None:
            text = f"{request.name} is created while {again} has the same spec, and is whole"
            self.break_law("again", again, text)

    def _is_withdrawn(self, request: Request) -> bool:
        """Return whether a write keeps requests from the head of a cluster that serves well."""
        body: Json = request.body or {}
        wanted: Json = body.get("metadata", {}).get("labels") or {}
        cluster = request.name.removesuffix("-head")
        if wanted.get(labels.SERVE) != "false" or cluster not in self.clusters:
            return False
        head = self.model(cluster)
        takes = head.proxy_is_healthy and head.listens(self.draw.world.port, on_head=True)
        return takes and cluster in set(self._unharmed(self.clock.monotonic()))

    def _is_whole(self, name: str) -> bool:
        """Return whether a cluster could serve again; one that a gate found bad is not asked to."""
        self._note_active()
        if name in self._failed_for or not self._has_ready_head(name):
            return False
        if name != self._replaced or self._is_newer(name):  # only the older one returns (ADR 44)
            return False
        pod = self.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
        is_sick = self.clock.monotonic() - self._sick_at.get(name, -HARMED) < HARMED
        return pod.get("status", {}).get("phase") == "Running" and not is_sick

    def _note_active(self) -> None:
        active = self.active if self.has_service else ""
        if active not in {"", self._active_seen}:
            self._replaced, self._active_seen = self._active_seen, active

    def _is_newer(self, name: str) -> bool:
        """Return whether a cluster was created after the active one."""
        if self.active not in self.clusters:
            return False
        moments = [self._meta(each)["creationTimestamp"] for each in (name, self.active)]
        return moments[0] > moments[1]

    def _count_hot(self, now: float) -> None:
        self._writes_at = [each for each in self._writes_at if now - each <= laws.WINDOW]
        if len(self._writes_at) > laws.MAX_WRITES:
            self.break_law("hot", "kube", f"{len(self._writes_at)} writes within {laws.WINDOW:g} s")
        for name, times in self._puts_at.items():
            times[:] = [each for each in times if now - each <= laws.WINDOW]
            if len(times) > laws.MAX_PUTS:
                self.break_law(
                    "hot", name, f"{name} got {len(times)} PUTs within {laws.WINDOW:g} s"
                )
            if len(times) > 3 * laws.MAX_PUTS:
                raise NeverRests

    def break_law(self, law: str, subject: str, text: str) -> None:
        if self.counts_from is None or (law, subject) in self.found:
            return
        self.found[law, subject] = f"t+{self.clock.monotonic():.2f} {text}"
        self.log(f"BROKEN [{law}]: {text}")

    @property
    def is_busy(self) -> bool:
        """Return whether a pass is under way, or Ray has still to carry something out."""
        return bool(self._running or self._late)

    async def close(self) -> None:
        """End all passes."""
        for each in self._running.values():
            self._forsake(each)
        self._running.clear()
        await self._quiesce()


def _own(route: Body) -> dict[str, int]:
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
    return {
        **config,
        "headGroupSpec": {**head, "template": {"spec": {"containers": [container]}}},
    }


def _config(put: Json) -> str:
    return msgspec.json.encode(
        {key: value for key, value in put.items() if key != "target_capacity"}
    ).decode()


def _image(config: Json) -> str:
    return str(config["headGroupSpec"]["template"]["spec"]["containers"][0]["image"])


@lru_cache(maxsize=256)
def _read(config: str) -> str:
    return _config(serve_config.to_json(config))


def _short(config: str) -> str:
    app: Json = msgspec.json.decode(config)["applications"][0]
    return str(app.get("runtime_env", {}).get("env_vars", {}).get("MESSAGE", "?"))


@contextmanager
def _named_by(rng: random.Random) -> Generator[None]:
    """Let the names of new clusters come from the seed."""

    module = cast("Any", observe)
    held, module.random = module.random, SimpleNamespace(SystemRandom=lambda: rng)
    try:
        yield
    finally:
        module.random = held


__all__ = ["BLUE", "Fate", "Interleaved"]
