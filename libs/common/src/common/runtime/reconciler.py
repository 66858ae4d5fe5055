"""The story of one look: observe → plan → apply; each service brings the three. The status is one of the plan's writes."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import structlog

from common.runtime.key import Key
from common.runtime.plan import Plan

log = structlog.get_logger()

Observed = TypeVar("Observed")
Seen = TypeVar("Seen", covariant=True)  # noqa: PLC0105  (the name says what it is)
Known = TypeVar("Known", contravariant=True)  # noqa: PLC0105  (the name says what it is)
Action = TypeVar("Action")


class Observe(Protocol[Seen]):
    """Read what is known of a key, once; None when it is gone or somebody else's."""

    def __call__(self, key: Key, *, now: datetime) -> Awaitable[Seen | None]: ...


class MakePlan(Protocol[Known, Action]):
    """Decide what one observation leads to; the same observation at the same time gives the same plan."""

    def __call__(self, observed: Known, *, now: datetime) -> Plan[Action]: ...


class Reconciler(Generic[Observed, Action]):
    """Brings objects a step nearer to their goals."""

    def __init__(
        self,
        observe: Observe[Observed],
        make_plan: MakePlan[Observed, Action],
        apply: Callable[[Observed, tuple[Action, ...]], Awaitable[None]],
    ) -> None:
        self._observe = observe
        self._make_plan = make_plan
        self._apply = apply

    async def __call__(self, key: Key, *, now: datetime) -> datetime | None:
        """Look at one object; return when to look again, if no change does it earlier."""
        observed = await self._observe(key, now=now)
        if observed is None:
            return None
        plan = self._make_plan(observed, now=now)
        log.debug("planned", note=plan.note, actions=len(plan.actions))
        await self._apply(observed, plan.actions)
        return plan.look_again_at
