"""Decide what is deleted after the end of a RayJob, and when (spec rayjob §13).

A deletion policy is carried out once. KubeRay repeats `onSuccess` and `onFailure` policies with
each event, and fails once the cluster is gone.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import untrusted
from common.api.ray_job import (
    DeletionCondition,
    DeletionStrategy,
    DeploymentState,
    JobState,
    RayJob,
)
from common.feature_gates import FeatureGate, Gates
from common.runtime import actions
from common.validation.deletion_strategy import DELETION_ORDER

SAFETY_MARGIN: Final = timedelta(seconds=2)
"""Time added to a deletion delay, because `endTime` is cut to whole seconds."""
_UNMATCHED: Final = "spec.deletionStrategy has no policy for a job that ended with"
"""Words with which `Cleanup.problem` begins; they mark an earlier problem in a message."""
_ON_CLUSTER: Final = frozenset({"DeleteWorkers", "DeleteCluster"})


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the job's RayCluster on which the clean-up depends."""

    exists: bool = True
    """Whether the cluster exists and is not being deleted."""
    are_workers_suspended: bool = False


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """What to delete now, and when to decide again."""

    policy: str | None = None
    """The deletion policy to apply now, one of `DELETION_ORDER`; None if none is due."""
    requeue_at: datetime | None = None
    problem: str = ""
    """Why the deletion strategy never deletes anything, in one sentence; empty otherwise."""


class _Due(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    at: datetime


def decide(
    job: RayJob,
    cluster: ClusterFacts,
    gates: Gates,
    now: datetime,
    *,
    deletes_job_itself: bool = False,
) -> Cleanup:
    """Decide what to delete after a RayJob has completed or failed.

    `deletes_job_itself` is the operator's setting by which `shutdownAfterJobFinishes` deletes the
    RayJob and not only its cluster.
    """
    if job.status.end_time is None:
        return Cleanup()
    end = untrusted.bounded(job.status.end_time)
    spec = job.spec
    delay = timedelta(seconds=spec.ttl_seconds_after_finished)
    strategy = spec.deletion_strategy if FeatureGate.DELETION_POLICY in gates else None
    problem = ""
    if strategy is not None:
        due = _list_due_policies(job, strategy, end, delay)
        if not due:
            problem = (
                f"{_UNMATCHED} "
                f"jobStatus {job.status.job_status or 'unknown'} and jobDeploymentStatus "
                f"{job.status.job_deployment_status}, so nothing is deleted"
            )
    elif spec.shutdown_after_job_finishes:
        policy = "DeleteSelf" if deletes_job_itself else "DeleteCluster"
        due = [_Due(policy=policy, at=end + delay)]
    else:
        due = []
    has_selector = bool(spec.cluster_selector)
    left = [each for each in due if not _is_done(each.policy, cluster, has_selector=has_selector)]
    overdue = [each.policy for each in left if each.at <= now]
    return Cleanup(
        policy=max(overdue, key=DELETION_ORDER.index, default=None),
        requeue_at=_add_margin(actions.earliest(*(each.at for each in left if each.at > now))),
        problem=problem,
    )


def add_problem(message: str, problem: str) -> str:
    """Return the message of an ended job with `problem` in place of an earlier clean-up problem.

    `problem` is `Cleanup.problem`. If it is empty, the earlier problem is removed.
    """
    of_job = message.partition(_UNMATCHED)[0].rstrip()
    return f"{of_job} {problem}".strip() if problem else of_job


def _list_due_policies(
    job: RayJob, strategy: DeletionStrategy, end: datetime, delay: timedelta
) -> list[_Due]:
    """Return the deletion policies for the job's outcome, each with the time when it is due.

    `end` is the end of the job, and `delay` its `ttlSecondsAfterFinished`.
    """
    if strategy.deletion_rules:
        return [
            _Due(policy=rule.policy, at=end + timedelta(seconds=rule.condition.ttl_seconds))
            for rule in strategy.deletion_rules
            if _matches(rule.condition, job)
        ]
    policy = None
    if job.status.job_deployment_status == DeploymentState.FAILED:
        # KubeRay deletes nothing if Ray has not reported the failure, as after a deadline.
        policy = strategy.on_failure
    elif job.status.job_status == JobState.SUCCEEDED:
        policy = strategy.on_success
    if policy is None or policy.policy is None:
        return []
    return [_Due(policy=policy.policy, at=end + delay)]


def _matches(condition: DeletionCondition, job: RayJob) -> bool:
    status = job.status
    if condition.job_status is not None:
        return condition.job_status == status.job_status
    return condition.job_deployment_status == status.job_deployment_status


def _is_done(policy: str, cluster: ClusterFacts, *, has_selector: bool) -> bool:
    """Return whether a deletion policy has nothing left to delete.

    A cluster that the job selects (`has_selector`) is never deleted.
    """
    if policy not in DELETION_ORDER:
        return True
    if policy not in _ON_CLUSTER:
        return False
    is_reduced = policy == "DeleteWorkers" and cluster.are_workers_suspended
    return has_selector or not cluster.exists or is_reduced


def _add_margin(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment + SAFETY_MARGIN
