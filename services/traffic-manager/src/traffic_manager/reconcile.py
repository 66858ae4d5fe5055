"""The story of one look at a RayService: observe → plan → apply."""

from datetime import datetime

import structlog

from common.runtime.key import Key
from traffic_manager.apply import Applier
from traffic_manager.observe import Observer
from traffic_manager.plan import make_plan

log = structlog.get_logger()


class Reconciler:
    """Brings the traffic of RayServices a step nearer to its goal."""

    def __init__(self, observer: Observer, applier: Applier) -> None:
        self._observer = observer
        self._applier = applier

    async def __call__(self, key: Key, *, now: datetime) -> datetime | None:
        """Look at one RayService; return when to look again, if no change does it earlier."""
        observed = await self._observer.observe(key, now=now)
        if observed is None:
            return None
        plan = make_plan(observed, now=now)
        log.debug("planned", note=plan.note, actions=len(plan.actions))
        await self._applier.apply(observed, plan.actions)
        return plan.look_again_at
