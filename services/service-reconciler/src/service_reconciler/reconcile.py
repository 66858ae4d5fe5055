"""The story of one look at a RayService: observe → plan → apply; the status is one of the plan's writes."""

from datetime import datetime

import structlog

from common.runtime.key import Key
from service_reconciler.apply import Applier
from service_reconciler.observe import Observer
from service_reconciler.plan import make_plan

log = structlog.get_logger()


class Reconciler:
    """Brings RayServices a step nearer to their goals."""

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
