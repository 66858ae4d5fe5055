"""Drives the services in a fixed order: each receives a change at once and reconciles until nothing
is due.
"""

from typing import TYPE_CHECKING, Final

from common import errors
from common.runtime.key import Key
from support.simulator.services import SimulatedService
from support.simulator.writes import Killed

if TYPE_CHECKING:
    from support.simulator.simulator import Simulator

TICK: Final = 0.25
"""Seconds by which the clock advances in one step."""
MAX_PASSES: Final = 80


class Scripted:
    """The driver of scenario tests, with a fixed order of services."""

    def __init__(self, sim: "Simulator") -> None:
        self._sim = sim

    def begin(self, service: SimulatedService) -> None:
        """Start a new process of a service, which has received everything on the bus."""
        service.begin(self._sim.clock.monotonic())
        self._sim.bus.deliver(service)

    def changed(self) -> None:
        """Deliver the change that was just published."""
        for service in self._sim.services.values():
            self._sim.bus.deliver(service)

    async def run(self, seconds: float) -> None:
        """Advance the time by some seconds, with all reconciles that become due."""
        sim = self._sim
        for _ in range(round(seconds / TICK)):
            sim.gateway.move_on()
            sim.ray_clusters.move_on()
            await self.reconcile()
            sim.ray_clusters.endpoints_follow()
            await self.reconcile()
            sim.clock.advance(TICK)

    async def reconcile(self) -> None:
        """Let the services reconcile until nothing is due; the service whose reconcile is due
        earlier goes first.
        """
        sim = self._sim
        first = next(iter(sim.services.values()))
        for _ in range(MAX_PASSES):
            due = next((each for each in sim.services.values() if self._is_due(each)), None)
            if due is not first:
                sim.observer.note()
            if due is None:
                return
            await self._pass(due)
            if due is not first:
                sim.observer.note()
        raise AssertionError(f"the services do not come to rest: {sim.kube.writes()[-8:]}")

    def _is_due(self, service: SimulatedService) -> bool:
        sim = self._sim
        is_cut_off = sim.bus.is_silent and service.parts.guard is None
        is_past = service.due is not None and service.due <= sim.clock.monotonic()
        return is_past and not is_cut_off and not service.is_down

    async def _pass(self, service: SimulatedService) -> None:
        service.due = None
        at = self._sim.clock.monotonic()
        for key in (self._sim.key, *self._sim.other_services):
            wait = await self._reconcile(service, key)
            if wait is not None:
                service.due = at + wait if service.due is None else min(at + wait, service.due)

    async def _reconcile(self, service: SimulatedService, key: Key) -> float | None:
        """Reconcile one RayService; return the seconds until its next reconcile."""
        sim, now = self._sim, self._sim.clock.now()
        reconcile = service.parts.guard if sim.bus.is_silent else service.parts.reconciler
        assert reconcile is not None
        sim.is_reconciling = True
        try:
            again = await reconcile(key, now)
        except Killed:
            sim.restart()
            return 0.0
        except errors.Conflict:
            return 0.0
        except errors.RaybusError as error:
            if isinstance(error, errors.NotFound) and service.name == "service":
                return 0.0
            sim.failed.append(f"{type(error).__name__}: {error}")
            return 1.0
        finally:
            sim.is_reconciling = False
        return None if again is None else (again - now).total_seconds()
