"""Does what `common.runtime.executor` leaves to this service: it remembers answers about pods and children, and the status follows the plan.

A status depends on what was executed, so it is a second, small plan (`report`).
"""

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from cluster_reconciler import batch, report
from cluster_reconciler.actions import ClusterPlan, CreateWorker
from cluster_reconciler.observe import Memory, Ports, memory_of, refresh_pods
from cluster_reconciler.observed import Observed
from cluster_reconciler.resources import worker_pod
from common import errors
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, ROLE_BINDING
from common.runtime.actions import Action, Create, Delete, DeleteCollection, IfExists, Refuse, earliest
from common.runtime.cache import version_of
from common.runtime.executor import Executed
from common.runtime.writer import Writer

log = structlog.get_logger()

GRANT_TRIES: Final = 3
GRANT_PAUSE: Final = 0.1
"""Seconds; the API server's copy of a Role lags by milliseconds."""


async def execute(observed: Observed, plan: ClusterPlan, io: Ports, *, now: datetime) -> datetime | None:
    """Execute a plan, then bring the status up to date; return when to reconcile again.

    Raises:
        RaybusError: What failed first; a failure of the plan counts for more than a status that cannot be written.
    """
    perform = partial(_perform, observed=observed, io=io)
    executed = await io.executor.execute(observed.cluster, plan.actions, perform)
    if plan.changes_children or plan.fault or any(isinstance(each.action, Refuse) for each in executed.failures):
        memory_of(observed.cluster, io).forget_children()
    _log(plan, executed)
    meta = observed.cluster.metadata
    cluster = io.cache.get(RayCluster, meta.namespace, meta.name) if plan.writes_status else None
    status, written = ClusterPlan(), Executed()
    if cluster is not None:
        status = report.plan(cluster, report.outcome(plan, executed), io, now=now)
        written = await io.executor.execute(cluster, status.actions, perform)
        if written.error is None and report.makes_provisioned(cluster, status):
            io.metrics.provisioned(cluster, now=now)
    fault = plan.fault or status.fault
    error = executed.error or (errors.Retryable(fault) if fault else written.error)
    if error is not None:
        raise error
    seconds = io.config.requeue_seconds if plan.is_periodic else 0
    periodic = now + timedelta(seconds=seconds) if seconds > 0 else None
    return earliest(periodic, status.requeue_at, now if executed.is_cut else None)


async def _perform(action: Action, *, writer: Writer, observed: Observed, io: Ports) -> bool:
    cluster, memory = observed.cluster, memory_of(observed.cluster, io)
    if isinstance(action, CreateWorker):
        body = worker_pod.build(cluster, action.group, io.config, name=action.name, replica=action.replica)
        batch.scheduler(io.config).mark(cluster, action.group.group_name, body)
        action = Create(resource=POD, body=body, if_exists=IfExists.NEED_OWN)
    match action:
        case Create() if (
            action.resource is POD
        ):  # its name follows from what was observed, so a repeat meets AlreadyExists
            try:
                return await writer.write(action)
            except (errors.Unavailable, asyncio.CancelledError):
                memory.has_listed_pods = False  # the pod may have been made all the same
                raise
            except errors.AlreadyExists as problem:
                memory.taken.add(action.body["metadata"]["name"])
                raise errors.Conflict(str(problem)) from problem
        case Create():
            is_new = await _create_child(action, writer)
            for child in observed.absent:
                if (child.resource, child.name) == (action.resource, action.body["metadata"]["name"]):
                    memory.saw(child, now=io.clock.now())
            return is_new
        case Delete() if action.resource is POD:
            return await _delete_pod(action, writer, memory, io)
        case DeleteCollection():
            await writer.write(action)
            await refresh_pods(cluster, io)
            return True
        case _:
            return await writer.write(action)


async def _create_child(action: Create, writer: Writer) -> bool:
    """Create a child; give the API server the moment that it takes to know the Role that a RoleBinding is for.

    It judges whether we may grant a Role by a copy of its own, which learns of the Role that we have just made a little later.
    """
    for _ in range(GRANT_TRIES if action.resource is ROLE_BINDING else 0):
        try:
            return await writer.write(action)
        except (errors.Forbidden, errors.NotFound):
            await asyncio.sleep(GRANT_PAUSE)
    return await writer.write(action)


async def _delete_pod(action: Delete, writer: Writer, memory: Memory, io: Ports) -> bool:
    known = io.cache.get(Pod, writer.namespace, action.name)
    version = 0 if known is None else version_of(known.metadata)
    try:
        is_new = await writer.write(action)
    except errors.Conflict:
        if await writer.is_there(action):
            raise  # refused by an admission controller; counting it as gone would bring a pod too many
        io.cache.remove(Pod, writer.namespace, action.name, version=version)
        return False
    if is_new:
        memory.deleted.add(action.uid)
    return is_new


def _log(plan: ClusterPlan, executed: Executed) -> None:
    done, failures = [str(action) for action in plan.flat], executed.failures
    if failures:
        log.info("plan failed in part", actions=done, note=plan.note, failed=[str(each.action) for each in failures])
    elif executed.is_cut:
        log.info("plan executed in part, its time slice is over", actions=done, note=plan.note)
    elif done:
        log.info("plan executed", actions=done, note=plan.note)
    else:
        log.debug("nothing to do", note=plan.note)
