"""The story: bring one RayCluster a step nearer to its goal (spec raycluster §6)."""

from datetime import datetime, timedelta

import msgspec
import structlog

from cluster_reconciler import observe, plan
from cluster_reconciler.actions import Plan
from cluster_reconciler.apply import Problem, apply, outcome
from cluster_reconciler.observed import Observed
from cluster_reconciler.ports import Ports
from cluster_reconciler.report import report
from common import errors
from common.runtime.key import Key

log = structlog.get_logger()


async def reconcile(key: Key, io: Ports, *, now: datetime) -> datetime | None:
    """Observe, plan, apply, report; return when to look again if nothing changes before."""
    observed = await observe.observe(key, io, now=now)
    if observed is None:
        io.memories.forget(key)
        io.metrics.forget(key)
        return None
    todo = await _plan(observed, io, now=now)
    problems = await apply(todo, observed.cluster, io)
    _log(todo, problems)
    again, failure = await _report(key, todo, problems, io, now=now)
    error = problems[0].error if problems else errors.Retryable(todo.fault) if todo.fault else failure
    if error is not None:
        raise error
    return _next_look(todo, again, io, now=now)


def _next_look(todo: Plan, again: datetime | None, io: Ports, *, now: datetime) -> datetime | None:
    """Return the earliest of the periodic look and those that the plan and the status need."""
    if todo.is_partial:
        return now
    seconds = io.config.requeue_seconds
    periodic = now + timedelta(seconds=seconds) if todo.looks_again and seconds > 0 else None
    return min((moment for moment in (periodic, todo.look_again_at, again) if moment is not None), default=None)


async def _plan(observed: Observed, io: Ports, *, now: datetime) -> Plan:
    """Plan from the state; before the first change to pods, make sure that the state is not old.

    A new pod whose name belonged to one that is gone gets another: only now is it known which names to ask about.
    """
    todo = plan.make(observed, io.config, now=now, token=io.draw_token())
    if todo.touches_pods and not observe.has_current_pods(observed, io):
        await observe.refresh_pods(observed.cluster, io)
        observed = observe.from_state(observed.cluster, io, observed)
        todo = plan.make(observed, io.config, now=now, token=io.draw_token())
    deleted = observe.deleted_pods(observed.cluster, io) if todo.new_pods else frozenset[str]()
    if deleted.isdisjoint(todo.new_pods):
        return todo
    wiser = msgspec.structs.replace(observed, taken=observed.taken | deleted)
    return plan.make(wiser, io.config, now=now, token=io.draw_token())


async def _report(
    key: Key, todo: Plan, problems: tuple[Problem, ...], io: Ports, *, now: datetime
) -> tuple[datetime | None, errors.RaybusError | None]:
    """Write the status also after a failure, which counts for more than a status that cannot be written."""
    if not todo.writes_status:
        return None, None
    try:
        return await report(key, outcome(todo, problems), io, now=now), None
    except errors.RaybusError as failure:
        return None, failure


def _log(todo: Plan, problems: tuple[Problem, ...]) -> None:
    done = [str(action) for action in todo.actions]
    if problems:
        log.info("plan failed in part", actions=done, notes=todo.notes, failed=[str(each.action) for each in problems])
    elif done:
        log.info("plan carried out", actions=done, notes=todo.notes)
    else:
        log.debug("nothing to do", notes=todo.notes)
