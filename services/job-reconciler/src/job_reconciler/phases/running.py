"""Plans that follow a running attempt until its end (spec rayjob §6.4, §7.4, §8.4)."""

from datetime import datetime

from msgspec.structs import replace

from common import labels, names
from common.api.meta import whole_seconds
from common.api.ray_job import (
    TERMINAL_JOB_STATES,
    JobState,
    RayJobStatus,
    RayJobStatusInfo,
    SubmissionMode,
)
from common.kube.resources import SERVICE
from common.runtime.actions import (
    Action,
    Annotate,
    EmitEvent,
    IfExists,
    Patch,
    Plan,
    earliest,
)
from job_reconciler import deadlines, events, outcome
from job_reconciler.actions import CreateHeadService, SubmitJob
from job_reconciler.observed import Observed, RayAnswer
from job_reconciler.outcome import AttemptDecision, JobAnswer, UnknownJob
from job_reconciler.phases import ending, starting
from job_reconciler.resources import head_service
from job_reconciler.states import Ending, FailureReason, failure
from job_reconciler.status.update import update


def run(observed: Observed) -> Plan[Action]:
    """Return the plan for an attempt whose job runs or is about to be submitted."""
    if (interruption := ending.find_interruption(observed)) is not None:
        return _end_before(observed) or interruption
    if observed.cluster is None:
        return starting.provide_cluster(observed)
    if observed.cluster_is_foreign:
        name = observed.cluster.metadata.name
        return starting.report_foreign(observed, "RayCluster", name)
    if observed.refusal:
        return ending.finish(observed, failure(FailureReason.SUBMISSION, observed.refusal))
    ray = RayAnswer(answer=UnknownJob()) if observed.is_to_be_submitted else observed.ray
    if ray is None:
        return Plan(requeue_at=observed.now + starting.POLL, note="Ray is not asked")
    return _follow(observed, ray)


def _end_before(observed: Observed) -> Plan[Action] | None:
    """Return the plan that records the end of a job that ended before a suspension or deadline.

    None for every other job. A suspension happens now. A deadline happens when it passes, even if
    raybus was down then. The plan does not wait for the end of the submitter. A stopped job does
    not count, because raybus itself may have stopped it at the deadline.
    """
    job, ray = observed.job, observed.ray
    if ray is None or not isinstance(ray.answer, JobAnswer) or ray.ended_at is None:
        return None
    if ray.answer.state == JobState.STOPPED:
        return None
    interrupted_at = observed.now if job.spec.suspend else deadlines.next_deadline(job)
    start = job.status.start_time
    if interrupted_at is None or start is None or not start <= ray.ended_at <= interrupted_at:
        return None
    decision = outcome.decide(
        job, ray.answer, outcome.NO_SUBMITTER, observed.now, observed.config.limits
    )
    if decision.ending is None:
        return None
    status = _add_answer(observed, ray, decision, failing_since=None)
    return ending.finish(observed, decision.ending, status)


def _follow(observed: Observed, ray: RayAnswer) -> Plan[Action]:
    job, now = observed.job, observed.now
    decision = outcome.decide(job, ray.answer, observed.submitter, now, observed.config.limits)
    failing_since = decision.failing_since
    if decision.must_submit and observed.submission_error and failing_since is None:
        # Ray answers, but no submission gets through.
        failing_since = job.status.job_status_check_failure_start_time or whole_seconds(now)
    status = _add_answer(observed, ray, decision, failing_since)
    end = (
        _find_earlier_run(observed, ray)
        or decision.ending
        or _find_lost_run(observed, ray, decision)
        or deadlines.find_failed_status_checks(
            replace(job, status=status), now, observed.config.limits.status_check_timeout
        )
    )
    if end is not None:
        return ending.finish(observed, end, status)
    submission = _plan_submission(observed, decision)
    return Plan(
        actions=(
            *_plan_head_service(observed),
            *update(observed, status),
            *submission,
            *_plan_missing_submitter(observed, ray),
        ),
        requeue_at=earliest(
            # Not at once: a head may accept a job again and again, and still not know it.
            observed.first_poll_at if submission else observed.poll_at,
            deadlines.next_deadline(job),
        ),
        note=f"runs: {decision.job_state.value or 'not known to Ray'}",
    )


def _add_answer(
    observed: Observed, ray: RayAnswer, decision: AttemptDecision, failing_since: datetime | None
) -> RayJobStatus:
    """Return the status with Ray's answer; `failing_since` is when status checks began to fail."""
    status = replace(
        observed.job.status,
        job_status=decision.job_state.value,
        message=_describe_missing_job(observed, ray) or decision.message,
        job_status_check_failure_start_time=failing_since,
    )
    if not isinstance(ray.answer, JobAnswer) or observed.cluster is None:
        return status
    return replace(
        status,
        reason="",
        ray_job_info=RayJobStatusInfo(start_time=ray.started_at, end_time=ray.ended_at),
        ray_cluster_status=observed.cluster.status,
    )


def _describe_missing_job(observed: Observed, ray: RayAnswer) -> str:
    """Return what the user must do about a `spec.jobId` that Ray does not know, or an empty text.

    The text is empty except in InteractiveMode, where the user submits the job (acceptance 68).
    """
    job = observed.job
    is_interactive = job.spec.submission_mode == SubmissionMode.INTERACTIVE
    is_missing = isinstance(ray.answer, UnknownJob) and job.status.job_status == JobState.UNKNOWN
    if not is_interactive or not is_missing:
        return ""
    return (
        f"Ray does not know job {job.status.job_id} of spec.jobId; submit a job with this ID to "
        f"RayCluster {job.status.ray_cluster_name}"
    )


def _find_earlier_run(observed: Observed, ray: RayAnswer) -> Ending | None:
    """Return the failure of an attempt whose job ID belongs to an earlier job, or None.

    A selected cluster may have run a job with this ID before (acceptance 39). In this case KubeRay
    reports the result of the earlier job.
    """
    job, ended_at = observed.job, ray.ended_at
    is_first = job.status.job_status == JobState.UNKNOWN
    start = job.status.start_time
    if not observed.selects_cluster or not is_first or start is None or ended_at is None:
        return None
    is_over = isinstance(ray.answer, JobAnswer) and ray.answer.state in TERMINAL_JOB_STATES
    if job.spec.submission_mode == SubmissionMode.INTERACTIVE or not is_over or ended_at >= start:
        return None
    return failure(
        FailureReason.SUBMISSION,
        f"RayCluster {job.status.ray_cluster_name} has run a job with the ID {job.status.job_id} "
        "before this RayJob started; set another spec.jobId, or none",
    )


def _find_lost_run(observed: Observed, ray: RayAnswer, decision: AttemptDecision) -> Ending | None:
    """Return the failure of a job that was submitted to a head that is gone, or None.

    The job may have run in part before its status was first read, so it is not submitted again
    (acceptance 57).
    """
    job = observed.job
    is_known = job.status.job_status != JobState.UNKNOWN
    if is_known and _lacks_submitter(observed, ray):
        return failure(
            FailureReason.APPLICATION,
            f"Ray no longer knows job {job.status.job_id}, and its submitter is gone.",
        )
    record = job.metadata.annotations.get(labels.SUBMITTED_TO, "")
    attempt = observed.attempt_id
    if not decision.must_submit or not record.startswith(attempt):
        return None
    if not observed.head_identity or record == f"{attempt}{observed.head_identity}":
        return None
    return failure(
        FailureReason.APPLICATION,
        f"The head that job {job.status.job_id} was submitted to was replaced. It is not submitted "
        "again, because a part of it may have run.",
    )


def _plan_submission(observed: Observed, decision: AttemptDecision) -> tuple[Action, ...]:
    """Return the actions that record the attempt's head in an annotation, then submit the job.

    Empty if the job must not be submitted over HTTP now.
    """
    job, cluster, head = observed.job, observed.cluster, observed.head_identity
    if not decision.must_submit or cluster is None or not head:
        return ()
    record = f"{observed.attempt_id}{head}"
    submit = SubmitJob(cluster=cluster, events=events.not_submitted(job))
    if job.metadata.annotations.get(labels.SUBMITTED_TO) == record:
        return (submit,)
    return Annotate(name=labels.SUBMITTED_TO, value=record), submit


def _plan_missing_submitter(observed: Observed, ray: RayAnswer) -> tuple[Action, ...]:
    """Return the actions that create the submitter Job again.

    Empty unless the submitter Job was deleted before Ray knew the job.
    """
    is_known = observed.job.status.job_status != JobState.UNKNOWN
    if is_known or not _lacks_submitter(observed, ray):
        return ()
    return starting.create_submitter(observed)


def _lacks_submitter(observed: Observed, ray: RayAnswer) -> bool:
    """Return whether Ray does not know the job and no submitter Job exists (K8sJobMode)."""
    return (
        observed.job.spec.submission_mode == SubmissionMode.K8S_JOB
        and observed.submitter_job is None
        and isinstance(ray.answer, UnknownJob)
    )


def _plan_head_service(observed: Observed) -> tuple[Action, ...]:
    """Return the action that makes the RayJob's head Service select this attempt's cluster, if any.

    There is no action if the Service selects that cluster already, if the attempt has no cluster,
    or if the job runs on a cluster that it does not own. If the Service belongs to another owner,
    the action is an Event that reports this.
    """
    job, cluster, service = observed.job, observed.cluster, observed.head_service
    if observed.selects_cluster or cluster is None:
        return ()
    name = names.head_service(job.metadata.name)
    where = f"{job.metadata.namespace}/{name}"
    if service is None:
        create = CreateHeadService(
            resource=SERVICE,
            body=head_service.build(job, cluster, observed.config),
            if_exists=IfExists.NEED_OWN,
            events=events.SERVICE_CREATED.format(where),
            is_side=True,
        )
        return (create,)
    if observed.head_service_is_foreign:
        return (EmitEvent(event=events.not_owned("Service", name, job)),)
    patch = head_service.repointed(service, job, cluster, observed.config)
    if patch is None:
        return ()
    report = events.SERVICE_UPDATED.format(where)
    return (Patch(resource=SERVICE, name=name, patch=patch, events=report, is_side=True),)
