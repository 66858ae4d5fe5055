"""One reconcile: observe → plan → execute; each service brings the three. The status is one of the plan's writes."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from common import errors
from common.runtime.actions import Plan, earliest
from common.runtime.executor import Executed
from common.runtime.key import Key

log = structlog.get_logger()

MOST_RECHECKS: Final = 10
"""So often a plan is made anew in one reconcile: more would keep the event loop from all other keys."""

Observed = TypeVar("Observed")
SomePlan = TypeVar("SomePlan", bound=Plan[Any])


class Reconciler(msgspec.Struct, Generic[Observed, SomePlan], frozen=True):
    """Brings objects a step nearer to their goals."""

    observe: Callable[[Key, datetime], Awaitable[Observed | None]]
    """Reads what is known of a key, once, at a time; None when it is gone or another controller's."""
    make_plan: Callable[[Observed, datetime], SomePlan]
    """Decides what one observation leads to; the same observation at the same time gives the same plan."""
    execute: Callable[[Observed, SomePlan], Awaitable[Executed]]
    """Returns what failed, after all that does not depend on it, and when to reconcile again for what the execution left or brought."""
    recheck: Callable[[Observed, SomePlan], Awaitable[Observed | None]] | None = None
    """Reads again what a plan relies on and what may be stale; None when the plan holds, else it is made anew."""

    async def __call__(self, key: Key, now: datetime) -> datetime | None:
        """Reconcile one object; return when to do it again, if no change does it earlier."""
        observed = await self.observe(key, now)
        if observed is None:
            return None
        plan = self.make_plan(observed, now)
        for _ in range(MOST_RECHECKS):
            if self.recheck is None or (fresh := await self.recheck(observed, plan)) is None:
                break
            observed, plan = fresh, self.make_plan(fresh, now)
        else:
            raise errors.Retryable(
                f"the plan for {key} was made {MOST_RECHECKS} times, and what it relies on is stale again"
            )
        log.debug("planned", note=plan.note, actions=len(plan.actions))
        executed = await self.execute(observed, plan)
        if executed.error is not None:
            raise executed.error
        return earliest(plan.requeue_at, executed.requeue_at, now if executed.is_cut else None)
