"""A small harness around the service-reconciler: an API server, RayClusters that come up, Serve that deploys, a clock.

`Harness.run` lets time pass: clusters and Serve progress, the reconciler runs when a change or its own timer is due. A
`Killed` raised at any write ends the process; `restart` begins a new one that remembers nothing.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from common.runtime.key import Key
from common.runtime.replica import ReconcilerParts
from scenario.service_reconciler.surroundings import Surroundings
from service_reconciler.settings import Config
from service_reconciler.wiring import KINDS, assemble
from support.builders.ray_service import NAME, NAMESPACE, a_ray_service
from support.fakes.clock import FakeClock
from support.fakes.events import FakeEvents
from support.fakes.kube import Request
from support.fakes.webhook import FakeServers
from support.plans import checked

KEY = Key(NAMESPACE, NAME)
TICK = 0.25
_CONFIG = Config()


class Killed(BaseException):
    """The process ends here, at once."""


class Harness(Surroundings):
    """One RayService and all around it."""

    def __init__(self, *, config: Config = _CONFIG) -> None:
        self.clock = FakeClock()
        super().__init__(self.clock)
        self.config = config
        self.servers = FakeServers()
        """What gates ask."""
        self.key = KEY
        self.other_services: list[Key] = []
        """Other RayServices that the process reconciles."""
        self.app: ReconcilerParts
        self.written: list[tuple[float, str]] = []
        """What processes wrote, with the seconds since the beginning."""
        self.writes = 0
        """Writes that processes have begun, those to Serve included."""
        self.kill_before: int | None = None
        """The number of the write before which the process is killed."""
        self.kill_after: int | None = None
        self.events = FakeEvents(self.clock)
        self.failed: list[str] = []
        """What failed a pass, other than an old read."""
        self.publishes = 0
        """Upgrade events that processes have begun to publish."""
        self.kill_at_publish: tuple[str, int] | None = None
        """Before or after which of them the process is killed."""
        self.events.on_publish.append(self._count_publish)
        self._is_reconciling = False
        self._next: datetime | None = None
        self.kube.on_change.append(self._changed)
        self.kube.faults.append(self._count)
        self.serve.on_put.append(self._count_put)
        self.restart()

    # --- the process ---------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin a new process: it knows what the API server has and remembers nothing."""
        self.metrics = CollectorRegistry()
        self.app = checked(
            assemble(
                self.kube,
                self.serve,
                self.config,
                clock=self.clock,
                instance="test",
                bus=self.events,
                registry=self.metrics,
                outbound=self.servers,
            )
        )
        for (kind, _, _), body in self.kube.objects.items():
            self._put(kind, body)
        self._next = self.clock.now()

    @property
    def is_reconciling(self) -> bool:
        """Return whether it is a process that acts now."""
        return self._is_reconciling

    async def reconcile(self) -> None:
        """Reconcile the RayService until nothing is due now."""
        for _ in range(50):
            if self._next is None or self._next > self.clock.now():
                return
            self._next = None
            for key in (self.key, *self.other_services):
                again = await self._reconcile(key)
                if again is not None:
                    self._next = again if self._next is None else min(again, self._next)
        msg = f"the reconciler does not come to rest: {self.kube.writes()[-8:]}"
        raise AssertionError(msg)

    async def _reconcile(self, key: Key) -> datetime | None:
        now = self.clock.now()
        self._is_reconciling = True
        try:
            return await self.app.reconciler(key, now)
        except Killed:
            self.restart()
            return now
        except (errors.Conflict, errors.NotFound):
            return now
        except errors.RaybusError as problem:
            self.failed.append(f"{type(problem).__name__}: {problem}")
            return now + timedelta(seconds=1)
        finally:
            self._is_reconciling = False

    async def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / TICK)):
            self.clusters_move_on()
            await self.reconcile()
            self.endpoints_follow()
            await self.reconcile()
            self.clock.advance(TICK)

    async def until(self, holds: Any, *, seconds: float = 60.0) -> None:
        """Let time pass until something holds."""
        for _ in range(round(seconds / TICK)):
            if holds():
                return
            await self.run(TICK)
        msg = f"it does not hold after {seconds} s; status: {self.status}"
        raise AssertionError(msg)

    def jump(self, by: timedelta) -> None:
        """Set the clock on the wall; timers that run go on, as those of the event loop do."""
        self.clock.jump(by)
        self._next = None if self._next is None else self._next + by

    # --- what a user does and sees -------------------------------------------------------------------------------------

    def apply(self, **fields: Any) -> None:
        """Apply a RayService; keywords are those of the builder."""
        body = a_ray_service(**fields)
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
        found = next(
            (each for each in self.status.get("conditions", []) if each["type"] == kind), None
        )
        return ("", "") if found is None else (found["status"], found["reason"])

    def message(self, kind: str) -> str:
        """Return the message of a condition."""
        return next(each["message"] for each in self.status["conditions"] if each["type"] == kind)

    @property
    def clusters(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.kube.all(RAY_CLUSTER)]

    def selected(self, service: str = f"{NAME}-serve-svc") -> str:
        """Return the cluster that a Service selects, empty for one that selects no single cluster."""
        found = self.kube.objects.get((SERVICE.kind, NAMESPACE, service))
        return found["spec"]["selector"].get(labels.CLUSTER, "") if found else ""

    def is_ready(self) -> bool:
        return self.condition("Ready")[0] == "True"

    def is_complete(self) -> bool:
        """Return whether the service serves, with one cluster."""
        return self.is_ready() and bool(self.active) and not self.pending

    def reasons(self) -> list[str]:
        """Return the reasons of all events, in order."""
        return [reason for _, reason, _ in self.kube.events()]

    # --- death ---------------------------------------------------------------------------------------------------------

    def _count(self, request: Request) -> errors.RaybusError | None:
        if self._is_reconciling and request.verb not in {"get", "list"}:
            self._begin_write()
            line = _line_of(request)
            if line is not None:
                self.written.append((self.clock.monotonic(), line))
        return None

    def _count_put(self, what: str) -> None:
        if what.startswith("put"):
            self.written.append(
                (self.clock.monotonic(), f"PUT Serve config to {what.removeprefix('put ')}")
            )
            self._begin_write()
        else:
            self._end_write()

    def _count_publish(self, side: str) -> None:
        self.publishes += side == "before"
        if self.kill_at_publish == (side, self.publishes):
            self.kill_at_publish = None
            raise Killed

    def _begin_write(self) -> None:
        self.writes += 1
        if self.writes == self.kill_before:
            raise Killed

    def _end_write(self) -> None:
        if self.writes == self.kill_after:
            self.kill_after = None
            raise Killed

    # --- inside ------------------------------------------------------------------------------------------------------------

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        if kind not in KINDS:
            return
        meta = body["metadata"]
        if is_gone:
            version = int(meta["resourceVersion"])
            self.app.cache.remove(KINDS[kind], meta["namespace"], meta["name"], version=version)
        else:
            self._put(kind, body)
        self._next = self.clock.now()
        if self._is_reconciling:
            self._end_write()

    def _put(self, kind: str, body: Body) -> None:
        if kind in KINDS:
            self.app.cache.put(
                msgspec.json.decode(msgspec.json.encode(body), type=KINDS[kind]), partition=0
            )


async def a_running_harness(*, switches: Config = _CONFIG, **fields: Any) -> Harness:
    """Return a harness with a RayService that serves; keywords are those of the builder."""
    harness = Harness(config=switches)
    harness.apply(**fields)
    await harness.until(harness.is_complete)
    return harness


def trace_of(harness: Harness) -> str:
    """Return what the process wrote and when, without the parts of names that chance made."""
    text = "\n".join(f"t+{at:6.2f}  {line}" for at, line in harness.written)
    created = [
        each.name for each in harness.kube.requests if str(each).startswith("create RayCluster")
    ]
    for number, name in enumerate(dict.fromkeys(created), start=1):
        text = text.replace(name, f"{NAME}-{number}")
    return text + "\n"


def _line_of(request: Request) -> str | None:
    """Return a write as a line of the trace."""
    is_repeated_event = request.kind == "Event" and request.verb != "create"
    if request.verb in {"get", "list"} or is_repeated_event:
        return None
    if request.kind == "Event":
        return f"event {request.body['reason']}: {request.body['note']}"
    if request.kind == "ControllerRevision" and "-goal-" in request.name:
        return f"{request.verb} ControllerRevision of the spec"
    if request.kind == "ControllerRevision":
        return f"{request.verb} ControllerRevision of {request.name.rpartition('-serve-')[0]}"
    if request.subresource != "status" or request.kind != RAY_SERVICE.kind:
        return str(request)
    status = request.body["status"]
    names = [
        status[f"{role}ServiceStatus"].get("rayClusterName", "-") for role in ("active", "pending")
    ]
    conditions = ", ".join(
        f"{each['type']} {each['status']} ({each['reason']})" for each in status["conditions"]
    )
    return f"status: active {names[0]}, pending {names[1]}; {conditions}"
