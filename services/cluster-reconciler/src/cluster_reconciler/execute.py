"""Execute a plan, then update the status, which depends on the outcome of the plan.

Spec raycluster §6 steps 15-16, §14. The handlers of this service also remember what the API server
answered about pods and children. Pods that start together become ready one after the other within
moments. Their progress is collected for a moment, so that the status is not written for each pod. A
status in which all pods are ready, or which got worse, is written at once.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Final, cast

import msgspec
import structlog

from cluster_reconciler import batch, pki
from cluster_reconciler.actions import ClusterPlan, CreateWorker, is_of_pod, make_step
from cluster_reconciler.observe import Observer, build_selector
from cluster_reconciler.observed import ChildCreation, Observed
from cluster_reconciler.reasons import ConditionType, Failure
from cluster_reconciler.status import compute
from cluster_reconciler.status.compute import ExecutionOutcome
from common import conditions, errors, untrusted
from common.api.core import Job, Pod
from common.api.ray_cluster import RayCluster, RayClusterStatus
from common.kube.resources import POD, ROLE_BINDING
from common.ray import cluster_traits as traits
from common.runtime.actions import (
    Action,
    Create,
    Delete,
    DeleteCollection,
    IfExists,
    Refuse,
    Replace,
    UpdateStatus,
    earliest,
)
from common.runtime.executor import Executed, Executor, Handlers
from common.runtime.key import Key
from common.runtime.writer import Writer

log = structlog.get_logger()

GRANT_TRIES: Final = 3
GRANT_PAUSE: Final = 0.1
"""Seconds between attempts to create a RoleBinding whose Role is new.

The API server's cached copy of a Role lags by milliseconds.
"""
MAX_ERROR_LENGTH: Final = 300
"""Maximum characters of an error in the log.

The error quotes text of a tenant, and a plan may fail for hundreds of pods.
"""
PROGRESS_GATHER_TIME: Final = timedelta(seconds=1)
"""Time for which the progress of pods is collected before the status is written."""
PROGRESS_WRITES: Final = 5
"""Target rate of status writes about progress, in writes per second by one replica.

If hundreds of clusters start, most of them are ready before their progress is written.
"""
MAX_GATHERING_TIME: Final = timedelta(seconds=5)
"""Longest time for which the progress of pods is collected, however many clusters make progress."""
SERVICE_GATHER_TIME: Final = timedelta(seconds=0.25)
"""Time for which the progress of a RayService's cluster is collected.

It is short, because an application is sent to the cluster as soon as its head is reported ready.
"""


class Execution:
    """Executes the plans of this service, with a handler for each type of action."""

    def __init__(self, reads: Observer) -> None:
        self._reads = reads
        self.handlers: Handlers[Observed] = {
            CreateWorker: self._create_worker,
            Create: self._create,
            ChildCreation: self._create_child,
            Replace: self._replace,
            Delete: self._delete,
            DeleteCollection: self._delete_pods,
            UpdateStatus: self._update_status,
        }

    async def execute(
        self, executor: Executor[Observed], observed: Observed, plan: ClusterPlan
    ) -> Executed:
        """Execute a plan, then update the status; return when to reconcile again.

        Raises:
            RaybusError: The first failure. A failure of the plan takes precedence over a failed
                status write.
        """
        actions = [action for step in plan.actions for action in step.actions]
        executed = await executor.execute(observed, plan)
        memory = self._reads.get_memory(observed.cluster)
        changes = (
            action
            for action in actions
            if isinstance(action, Replace | Delete) and not is_of_pod(action)
        )
        changes_children = any(action.resource not in pki.KINDS for action in changes)
        if (
            changes_children
            or plan.problem
            or any(isinstance(failure.action, Refuse) for failure in executed.failures)
        ):
            memory.children.clear()
        # The batch scheduler's objects are compared only when they are read, so they are read
        # again.
        if not plan.is_submitted:
            compared = observed.live_children.keys() & batch.COMPARED
            memory.children = {
                address: child
                for address, child in memory.children.items()
                if address[0] not in compared
            }
        _log(executed, list(map(str, actions)), plan.note)
        meta, now = observed.cluster.metadata, observed.now
        cluster = (
            self._reads.cache.get(RayCluster, meta.namespace, meta.name)
            if plan.writes_status
            else None
        )
        if cluster is not None:
            observed = msgspec.structs.replace(observed, cluster=cluster)
        planned, observed = observed, self._reads.read_cache(observed)
        status, written = ClusterPlan(), Executed()
        if cluster is not None:
            status = self.plan_status(observed, make_outcome(plan, executed))
        if status.actions:
            written = await executor.execute(observed, status)
        problem = plan.problem or status.problem
        error = executed.error or (errors.Retryable(problem) if problem else written.error)
        if error is not None:
            raise error
        seconds = self._reads.config.requeue_seconds if plan.is_periodic else 0
        periodic = now + timedelta(seconds=seconds) if seconds > 0 else None
        unplanned = now if _has_news(planned, observed) else None
        return Executed(
            is_cut=executed.is_cut, requeue_at=earliest(periodic, status.requeue_at, unplanned)
        )

    def plan_status(self, observed: Observed, outcome: ExecutionOutcome) -> ClusterPlan:
        """Return the plan that writes the status if it has changed.

        If the only change is that more pods became ready, the write waits, so that more progress is
        collected. While a suspension moves from one state to the next, the next reconcile is due at
        once.
        """
        old, now = observed.cluster.status, observed.now
        if (violation := compute.find_head_violation(observed, outcome)) is not None:
            return ClusterPlan(problem=violation)
        status, meta = compute.compute(observed, outcome), observed.cluster.metadata
        key = Key(meta.namespace, meta.name)
        since = min(self._reads.in_progress.pop(key, now), now)
        if not compute.has_changed(old, status):
            return ClusterPlan()
        if compute.is_mere_progress(old, status):
            shared = timedelta(seconds=len(self._reads.in_progress) / PROGRESS_WRITES)
            gathered_for = min(max(PROGRESS_GATHER_TIME, shared), MAX_GATHERING_TIME)
            is_for_a_service = traits.is_for_a_service(observed.cluster)
            written_at = since + (SERVICE_GATHER_TIME if is_for_a_service else gathered_for)
            if now < written_at:
                self._reads.in_progress[key] = since
                return ClusterPlan(requeue_at=written_at)
        is_same = compute.find_suspension(old.conditions) is compute.find_suspension(
            status.conditions
        )
        return ClusterPlan(
            actions=make_step(UpdateStatus(status=status)), requeue_at=None if is_same else now
        )

    def _create_worker(
        self, action: CreateWorker, observed: Observed, writer: Writer
    ) -> Awaitable[bool]:
        group, body = action.pods.group, action.pods.build(name=action.name, replica=action.replica)
        body["metadata"]["annotations"].update(action.annotations)
        batch.get_scheduler(self._reads.config).mark(
            observed.cluster, self._reads.config, group.group_name, body
        )
        return self._create(
            Create(resource=POD, body=body, if_exists=IfExists.NEED_OWN), observed, writer
        )

    async def _create(self, action: Create, observed: Observed, writer: Writer) -> bool:
        memory = self._reads.get_memory(observed.cluster)
        if action.resource in pki.KINDS:
            memory.changed_pki(is_leaf_change=False, now=observed.now)
        if action.resource is not POD:
            return await writer.create(action)
        try:  # The name follows from the observation, so a repeated creation raises AlreadyExists.
            return await writer.create(action)
        except (errors.Unavailable, asyncio.CancelledError):
            memory.has_listed_pods = False  # The pod may have been created nevertheless.
            raise
        except errors.AlreadyExists as problem:
            memory.unavailable_names.add(action.body["metadata"]["name"])
            raise errors.Conflict(str(problem)) from problem

    async def _create_child(
        self, action: ChildCreation, observed: Observed, writer: Writer
    ) -> bool:
        """Create a child of the cluster; retry a RoleBinding until the API server knows its Role.

        The API server decides from a cached copy whether raybus may grant a Role. The copy receives
        a new Role a little later.
        """
        memory = self._reads.get_memory(observed.cluster)
        tries = GRANT_TRIES if action.resource is ROLE_BINDING else 0
        while True:
            try:
                is_new = await writer.create(action)
                break
            except (errors.Forbidden, errors.NotFound):
                if not tries:
                    raise
                tries -= 1
                await asyncio.sleep(GRANT_PAUSE)
        memory.children[action.address] = action.expected, observed.now
        return is_new

    def _replace(self, action: Replace, observed: Observed, writer: Writer) -> Awaitable[bool]:
        if action.resource in pki.KINDS:
            self._reads.get_memory(observed.cluster).changed_pki(
                is_leaf_change=True, now=observed.now
            )
        return writer.replace(action)

    async def _delete(self, action: Delete, observed: Observed, writer: Writer) -> bool:
        is_new = await writer.delete(action)
        if is_new and action.resource is POD:
            self._reads.get_memory(observed.cluster).deleted.add(action.uid)
        return is_new

    async def _delete_pods(
        self, action: DeleteCollection, observed: Observed, writer: Writer
    ) -> bool:
        await writer.delete_collection(action)
        pods = await self._reads.kube.list(
            POD, writer.namespace, label_selector=build_selector(observed.cluster)
        )
        self._reads.take_pods(observed.cluster, pods)
        return True

    async def _update_status(
        self, action: UpdateStatus, observed: Observed, writer: Writer
    ) -> bool:
        """Write the status, and remember how long the cluster took until all its pods ran."""
        is_new = await writer.update_status(action)
        made_at = observed.cluster.metadata.creation_timestamp
        kind, status = ConditionType.PROVISIONED, cast("RayClusterStatus", action.status)
        if (
            made_at is not None
            and conditions.is_true(status.conditions, kind)
            and not observed.holds(kind)
        ):
            self._reads.get_memory(observed.cluster).provisioned_after = (
                observed.now - made_at
            ).total_seconds()
        return is_new


def _has_news(planned: Observed, observed: Observed) -> bool:
    """Return whether pods or Jobs changed unexpectedly, so that the next reconcile is due at once.

    `planned` and `observed` are the states before and after the plan. The answers to the plan's own
    requests show such changes: for example, a deleted pod without a node is gone at once. The bus
    delivers them later, when they are known and no longer enqueue the cluster. A pod or Job that
    the plan created is expected as long as it has not started.
    """
    before, after = (
        {pod.metadata.uid: pod for pod in _list_running(state)} for state in (planned, observed)
    )
    return not before.keys() <= after.keys() or any(
        _has_begun(pod)
        if uid not in before
        else pod.metadata.resource_version != before[uid].metadata.resource_version
        for uid, pod in after.items()
    )


def _list_running(observed: Observed) -> tuple[Pod | Job, ...]:
    return *observed.pods, *observed.cleanup_jobs


def _has_begun(child: Pod | Job) -> bool:
    if isinstance(child, Job):
        return bool(child.status.conditions)
    return child.status.phase not in {"", "Pending"}


def make_outcome(plan: ClusterPlan, executed: Executed) -> ExecutionOutcome:
    """Return the outcome of an executed plan, as far as the status reports it."""
    if plan.refusal is not None:
        return ExecutionOutcome(failure=plan.refusal, is_clean=False)
    failures = sorted(executed.failures, key=lambda failed: not is_of_pod(failed.action))
    reported = (
        Failure(reason, str(failed.error))
        for failed in failures
        if (reason := _find_failure_reason(failed.action))
    )
    failure = next(reported, None)
    is_partial = plan.is_partial or executed.is_cut
    return ExecutionOutcome(
        failure=failure,
        is_clean=not (executed.failures or plan.unfinished or is_partial or plan.problem),
    )


def _find_failure_reason(action: Action) -> str:
    """Return the reason of condition ReplicaFailure for a failed action; empty if it has none.

    Reasons about children follow KubeRay's pattern for pods.
    """
    match action:
        case Refuse(event=event):
            return event.reason
        case Create() | Replace() | Delete() if not is_of_pod(action):
            verb = {Create: "Create", ChildCreation: "Create", Replace: "Update", Delete: "Delete"}[
                type(action)
            ]
            return f"Failed{verb}{action.resource.kind}"
        case _:
            return action.events.condition_reason


def _log(executed: Executed, actions: list[str], note: str) -> None:
    if failed := [str(failure.action) for failure in executed.failures]:
        error = untrusted.clipped(str(executed.error), MAX_ERROR_LENGTH)
        log.info("plan failed in part", actions=actions, note=note, failed=failed, error=error)
    elif executed.is_cut:
        log.info("plan paused: time slice used up", actions=actions, note=note)
    elif actions:
        log.info("plan executed", actions=actions, note=note)
    else:
        log.debug("nothing to do", note=note)
