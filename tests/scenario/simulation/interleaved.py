"""Both services with every pass split: a pass stops between any two writes while others continue.

Each pass is a task. At a boundary (`boundaries`) it may be parked until a time of the simulated
clock; chance picks the process that continues next among all that are due. So another process, a
user, a crash, a lost answer or an old cache comes between any two writes and around each PUT. All
chance comes from the seed; the same draw gives the same trace.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import structlog

from common import errors
from common.feature_gates import BETA
from scenario.simulation.boundaries import (
    Boundaries,
    Caller,
    GatedKube,
    GatedServe,
    SkewedClock,
    Strike,
)
from scenario.simulation.draws import Draw
from scenario.simulation.law_judge import LawJudge, NeverRests
from scenario.simulation.upgrade_simulator import UpgradeSimulator
from service_reconciler import observe
from service_reconciler import wiring as services
from service_reconciler.settings import Config
from support.plans import contradictions
from support.simulator.scripted import TICK
from support.simulator.services import SimulatedService
from traffic_manager import wiring as traffic

MAX_TURNS: Final = 150
"""Maximum turns of all processes without a step of the clock."""
IDLE: Final = 1.0
"""Seconds by which the clock advances while no process has work."""
MAX_WAIT: Final = 5.0


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
    """A config that Ray applies although its sender timed out."""

    at: float
    carry_out: Callable[[], Awaitable[object]]


class Interleaved:
    """The driver of drawn upgrades; implements `boundaries.Schedule`."""

    def __init__(self, sim: UpgradeSimulator[LawJudge]) -> None:
        self._sim = sim
        self.rng = random.Random(f"schedule {sim.draw.seed}")
        self._running: dict[str, Running] = {}
        self._parked: list[Parked] = []
        self._late: list[Late] = []
        self._lives: dict[str, Caller] = {}
        self._failures: Counter[str] = Counter()
        self._returns: dict[str, float] = {}
        """Times at which dead processes start again."""
        self.write_count = 0
        self._strikes = {strike.write: strike for strike in sim.draw.strikes}
        self._reconcile_of: dict[str, Any] = {}
        self._guard: Any = None
        sim.judge.waits = self._waits

    def begin(self, service: SimulatedService) -> None:
        """Start a process with the content that the watcher has published, and without memory."""
        name = service.name
        old = self._running.pop(name, None)
        if name in self._lives:
            self._lives[name].is_dead = True
        if old is not None:
            self._forsake(old)
        caller = self._lives[name] = Caller(name=name)
        at = Boundaries(self, caller)
        kube, serve = GatedKube(self._sim.kube, at), GatedServe(self._sim.serve, at)
        clock = self._sim.wall_clocks.setdefault(name, SkewedClock(self._sim.clock))
        gates = self._sim.gates_of.get(name, BETA)
        service.assemble = lambda: (
            services.assemble(
                kube,
                serve,
                Config(gates=gates),
                clock=clock,
                instance="test",
                bus=self._sim.events,
                outbound=self._sim.sources,
            )
            if name == "service"
            else traffic.assemble(
                kube, serve, clock=clock, instance="test", outbound=self._sim.sources
            )
        )
        service.begin(self._sim.clock.monotonic())
        if service.parts.guard is not None:
            self._guard = self._held_to_laws(service.parts.guard)
            self._sim.is_blind = self._sim.bus.is_silent
        self._reconcile_of[name] = self._held_to_laws(service.parts.reconciler)
        self._failures[name] = 0
        self._sim.bus.deliver(service)

    def changed(self) -> None:
        """Do nothing: services receive changes between turns."""

    def _held_to_laws(self, reconciler: Any) -> Any:
        """Return a reconciler with plans that are checked against the laws of plans."""
        honest = reconciler.make_plan

        def make_plan(observed: Any, now: datetime) -> Any:
            plan = honest(observed, now)
            for text in contradictions(plan, observed.service):
                self._sim.judge.break_law("plan", text.partition(":")[0], text)
            return plan

        return msgspec.structs.replace(reconciler, make_plan=make_plan)

    def is_starved(self, caller: Caller) -> bool:
        return caller.name in self._sim.starved

    def _forsake(self, old: Running) -> None:
        old.caller.is_dead = True
        old.task.cancel()
        self._parked = [each for each in self._parked if each.caller is not old.caller]

    def _start_pass(self, service: SimulatedService) -> None:
        service.due = None
        now = self._sim.wall_clocks[service.name].now()
        reconcile = self._guard if self._sim.bus.is_silent else self._reconcile_of[service.name]
        task = asyncio.get_running_loop().create_task(reconcile(self._sim.key, now))
        self._running[service.name] = Running(
            task=task, began=now, caller=self._lives[service.name]
        )

    def _reap(self) -> None:
        """Take the results of passes that have ended."""
        for name, each in list(self._running.items()):
            if each.task.done():
                del self._running[name]
                self._ended(self._sim.services[name], each)

    def _ended(self, service: SimulatedService, each: Running) -> None:
        if each.task.cancelled():
            return
        problem, at = each.task.exception(), self._sim.clock.monotonic()
        if problem is None:
            self._failures[service.name] = 0
            again = each.task.result()
            if again is None:
                return
            wait = max(0.0, (again - self._sim.wall_clocks[service.name].now()).total_seconds())
        elif isinstance(problem, errors.RaybusError):
            self._failures[service.name] += 1
            wait = min(MAX_WAIT, TICK * 2 ** min(self._failures[service.name] - 1, 6))
        else:
            raise problem
        service.due = at + wait if service.due is None else min(at + wait, service.due)

    def fate(self, caller: Caller, what: str) -> Strike | None:
        self._check_alive(caller)
        if "Event" in what or self._sim.judge.counts_from is None:
            return None
        self.write_count += 1
        strike = self._strikes.get(self.write_count)
        if strike is not None:
            self._sim.trace.log(f"strike: {caller.name}: {what}: {strike}")
            self._sim.judge.struck_at = self._sim.clock.monotonic()
        return strike

    async def stop(self, caller: Caller, seconds: float, where: str) -> None:
        self._check_alive(caller)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(
            Parked(
                caller=caller,
                until=self._sim.clock.monotonic() + seconds,
                future=future,
                where=where,
            )
        )
        await future
        self._check_alive(caller)

    async def pause(self, caller: Caller, where: str) -> None:
        if (
            self._sim.judge.counts_from is None
            or "Event" in where
            or self.rng.random() >= self._sim.draw.stops
        ):
            return
        seconds = self.rng.choice((0.0, 0.0, self.rng.uniform(0.0, self._sim.draw.longest_stop)))
        await self.stop(caller, seconds, where)

    async def die(self, caller: Caller, seconds: float) -> None:
        self._sim.trace.log(f"{caller.name} dies")
        service = self._sim.services[caller.name]
        self.begin(service)
        service.is_down = seconds > 0
        self._returns[caller.name] = self._sim.clock.monotonic() + seconds
        await asyncio.get_running_loop().create_future()

    def later(self, seconds: float, carry_out: Callable[[], Awaitable[object]]) -> None:
        self._late.append(Late(at=self._sim.clock.monotonic() + seconds, carry_out=carry_out))

    def acts(self, caller: Caller) -> None:
        self._check_alive(caller)
        self._sim.is_reconciling, self._sim.actor = True, caller.name
        self._sim.judge.note_action()

    def has_acted(self) -> None:
        self._sim.is_reconciling = False

    def _check_alive(self, caller: Caller) -> None:
        if caller.is_dead:
            raise errors.OwnershipLost("this process is gone")

    async def run(self, seconds: float) -> None:
        level = logging.DEBUG if self._sim.trace.is_traced else logging.CRITICAL
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
        ends = self._sim.clock.monotonic() + seconds
        with structlog.testing.capture_logs() as self._sim.trace.notes, _named_by(self.rng):
            while self._sim.clock.monotonic() < ends - 1e-9:
                await self._step(ends)
                self._sim.trace.notes.clear()

    async def _step(self, ends: float) -> None:
        others = [
            self._sim.gateway_moves,
            self._sim.ray_clusters.move_on,
            self._sim.ray_clusters.endpoints_follow,
            self._sim.ray_moves,
        ]
        self._sim.gateway.seconds = self._sim.slowness.draw()
        self.rng.shuffle(others)
        for each in others:
            each()
        self._sim.kube.collect_garbage()
        self._sim.judge.note_active()
        self._sim.judge.note_sickness()
        self._return()
        self._sim.make_again()
        await self._carry_out_late()
        await self._interleave()
        by = min(self._idle(), ends - self._sim.clock.monotonic())
        self._sim.clock.advance(by)
        self._sim.judge.passed(by)

    def _idle(self) -> float:
        """Return how far the clock may advance before a process is due."""
        now = self._sim.clock.monotonic()
        moments = [
            each.due
            for each in self._sim.services.values()
            if each.due is not None and not each.is_down
        ]
        moments += [each.until for each in self._parked]
        moments += [each.at for each in self._late]
        is_busy = (
            any(each.lag for each in self._sim.services.values())
            or self._sim.pending
            or len(self._sim.clusters) != 1
        )
        nearest = min(moments, default=now + IDLE) - now
        return min(IDLE if not is_busy else 2 * TICK, max(TICK, nearest))

    def _return(self) -> None:
        now = self._sim.clock.monotonic()
        for name in [name for name, at in self._returns.items() if at <= now]:
            del self._returns[name]
            self._sim.services[name].is_down = False
            self._sim.services[name].due = now

    async def _interleave(self) -> None:
        for _ in range(MAX_TURNS):
            for each in self._sim.services.values():
                self._sim.bus.deliver(each)
            now = self._sim.clock.monotonic()
            due: list[Any] = [each for each in self._parked if each.until <= now]
            due += [each for each in self._sim.services.values() if self._is_due(each, now)]
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
        self._sim.judge.counts_from = self._sim.judge.counts_from or 0
        self._sim.judge.break_law(
            "hot", "both", f"more than {MAX_TURNS} turns without the clock moving"
        )
        raise NeverRests

    def _is_due(self, service: SimulatedService, now: float) -> bool:
        is_idle = not service.is_down and service.name not in self._running
        is_idle &= not self._sim.bus.is_silent or service.name == "traffic"
        return is_idle and service.due is not None and service.due <= now

    async def _quiesce(self) -> None:
        """Let every task run until it is parked or has ended."""
        ready = cast("Any", asyncio.get_running_loop())._ready
        await asyncio.sleep(0)
        while ready:  # noqa: ASYNC110  (no event is set when all tasks wait)
            await asyncio.sleep(0)

    async def _carry_out_late(self) -> None:
        now = self._sim.clock.monotonic()
        due = [each for each in self._late if each.at <= now]
        self._late = [each for each in self._late if each.at > now]
        for each in due:
            self._sim.trace.log("Ray applies what its caller timed out on")
            was = {name: self._sim.model(name).target for name in self._sim.clusters}
            try:
                await each.carry_out()
            except errors.RaybusError:
                continue
            changed = {
                name: target
                for name, target in was.items()
                if self._sim.model(name).target != target
            }
            self._sim.judge.note_late(changed)

    def _waits(self) -> bool:
        now = self._sim.clock.monotonic()
        return bool(self._late) or any(each.until > now for each in self._parked)

    @property
    def is_busy(self) -> bool:
        """Return whether a pass is in progress, or Ray still has to apply something."""
        return bool(self._running or self._late)

    async def close(self) -> None:
        """End all passes."""
        for each in self._running.values():
            self._forsake(each)
        self._running.clear()
        await self._quiesce()

    async def reconcile(self) -> None:
        """Let the services take their turns without the clock moving."""
        await self._interleave()


def interleaved(draw: Draw, *, is_traced: bool = False) -> UpgradeSimulator[LawJudge]:
    """Return the simulator of a drawn upgrade that is taken apart."""
    sim = UpgradeSimulator(draw, judge=LawJudge, driver=Interleaved, is_traced=is_traced)
    sim.serve.is_empty_when_unhealthy = True
    waits = max((each.seconds for each in draw.strikes if "STOP" in each.fate.name), default=0.0)
    sim.serve.lookback = 0.75 + 3 * draw.longest_stop + waits
    return sim


@contextmanager
def _named_by(rng: random.Random) -> Generator[None]:
    """Let the names of new clusters come from the seed."""

    module = cast("Any", observe)
    original, module.random = module.random, SimpleNamespace(SystemRandom=lambda: rng)
    try:
        yield
    finally:
        module.random = original
