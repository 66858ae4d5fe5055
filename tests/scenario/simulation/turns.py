"""Lets the services reconcile turn by turn, in a fixed or a seeded random order."""

import logging
from datetime import timedelta
from typing import Final

import structlog

from common import errors
from scenario.simulation.draws import Draw
from scenario.simulation.rule_judge import RuleJudge
from scenario.simulation.setting import Setting
from scenario.simulation.upgrade_simulator import AnyUpgrade, UpgradeSimulator
from support.simulator.scripted import TICK
from support.simulator.services import SimulatedService
from support.simulator.writes import Killed

MAX_RECONCILES: Final = 60


class Turns:
    """The driver of upgrades in which whole passes alternate."""

    def __init__(self, sim: AnyUpgrade) -> None:
        self._sim = sim

    def begin(self, service: SimulatedService) -> None:
        """Begin a new process, which knows what the bus has delivered."""
        service.begin(self._sim.clock.monotonic())
        self._sim.bus.deliver(service)

    def changed(self) -> None:
        """Do nothing: services receive changes at their turns."""

    async def _turn(self, service: SimulatedService) -> bool:
        """Let a process reconcile once, if it is due; return whether it was."""
        self._sim.bus.deliver(service)
        at = self._sim.clock.monotonic()
        if service.is_down or service.due is None or service.due > at:
            return False
        service.due = None
        self._sim.is_reconciling, self._sim.actor = True, service.name
        now = self._sim.clock.now()
        try:
            again = await service.parts.reconciler(self._sim.key, now)
        except Killed:
            self._sim.trace.log(f"{service.name} dies")
            self.begin(service)
            again = now
        except (errors.Conflict, errors.NotFound, errors.AlreadyExists):
            again = now + timedelta(seconds=TICK)
        except errors.RaybusError:
            again = now + timedelta(seconds=1)
        finally:
            self._sim.is_reconciling = False
        if again is not None:
            later = at + max(0.0, (again - now).total_seconds())
            service.due = later if service.due is None else min(later, service.due)
        return True

    async def run(self, seconds: float) -> None:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG)
        )  # which logs what was planned
        with structlog.testing.capture_logs() as self._sim.trace.notes:
            for _ in range(round(seconds / TICK)):
                await self._tick()
                self._sim.trace.notes.clear()

    async def _tick(self) -> None:
        others = [
            self._sim.gateway_moves,
            self._sim.ray_clusters.move_on,
            self._sim.ray_clusters.endpoints_follow,
        ]
        if self._sim.setting.slow:
            self._sim.gateway.seconds = self._sim.slowness.draw()
            self._sim.slowness.rng.shuffle(others)
        for each in others:
            each()
        await self.reconcile()
        self._sim.judge.let_pass()
        self._sim.clock.advance(TICK)

    async def reconcile(self) -> None:
        processes = list(self._sim.services.values())
        for _ in range(MAX_RECONCILES):
            if self._sim.setting.slow:
                self._sim.slowness.rng.shuffle(processes)
            if not any([await self._turn(each) for each in processes]):
                return
            if self._sim.setting.slow and self._sim.slowness.rng.random() < 0.3:
                return
        self._sim.judge.broken.append("the services do not come to rest")


def turn_by_turn(setting: Setting) -> UpgradeSimulator[RuleJudge]:
    """Return the simulator of an upgrade whose passes are not interrupted."""
    draw = Draw(seed=setting.seed, setting=setting, annotations=setting.annotations)
    return UpgradeSimulator(draw, judge=RuleJudge, driver=Turns)
