"""The story of one look at a RayService: observe → plan → apply."""

from datetime import datetime

import structlog

from common.bus.cache import Cache
from common.kube.events import EventRecorder
from common.runtime.key import Key
from traffic_manager.apply import apply
from traffic_manager.observe import Told, observe
from traffic_manager.plan import make_plan

log = structlog.get_logger()


class Reconciler:
    """Looks after the traffic of RayServices."""

    def __init__(self, cache: Cache, events: EventRecorder) -> None:
        self._cache = cache
        self._events = events
        self._told = Told()

    async def __call__(self, key: Key, *, now: datetime) -> datetime | None:  # noqa: ARG002  (the shell's signature)
        """Look at one RayService."""
        observed = observe(key, self._cache, self._told)
        if observed is None:
            return None
        plan = make_plan(observed)
        log.debug("planned", note=plan.note)
        await apply(observed, plan.actions, self._events, self._told)
        return None
