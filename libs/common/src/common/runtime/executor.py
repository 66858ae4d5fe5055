"""Executes plans: one action after the other, and the actions of a `Parallel` side by side.

After a failure:

| | a single action | an action of a `Parallel` |
|---|---|---|
| what shows that the read was stale, or the object not ours | ends the plan | as any failure |
| the API server does not answer, or throttles us | as any failure | ends the plan: its requests are many |
| any failure | ends its chain, unless it is a side action | no further batch is begun; ends its chain, unless it is a side step |
| Events | at once; a conflict is not reported, since the next reconcile decides anew | after all writes, alike ones as one with a count |

A `Parallel` is begun, and continued, within the time slice of the plan alone.
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
from common.runtime.actions import Action, EmitEvent, Event, Parallel, Plan, Refuse
from common.runtime.events import EventRecorder
from common.runtime.writer import Writer

log = structlog.get_logger()

AT_ONCE: Final = 8
"""Requests of one plan that are under way together: an object of five hundred pods must not be all that the API server answers."""
SLICE: Final = 0.5
"""Seconds after which a plan is cut short and its key requeued, so that a large object does not occupy a worker."""
REFUSALS: Final = (errors.Terminal, errors.Throttled, errors.Unavailable)
"""Failures after which the rest of a plan may still hold."""
UNREPORTED: Final = (errors.NotOurs, errors.NamespaceTerminating)
"""Failures that no Event reports: the same fence, or the same namespace, would refuse the Event."""
UNANSWERED: Final = (errors.Throttled, errors.Unavailable)
"""Failures after which no more of the many requests of a `Parallel` are sent."""

Result = bool | errors.RaybusError
"""Whether an action changed anything, or why it failed."""


Observed = TypeVar("Observed")
Handlers = Mapping[type[Action], Callable[[Any, Observed, Writer], Awaitable[bool]]]
"""What executes an action of a type, and returns whether it changed anything; for types that `Writer` does not know, or not all of."""


class Failure(msgspec.Struct, frozen=True):
    """An action that failed."""

    action: Action
    error: errors.RaybusError


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of executing a plan."""

    failures: tuple[Failure, ...] = ()
    """The first one is raised."""
    is_cut: bool = False
    """Whether the plan took longer than `SLICE`, and its rest is left to the next reconcile."""
    requeue_at: datetime | None = None
    """When to reconcile again for what the execution itself left or brought."""

    @property
    def error(self) -> errors.RaybusError | None:
        """Return the error that the retry depends on."""
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
        """Returns what writes the reconciled object, and what belongs to it."""
        self._handlers = handlers or {}

    async def execute(self, observed: Observed, plan: Plan[Any]) -> Executed:
        """Execute a plan until a step ends it or its time slice is over."""
        writer = self._writer_of(observed)
        begin = partial(self._begin, observed=observed, writer=writer)
        meta, steps = writer.root.metadata, cast("Sequence[Action | Parallel]", plan.actions)
        execution = _Execution(begin, self._clock, self._clock.monotonic() + SLICE)
        failures: list[Failure] = []
        ended: set[str] = set()
        for step in steps:
            if step.chain in ended:
                continue
            if isinstance(step, Parallel):
                failed = await execution.run(step)
                ends_plan = execution.is_cut or any(
                    isinstance(each.error, UNANSWERED) for each in failed
                )
                failures += failed
            else:
                try:
                    result: Result = await begin(step)
                except errors.RaybusError as problem:
                    result = problem
                if result is True and not isinstance(step, EmitEvent):
                    log.info("done", action=str(step))
                await report(self._events, meta, step, result=result)
                failed = (
                    [] if isinstance(result, bool) or step.is_optional else [Failure(step, result)]
                )
                ends_plan = any(_shows_stale_plan(each) for each in failed)
                failures = [*failed, *failures] if ends_plan else [*failures, *failed]
            if ends_plan:
                break
            if failed and not step.is_side:
                ended.add(step.chain)
        alike: dict[tuple[str, str, str], list[Event]] = {}
        for event in execution.events:
            alike.setdefault((event.type, event.reason, event.action), []).append(event)
        async with asyncio.TaskGroup() as group:
            for events in (
                alike.values()
            ):  # the first with their number: KubeRay's client folds them into a series
                group.create_task(self._events.record(meta, events[0], count=len(events)))
        return Executed(failures=tuple(failures), is_cut=execution.is_cut)

    def _begin(self, action: Action, observed: Observed, writer: Writer) -> Awaitable[bool]:
        """Return what executes an action."""
        if isinstance(action, EmitEvent):
            return _emit(action)
        handle = self._handlers.get(type(action))
        return writer.write(action) if handle is None else handle(action, observed, writer)


class _Execution(msgspec.Struct):
    """The actions of one plan that run side by side, and its time slice."""

    begin: Callable[[Action], Awaitable[bool]]
    clock: Clock
    ends_at: float
    has_changes: bool = False
    events: list[Event] = []
    """Events that are reported after all writes."""
    is_cut: bool = False

    async def run(self, step: Parallel) -> list[Failure]:
        """Execute actions in batches: none after a failure, and only to complete what is begun once the time slice is over."""
        failed: list[Failure] = []
        actions: tuple[Action, ...] = step.actions
        size = 1 if step.starts_slowly else AT_ONCE
        self.is_cut = self._is_time_over()
        while actions and not failed and not self.is_cut:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    (action, group.create_task(_result_of(self.begin, action)))
                    for action in actions[:size]
                ]
            for action, task in tasks:
                result = task.result()
                if isinstance(result, errors.RaybusError) and not action.is_optional:
                    failed.append(Failure(action, result))
                if (event := _event_of(action, result)) is not None:
                    self.events.append(event)
                self.has_changes |= result is True and not isinstance(action, EmitEvent)
            actions, size = actions[size:], min(2 * size, AT_ONCE)
            if self._is_time_over():
                size = min(size, sum(1 for _ in takewhile(attrgetter("continues"), actions)))
                self.is_cut = bool(actions) and not failed and not size
        return failed

    def _is_time_over(self) -> bool:
        """Return whether the time slice is over; it is not before something has changed, so every plan makes progress."""
        return self.has_changes and self.clock.monotonic() >= self.ends_at


async def _result_of(begin: Callable[[Action], Awaitable[bool]], action: Action) -> Result:
    """Execute an action beside others, which its error would cancel: return that instead of raising it."""
    try:
        return await begin(action)
    except errors.RaybusError as problem:
        return problem


async def _emit(action: EmitEvent) -> bool:
    """Return that an Event is due; raise its note where it refuses to continue."""
    if isinstance(action, Refuse):
        raise errors.InvalidSpec(action.event.note)
    return True


async def report(
    events: EventRecorder, meta: ObjectMeta, action: Action, *, result: Result
) -> None:
    """Emit the Event of an action, but of a conflict: the next reconcile decides anew."""
    event = None if isinstance(result, errors.Conflict) else _event_of(action, result)
    if event is not None:
        await events.record(meta, event)


def _shows_stale_plan(failed: Failure) -> bool:
    """Return whether nothing more of a plan may be executed."""
    if isinstance(failed.error, errors.Conflict | errors.NotOurs):
        return True
    return not failed.action.is_side and not isinstance(failed.error, REFUSALS)


def _event_of(action: Action, result: Result) -> Event | None:
    """Return the Event that reports an action."""
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
