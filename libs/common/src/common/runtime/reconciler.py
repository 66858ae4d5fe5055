"""One reconcile: observe → plan → execute. Each service provides these three functions.

The status is written by an action of the plan.
"""

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

MAX_RECHECKS: Final = 10
"""Maximum number of plans in one reconcile. With more, one key would delay all others."""

Observed = TypeVar("Observed")
SomePlan = TypeVar("SomePlan", bound=Plan[Any])


class Reconciler(msgspec.Struct, Generic[Observed, SomePlan], frozen=True):
    """Reconciles objects with the functions of a service."""

    observe: Callable[[Key, datetime], Awaitable[Observed | None]]
    """Function that reads the state of a key's object and its children.

    Returns None if the object is gone or a different controller manages it."""
    make_plan: Callable[[Observed, datetime], SomePlan]
    """Function that returns the plan for an observation.

    The plan depends only on the observation and the time."""
    execute: Callable[[Observed, SomePlan], Awaitable[Executed]]
    """Function that executes a plan and returns its failures."""
    recheck: Callable[[Observed, SomePlan], Awaitable[Observed | None]] | None = None
    """Function that reads again the objects on which the plan relies and that may be stale.

    Returns None if the plan is still right, or else a new observation for a new plan."""

    async def __call__(self, key: Key, now: datetime) -> datetime | None:
        """Reconcile one object; return when to reconcile it again even without a change.

        Raises the first error of the plan's execution.
        """
        observed = await self.observe(key, now)
        if observed is None:
            return None
        plan = self.make_plan(observed, now)
        for _ in range(MAX_RECHECKS):
            if self.recheck is None or (fresh := await self.recheck(observed, plan)) is None:
                break
            observed, plan = fresh, self.make_plan(fresh, now)
        else:
            raise errors.Retryable(
                f"the plan for {key} was made {MAX_RECHECKS} times, and what it relies on is "
                "stale again"
            )
        log.debug("planned", note=plan.note, actions=len(plan.actions))
        executed = await self.execute(observed, plan)
        if executed.error is not None:
            raise executed.error
        return earliest(plan.requeue_at, executed.requeue_at, now if executed.is_cut else None)
