"""Both services, turned against a model of all around them, in a fixed or a seeded random order.

Each service is a process of its own: it receives changes late, dies alone, and remembers nothing then. Ray's replicas, nodes and
the Gateway follow in their own time. Every change is checked against the rules (`rules`), and printed turn by turn.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from common import annotation_record, errors, labels
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE, SERVICE, Resource
from common.upgrade import traffic_record
from common.upgrade.sources import KINDS as TRAFFIC_KINDS
from common.upgrade.traffic_record import Record
from scenario.service_reconciler.harness import TICK, Killed, trace_of
from scenario.simulation import rules
from scenario.simulation.ray import ModelHead, ModelServe, Slowness
from scenario.simulation.rules import Moment
from scenario.simulation.setting import Setting
from scenario.upgrade.harness import Pair
from service_reconciler import wiring as services
from support.builders.ray_service import NAME, NAMESPACE, a_serve_config
from support.fakes.kube import Request
from support.plans import checked
from traffic_manager import wiring as traffic

MAX_RECONCILES = 60
WATCHED = {HTTP_ROUTE.kind, RAY_SERVICE.kind, RAY_CLUSTER.kind, SERVICE.kind}
ROUTE = (HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute")


class Process(msgspec.Struct, kw_only=True):
    """One of the two services."""

    name: str
    lag: float = 0.0
    """Seconds by which it receives changes late."""
    received: int = 0
    """How many changes it has received."""
    due: float | None = 0.0
    is_down: bool = False


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server sent its watchers."""

    at: float
    kind: str
    body: bytes
    is_gone: bool


class Sim(Pair):
    """One RayService, both services, and everybody else."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.slowness = Slowness(setting.seed, most=setting.slow)
        self.processes = {name: Process(name=name) for name in ("service", "traffic")}
        self.changes: list[Change] = []
        self.lines: list[tuple[float, str]] = []
        """What happened, turn by turn."""
        self.broken: list[str] = []
        """Rules that were broken."""
        self.notes: list[Any] = []
        """What plans were for, newest last; the log of the services."""
        self.refusal: Callable[[Request], errors.RaybusError | None] | None = None
        """A fault of the API server; only writes of the services meet it."""
        self.loses_answers = False
        """With it writes are done and their answers are lost."""
        self.surge = setting.surge
        self.may_hurry = not (setting.surge and setting.step)
        self.is_going = False
        self.victims: dict[str, str] = {}
        """Which cluster a fault struck in which role."""
        self.first = ""
        """The cluster that served before the upgrade."""
        self.former: dict[str, dict[tuple[int, ...], None]] = {}
        """By pending cluster: the steps of the policies that its upgrade followed."""
        self._effective: dict[str, int] = {}
        self._gone_for: dict[str, float] = {}
        self._unfollowed_at = -1e9
        self._sick_at: dict[str, float] = {}
        self._were_ready: set[str] = set()
        self._moment = Moment(at=0.0)
        self._logged_state = ""
        self._logged_conditions: dict[str, str] = {}
        self._actor = ""
        super().__init__()
        self.serve = ModelServe(self.clock, self.slowness)
        self.serve.on_put.append(self._count_put)
        self.kube.faults.append(self._fail)
        self.restart()

    # --- the processes -------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        for process in self.processes.values():
            self.begin(process)

    def begin(self, process: Process) -> None:
        """Begin a new process: it knows what the watcher has published, and remembers nothing."""
        if process.name == "service":
            self.app = checked(
                services.assemble(
                    self.kube,
                    self.serve,
                    self.config,
                    clock=self.clock,
                    instance="test",
                    bus=self.events,
                )
            )
        else:
            self.traffic = checked(
                traffic.assemble(self.kube, self.serve, clock=self.clock, instance="test")
            )
        process.received = 0
        process.due = self.clock.monotonic()
        self._receive(process)

    def _receive(self, process: Process) -> None:
        """Let a process receive what happened long enough ago, in order."""
        horizon = self.clock.monotonic() - process.lag
        app, kinds = (
            (self.app, services.KINDS)
            if process.name == "service"
            else (self.traffic, TRAFFIC_KINDS)
        )
        while process.received < len(self.changes) and self.changes[process.received].at <= horizon:
            change = self.changes[process.received]
            process.received += 1
            view = kinds.get(change.kind)
            if view is None:
                continue
            obj = msgspec.json.decode(change.body, type=view)
            if change.is_gone:
                meta = obj.metadata
                app.cache.remove(
                    view, meta.namespace, meta.name, version=int(meta.resource_version)
                )
            else:
                app.cache.put(obj, partition=0)
            process.due = self.clock.monotonic()

    async def _turn(self, process: Process) -> bool:
        """Let a process reconcile once, if it is due; return whether it was."""
        self._receive(process)
        at = self.clock.monotonic()
        if process.is_down or process.due is None or process.due > at:
            return False
        process.due = None
        self._is_reconciling, self._actor = True, process.name
        now = self.clock.now()
        try:
            again = await (self.app if process.name == "service" else self.traffic).reconciler(
                self.key, now
            )
        except Killed:
            self.log(f"{process.name} dies")
            self.begin(process)
            again = now
        except (errors.Conflict, errors.NotFound, errors.AlreadyExists):
            again = now + timedelta(seconds=TICK)
        except errors.RaybusError:
            again = now + timedelta(seconds=1)
        finally:
            self._is_reconciling = False
        if again is not None:
            later = at + max(0.0, (again - now).total_seconds())
            process.due = later if process.due is None else min(later, process.due)
        return True

    # --- time ----------------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG)
        )  # which logs what was planned
        with structlog.testing.capture_logs() as self.notes:
            for _ in range(round(seconds / TICK)):
                await self._tick()
                self.notes.clear()

    async def _tick(self) -> None:
        others = [self._gateway_moves, self.clusters_move_on, self.endpoints_follow]
        if self.setting.slow:
            self.gateway.seconds = self.slowness.draw()
            self.slowness.rng.shuffle(others)
        for each in others:
            each()
        await self._reconciles()
        self._let_pass()
        self.clock.advance(TICK)

    async def _reconciles(self) -> None:
        processes = list(self.processes.values())
        for _ in range(MAX_RECONCILES):
            if self.setting.slow:
                self.slowness.rng.shuffle(processes)
            if not any([await self._turn(each) for each in processes]):
                return
            if self.setting.slow and self.slowness.rng.random() < 0.3:
                return
        self.broken.append("the services do not come to rest")

    def _gateway_moves(self) -> None:
        self.gateway.move_on()
        route = self.kube.objects.get(ROUTE)
        if route is None:
            self._effective = {}
        elif self.gateway.is_programmed and _is_accepted(route):
            self._effective = self.weights
        if not self._gateway_is_well:
            self._unfollowed_at = self.clock.monotonic()

    @property
    def _gateway_is_well(self) -> bool:
        return (
            self.gateway.is_programmed
            and self.gateway.accepts_routes
            and not self.gateway.is_asleep
        )

    def _let_pass(self) -> None:
        """Count what lasts."""
        now = self.clock.monotonic()
        for name in self.clusters:
            if self._has_ready_head(name):
                self._were_ready.add(name)
            if self.model(name).is_sick or (
                name in self._were_ready and not self._has_ready_head(name)
            ):
                self._sick_at[name] = now
        are_all_up = self.refusal is None and not any(
            each.lag or each.is_down for each in self.processes.values()
        )
        for name in self.weights:
            is_gone = name not in self.clusters
            self._gone_for[name] = (
                self._gone_for.get(name, 0.0) + TICK * are_all_up if is_gone else 0.0
            )
        self.check("time passes")

    def _has_ready_head(self, name: str) -> bool:
        status = self.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, name)].get("status", {})
        return any(each["status"] == "True" for each in status.get("conditions", []))

    # --- what a test does and asks -------------------------------------------------------------------------------------

    def model(self, cluster: str) -> ModelHead:
        """Return a cluster's Serve."""
        return self.serve.head(f"{cluster}-head-svc")

    def ask(self, config: Json, **fields: Any) -> None:
        """Apply a spec with the setting's strategy; the applications differ with the clusters."""
        fields.setdefault("upgradeStrategy", self.setting.strategy)
        fields.setdefault(
            "serve",
            a_serve_config(
                message=config["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
            ),
        )
        fields.setdefault("rayClusterDeletionDelaySeconds", 0)
        fields.setdefault("annotations", self.setting.annotations)
        self.apply(config=config, **fields)

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
            self._become_ready(cluster)
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

    def log(self, what: str) -> None:
        """Put a line into the trace."""
        self.lines.append((self.clock.monotonic(), what))

    def moment(self) -> Moment:
        """Return the harness as it is now."""
        now = self.clock.monotonic()
        has_service = (RAY_SERVICE.kind, NAMESPACE, NAME) in self.kube.objects
        going = {
            each["metadata"]["name"]
            for each in self.kube.all(RAY_CLUSTER)
            if "deletionTimestamp" in each["metadata"]
        }
        clusters = frozenset(self.clusters) - going
        puts = {name: self.model(name).puts[-1] for name in clusters if self.model(name).puts}
        return Moment(
            at=now,
            active=self.active if has_service else "",
            pending=self.pending if has_service else "",
            clusters=clusters,
            weights=self.weights if self.route is not None else None,
            effective=self._effective,
            capacities={name: put.get("target_capacity", 100) for name, put in puts.items()},
            configs={name: _config(put) for name, put in puts.items()},
            recorded=self._recorded_capacities(),
            seen_ready={name: self.model(name).seen_ready for name in clusters},
            sick=frozenset(name for name, at in self._sick_at.items() if now - at < 30),
            surge=self.surge,
            is_back=has_service and self.is_rolling_back(),
            may_hurry=self.may_hurry,
            follows=now - self._unfollowed_at > 1,
            steps=self.steps if has_service else (),
            policy=self.policy if has_service else "",
            former=tuple(self.former.get(self.pending, {})) if has_service else (),
            has_failed=has_service and self.has_failed,
            is_aborted=has_service and self.condition("UpgradeAborted")[0] == "True",
            selected=self.selected(),
            is_going=self.is_going or not has_service,
            gone_for=self._gone_for,
        )

    @property
    def has_failed(self) -> bool:
        """Return whether the route has on record that a gate ended the upgrade that is on."""
        record = self._record()
        held = (
            None if record is None else traffic_record.upgrade_of(record, self.active, self.pending)
        )
        return held is not None and bool(held.failed)

    def _record(self) -> Record | None:
        annotations = (self.route or {}).get("metadata", {}).get("annotations", {})
        text = annotations.get(traffic_record.ANNOTATION)
        return annotation_record.decode(text, Record) if text else None

    def _recorded_capacities(self) -> dict[str, int]:
        """Return the capacities in the traffic record."""
        record = self._record()
        shares = {} if record is None else record.clusters
        return {name: share.capacity for name, share in shares.items()}

    @property
    def policy(self) -> str:
        """Return the record of the policy that the upgrade follows; empty without one."""
        body = self.kube.objects.get((RAY_CLUSTER.kind, NAMESPACE, self.pending), {})
        text: str = (
            body.get("metadata", {}).get("annotations", {}).get(labels.UPGRADE_POLICY_RECORD, "")
        )
        if text:
            self.former.setdefault(self.pending, {})[self.steps] = None
        return text

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the weights of the policy that the upgrade follows; none where its user promotes it."""
        body = self.kube.objects.get((RAY_CLUSTER.kind, NAMESPACE, self.pending), {})
        record = body.get("metadata", {}).get("annotations", {}).get(labels.UPGRADE_POLICY_RECORD)
        if record is None or labels.PROMOTE in self.service["metadata"].get("annotations", {}):
            return ()
        return tuple(
            each["weight"] for each in msgspec.json.decode(record)["spec"].get("steps", [])
        )

    def check(self, actor: str, *, by_hand: bool = False) -> None:
        """Hold the harness against the rules, after a change."""
        after = self.moment()
        if not by_hand:
            found = list(rules.violations(self._moment, after))
            self.broken += [f"t+{after.at:.2f} {each}" for each in found]
            for each in found:
                self.log(f"BROKEN: {each}")
        self._moment = after
        self._log_state(after, actor)

    def forget(self) -> None:
        """Begin the trace here."""
        self.lines.clear()
        self.written.clear()

    def rendered(self) -> str:
        """Return the trace, without the parts of names that chance made."""
        held, self.written = self.written, self.lines
        try:
            lines = [line.partition("\t") for line in trace_of(self).splitlines()]
        finally:
            self.written = held
        return "".join(f"{what:<58}{why}".rstrip() + "\n" for what, _, why in lines)

    def _log_state(self, m: Moment, actor: str) -> None:
        shares = [
            f"{name} {m.capacities.get(name, 0)}/{(m.weights or {}).get(name, '-')}"
            for name in (m.active, m.pending)
            if name
        ]
        state = ", ".join(shares) or "no cluster"
        if m.weights is None and m.selected:
            state += f", selected {m.selected}"
        if state != self._logged_state:
            self._logged_state = state
            plans = (each["note"] for each in reversed(self.notes) if each["event"] == "planned")
            note = next(plans, "") if actor in self.processes else ""
            note = "; ".join(dict.fromkeys(note.split("; ")))
            self.log(f"{state}\t{actor}: {note}".rstrip(" :"))
        self._log_conditions()

    def _log_conditions(self) -> None:
        if (RAY_SERVICE.kind, NAMESPACE, NAME) not in self.kube.objects:
            return
        held = {
            each["type"]: f"{each['status']}, {each['message']}"
            for each in self.status.get("conditions", [])
        }
        for kind in sorted(held.keys() | self._logged_conditions.keys()):
            if held.get(kind) != self._logged_conditions.get(kind):
                self.log(f"  {kind}: {held.get(kind, 'is not there any more')}")
        self._logged_conditions = held

    # --- inside --------------------------------------------------------------------------------------------------------

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        at = self.clock.monotonic()
        self.changes.append(
            Change(at=at, kind=kind, body=msgspec.json.encode(body), is_gone=is_gone)
        )
        if kind == RAY_CLUSTER.kind and is_gone:
            self.serve.forget(f"{body['metadata']['name']}-head-svc")
        if kind in WATCHED:
            self.check(
                self._actor if self._is_reconciling else "others", by_hand=not self._is_reconciling
            )
        if not self._is_reconciling:
            return
        if self.loses_answers and not is_gone:
            raise errors.Unavailable("the connection was lost")
        self._end_write()

    def _count_put(self, what: str) -> None:
        super()._count_put(what)
        if what.startswith("after"):
            self.check(
                self._actor if self._is_reconciling else "others", by_hand=not self._is_reconciling
            )
            if self.loses_answers:
                raise errors.Unavailable("the connection was lost")

    def _fail(self, request: Request) -> errors.RaybusError | None:
        if (
            self.refusal is None
            or not self._is_reconciling
            or request.verb in {"get", "list"}
            or request.kind == "Event"
        ):
            return None
        return self.refusal(request)


def _config(put: Json) -> str:
    return msgspec.json.encode(
        {key: value for key, value in put.items() if key != "target_capacity"}
    ).decode()


def _is_accepted(route: Body) -> bool:
    parents = route.get("status", {}).get("parents", [])
    held = [
        each for parent in parents for each in parent["conditions"] if each["type"] == "Accepted"
    ]
    generation = route["metadata"]["generation"]
    return any(
        each["status"] == "True" and each["observedGeneration"] == generation for each in held
    )
