"""The result of planning one reconcile; data only."""

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from common.runtime.actions import Action, Parallel

Step = TypeVar("Step", bound=Action | Parallel)


class Plan(msgspec.Struct, Generic[Step], frozen=True, kw_only=True):
    """Actions in order, the time of the next reconcile, and the reason."""

    actions: tuple[Step, ...] = ()
    requeue_at: datetime | None = None
    note: str = ""

    @property
    def flat(self) -> tuple[Action, ...]:
        """Return the actions, those of a `Parallel` one by one."""
        found: list[Action] = []
        for step in self.actions:
            found += step.actions if isinstance(step, Parallel) else (step,)
        return tuple(found)
