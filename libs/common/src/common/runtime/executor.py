"""Executes plans: actions in order, and the actions of a `Parallel` concurrently.

What happens if a single action fails:

- The plan ends if the error shows that the observation was stale, or that this replica no longer
  owns the object.
- Any other error ends the chain of the action, unless the action has `is_side`.
- The Event of the failure is written at once. A conflict has no Event, since the next reconcile
  decides again.

What happens if an action of a `Parallel` fails:

- If the API server does not answer or throttles, the plan ends, so as not to send many requests.
- Any other error ends the chain, unless the `Parallel` has `is_side`. No other batch starts.
- Events are written after all writes of the plan; equal ones become one Event with a count.

A `Parallel` starts batches only within the time slice of the plan.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
import structlog

from common import errors
from common.api.meta import ObjectMeta
from common.clock import Clock
from common.runtime.actions import Action, EmitEvent, KubeEvent, Parallel, Plan, Refuse
from common.runtime.events import EventRecorder
from common.runtime.writer import WRITES, Writer

log = structlog.get_logger()

MAX_CONCURRENT_ACTIONS: Final = 8
"""Maximum concurrent requests of one plan, so that large objects do not delay others."""
SLICE: Final = 0.5
"""Time slice: seconds after which a plan is cut off and its key requeued.

So a large object does not block a worker."""
REFUSALS: Final = (errors.Terminal, errors.Throttled, errors.Unavailable)
"""Errors that end only the chain of the failed action.

Any other error shows that the observation was stale, and ends the plan.
"""
UNREPORTED: Final = (errors.OwnershipLost, errors.NamespaceTerminating)
"""Errors that no Event reports: the lost Lease or the deleted namespace prevents Events, too."""
UNANSWERED: Final = (errors.Throttled, errors.Unavailable)
"""Errors that end the plan if an action of a `Parallel` raises them."""

ActionResult = bool | errors.RaybusError
"""Result of an action: whether it changed anything, or the error with which it failed."""


Observed = TypeVar("Observed")
Handler = Callable[[Any, Observed, Writer], Awaitable[bool]]
"""Function that executes an action and returns whether it changed anything."""
Handlers = Mapping[type[Action], Handler[Observed]]
"""Handlers by the type of action; a type without one uses the handler of its base class."""


class FailedAction(msgspec.Struct, frozen=True):
    """A failed action with its error."""

    action: Action
    error: errors.RaybusError


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of executing a plan."""

    failures: tuple[FailedAction, ...] = ()
    """All failures. If one of them ended the plan, it is the first."""
    is_cut: bool = False
    """Whether the plan exceeded its time slice, so that the next reconcile does the rest."""
    requeue_at: datetime | None = None
    """When to reconcile again because of what was executed or left undone; None if not needed."""

    @property
    def error(self) -> errors.RaybusError | None:
        """The error to raise for the whole plan; None if no action failed."""
        return self.failures[0].error if self.failures else None


class Executor(Generic[Observed]):
    """Executes the plans of one service, and reports them in Events."""

    def __init__(
        self,
        events: EventRecorder,
        *,
        clock: Clock,
        writer_of: Callable[[Observed], Writer],
        handlers: Handlers[Observed] | None = None,
    ) -> None:
        self._events = events
        self._clock = clock
        self._writer_of = writer_of
        """Function that returns the writer for the reconciled object and its children."""
        self._handlers: dict[type[Action], Handler[Observed]] = {
            EmitEvent: _emit,
            Refuse: _refuse,
            **{kind: _by_writer(write) for kind, write in WRITES.items()},
            **(handlers or {}),
        }
        """The handler for each type of action. A service's handlers replace the common ones."""

    async def execute(self, observed: Observed, plan: Plan[Any]) -> Executed:
        """Execute a plan until an error ends it, or its time slice is over."""
        writer = self._writer_of(observed)
        begin = partial(self._begin, observed=observed, writer=writer)
        meta, steps = writer.root.metadata, cast("Sequence[Action | Parallel]", plan.actions)
        execution = _Execution(begin, self._clock, self._clock.monotonic() + SLICE)
        failures: list[FailedAction] = []
        ended: set[str] = set()
        for step in steps:
            if step.chain in ended:
                continue
            if isinstance(step, Parallel):
                failed = await execution.run(step)
                ends_plan = execution.is_cut or any(
                    isinstance(failure.error, UNANSWERED) for failure in failed
                )
                failures += failed
            else:
                try:
                    result: ActionResult = await begin(step)
                except errors.RaybusError as problem:
                    result = problem
                if result is True and not isinstance(step, EmitEvent):
                    log.info("done", action=str(step))
                await report(self._events, meta, step, result=result)
                failed = (
                    []
                    if isinstance(result, bool) or step.is_optional
                    else [FailedAction(step, result)]
                )
                ends_plan = any(_ends_plan(failure) for failure in failed)
                failures = [*failed, *failures] if ends_plan else [*failures, *failed]
            if ends_plan:
                break
            if failed and not step.is_side:
                ended.add(step.chain)
        alike: dict[tuple[str, str, str], list[KubeEvent]] = {}
        for event in execution.events:
            alike.setdefault((event.type, event.reason, event.action), []).append(event)
        async with asyncio.TaskGroup() as group:
            # Write equal Events as one Event with a count, as KubeRay's client library does.
            for events in alike.values():
                group.create_task(self._events.record(meta, events[0], count=len(events)))
        return Executed(failures=tuple(failures), is_cut=execution.is_cut)

    def _begin(self, action: Action, observed: Observed, writer: Writer) -> Awaitable[bool]:
        for kind in type(action).__mro__:
            if (handle := self._handlers.get(kind)) is not None:
                return handle(action, observed, writer)
        raise errors.Invariant(f"no handler is known for: {action}")


class _Execution(msgspec.Struct):
    """Executes the concurrent actions of one plan within the plan's time slice."""

    begin: Callable[[Action], Awaitable[bool]]
    clock: Clock
    ends_at: float
    has_changes: bool = False
    events: list[KubeEvent] = []
    """Events to write after all other writes of the plan."""
    is_cut: bool = False

    async def run(self, step: Parallel) -> list[FailedAction]:
        """Execute actions in batches until one fails or the time slice ends; return the failures.

        After the time slice, only actions that complete an earlier action (`continues`) are
        executed.
        """
        failed: list[FailedAction] = []
        actions: tuple[Action, ...] = step.actions
        size = 1 if step.starts_slowly else MAX_CONCURRENT_ACTIONS
        self.is_cut = self._is_time_over()
        while actions and not failed and not self.is_cut:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    (action, group.create_task(_execute_action(self.begin, action)))
                    for action in actions[:size]
                ]
            for action, task in tasks:
                result = task.result()
                if isinstance(result, errors.RaybusError) and not action.is_optional:
                    failed.append(FailedAction(action, result))
                if (event := _choose_event(action, result)) is not None:
                    self.events.append(event)
                self.has_changes |= result is True and not isinstance(action, EmitEvent)
            actions, size = actions[size:], min(2 * size, MAX_CONCURRENT_ACTIONS)
            if self._is_time_over():
                size = min(size, sum(1 for _ in takewhile(attrgetter("continues"), actions)))
                self.is_cut = bool(actions) and not failed and not size
        return failed

    def _is_time_over(self) -> bool:
        """Return whether the time slice is over. It is never over before the first change."""
        return self.has_changes and self.clock.monotonic() >= self.ends_at


async def _execute_action(
    begin: Callable[[Action], Awaitable[bool]], action: Action
) -> ActionResult:
    """Execute an action and return its error, because raising it would cancel other actions."""
    try:
        return await begin(action)
    except errors.RaybusError as problem:
        return problem


def _by_writer(write: Callable[[Writer, Any], Awaitable[bool]]) -> Handler[object]:
    return lambda action, _observed, writer: write(writer, action)


async def _emit(_action: EmitEvent, _observed: object, _writer: Writer) -> bool:
    """Return True, so that the Event of the action is written."""
    return True


async def _refuse(action: Refuse, _observed: object, _writer: Writer) -> bool:
    raise errors.InvalidSpec(action.event.note)


async def report(
    events: EventRecorder, meta: ObjectMeta, action: Action, *, result: ActionResult
) -> None:
    """Write the Event of an action; none for a conflict, since the next reconcile decides again."""
    event = None if isinstance(result, errors.Conflict) else _choose_event(action, result)
    if event is not None:
        await events.record(meta, event)


def _ends_plan(failed: FailedAction) -> bool:
    """Return whether a failure ends the plan, because the observation or the ownership is stale."""
    if isinstance(failed.error, errors.Conflict | errors.OwnershipLost):
        return True
    return not failed.action.is_side and not isinstance(failed.error, REFUSALS)


def _choose_event(action: Action, result: ActionResult) -> KubeEvent | None:
    """Return the Event that reports the result of an action; None if there is none."""
    if isinstance(action, EmitEvent):
        return action.event
    if isinstance(result, UNREPORTED):
        return None
    if isinstance(result, errors.RaybusError):
        event = action.events.failure
        return (
            None if event is None else msgspec.structs.replace(event, note=f"{event.note}{result}")
        )
    return action.events.success if result else None
