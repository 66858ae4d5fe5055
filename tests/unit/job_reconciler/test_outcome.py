"""The next step of a running attempt (spec rayjob §6.4, §10)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.api.ray_job import DeploymentState, JobState, RayJob
from job_reconciler import outcome
from job_reconciler.outcome import NO_SUBMITTER, JobAnswer, SilentDashboard, Submitter, UnknownJob
from job_reconciler.states import Ending, FailureReason
from support.builders.ray_job import a_ray_job

NOW = datetime(2026, 8, 19, 9, 30, tzinfo=UTC)
WITH_SUBMITTER = ["K8sJobMode", "SidecarMode"]
WITHOUT_SUBMITTER = ["HTTPMode", "InteractiveMode"]
BUSY = Submitter()
NO_ANSWER = SilentDashboard(error="connection refused")
OUT_OF_MEMORY = Submitter(finished_at=NOW, failure_message="exit code 137: OOMKilled")


def _ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def _finished(seconds: float) -> Submitter:
    return Submitter(finished_at=NOW - timedelta(seconds=seconds))


def _running(mode: str = "K8sJobMode", **status: Any) -> RayJob:
    return a_ray_job(
        submissionMode=mode,
        status={"jobDeploymentStatus": "Running", "jobId": "train-1", **status},
    )


def _end(job: RayJob, answer: outcome.Answer, submitter: Submitter) -> Ending | None:
    return outcome.decide(job, answer, submitter, NOW).ending


@pytest.mark.parametrize("mode", [*WITH_SUBMITTER, *WITHOUT_SUBMITTER])
@pytest.mark.parametrize("state", ["", "PENDING", "RUNNING"])
def test_a_job_that_has_not_ended_goes_on(mode: str, state: str) -> None:
    decision = outcome.decide(_running(mode), JobAnswer(state=JobState(state)), BUSY, NOW)
    assert decision.ending is None
    assert decision.job_state == state


@pytest.mark.parametrize("mode", WITHOUT_SUBMITTER)
@pytest.mark.parametrize(
    ("state", "end", "reason"),
    [
        ("SUCCEEDED", DeploymentState.COMPLETE, None),
        ("STOPPED", DeploymentState.COMPLETE, None),
        ("FAILED", DeploymentState.FAILED, FailureReason.APPLICATION),
    ],
)
def test_a_job_without_submitter_ends_with_its_ray_job(
    mode: str, state: str, end: DeploymentState, reason: FailureReason | None
) -> None:
    info = JobAnswer(state=JobState(state), message="said Ray")
    decision = outcome.decide(_running(mode), info, NO_SUBMITTER, NOW)
    assert decision.ending == Ending(state=end, reason=reason)
    assert decision.message == "said Ray"


@pytest.mark.acceptance("rayjob", 25)
@pytest.mark.parametrize("mode", WITH_SUBMITTER)
def test_a_job_with_a_submitter_ends_after_its_submitter(mode: str) -> None:
    succeeded = JobAnswer(state=JobState.SUCCEEDED)
    assert _end(_running(mode), succeeded, BUSY) is None
    assert _end(_running(mode), succeeded, _finished(0)) == Ending(state=DeploymentState.COMPLETE)


@pytest.mark.acceptance("rayjob", 88)
@pytest.mark.parametrize("mode", WITH_SUBMITTER)
def test_an_end_that_is_seen_late_is_the_end_that_ray_reports(mode: str) -> None:
    succeeded = JobAnswer(state=JobState.SUCCEEDED)
    assert _end(_running(mode), succeeded, _finished(3600)) == Ending(
        state=DeploymentState.COMPLETE
    )


@pytest.mark.acceptance("rayjob", 66)
def test_the_failure_of_the_job_counts_more_than_that_of_its_submitter() -> None:
    job, failed = _running("SidecarMode", jobStatus="RUNNING"), JobAnswer(state=JobState.FAILED)
    decision = outcome.decide(job, failed, OUT_OF_MEMORY, NOW)
    assert decision.ending == Ending(state=DeploymentState.FAILED, reason=FailureReason.APPLICATION)
    assert decision.job_state == JobState.FAILED


@pytest.mark.acceptance("rayjob", 91)
def test_a_job_whose_submitter_was_deleted_ends_with_its_ray_job() -> None:
    succeeded, running = JobAnswer(state=JobState.SUCCEEDED), JobAnswer(state=JobState.RUNNING)
    assert _end(_running(), running, NO_SUBMITTER) is None
    assert _end(_running(), UnknownJob(), NO_SUBMITTER) is None
    assert _end(_running(), succeeded, NO_SUBMITTER) == Ending(state=DeploymentState.COMPLETE)


@pytest.mark.parametrize("answer", [UnknownJob(), JobAnswer(state=JobState.PENDING)])
@pytest.mark.parametrize("mode", WITH_SUBMITTER)
def test_a_submitter_that_fails_before_the_job_runs_fails_the_submission(
    mode: str, answer: outcome.Answer
) -> None:
    assert _end(_running(mode), answer, OUT_OF_MEMORY) == Ending(
        state=DeploymentState.FAILED,
        reason=FailureReason.SUBMISSION,
        message="exit code 137: OOMKilled",
    )


@pytest.mark.acceptance("rayjob", 87)
def test_a_job_has_thirty_seconds_after_its_submitter() -> None:
    job, running = _running(), JobAnswer(state=JobState.RUNNING)
    assert _end(job, running, _finished(29)) is None
    assert _end(job, running, _finished(30)) == Ending(
        state=DeploymentState.FAILED,
        reason=FailureReason.GRACE_PERIOD,
        message="The RayJob submitter finished at 2026-08-19 09:29:30 but the ray job did not "
        "reach terminal state within 30s",
        job_state=JobState.FAILED,
    )


@pytest.mark.acceptance("rayjob", 90)
def test_a_job_that_its_submitter_did_not_submit_fails() -> None:
    assert _end(_running(), UnknownJob(), BUSY) is None
    assert _end(_running(), UnknownJob(), _finished(1)) == Ending(
        state=DeploymentState.FAILED,
        reason=FailureReason.APPLICATION,
        message="Submitter completed but Ray job not found in RayCluster.",
    )


@pytest.mark.acceptance("rayjob", 57)
def test_a_job_that_ray_has_known_is_never_submitted_again() -> None:
    unknown = outcome.decide(_running("HTTPMode"), UnknownJob(), NO_SUBMITTER, NOW)
    assert unknown.must_submit
    assert unknown.ending is None
    job = _running("HTTPMode", jobStatus="RUNNING")
    decision = outcome.decide(job, UnknownJob(), NO_SUBMITTER, NOW)
    assert not decision.must_submit
    assert decision.ending is not None
    assert decision.ending.reason == FailureReason.APPLICATION


def test_a_job_without_an_answer_is_not_submitted() -> None:
    assert not outcome.decide(_running("HTTPMode"), NO_ANSWER, NO_SUBMITTER, NOW).must_submit


@pytest.mark.parametrize("mode", [*WITH_SUBMITTER, "InteractiveMode"])
def test_only_a_job_in_http_mode_is_submitted_by_a_request(mode: str) -> None:
    assert not outcome.decide(_running(mode), UnknownJob(), BUSY, NOW).must_submit


@pytest.mark.acceptance("rayjob", 76)
@pytest.mark.parametrize("answer", [UnknownJob(), JobAnswer(state=JobState.PENDING)])
def test_any_answer_ends_a_series_of_failed_checks(answer: outcome.Answer) -> None:
    job = _running(jobStatusCheckFailureStartTime=_ago(400))
    decision = outcome.decide(job, answer, BUSY, NOW)
    assert decision.ending is None
    assert decision.failing_since is None


def test_failed_checks_are_counted_from_the_first() -> None:
    assert outcome.decide(_running(), NO_ANSWER, BUSY, NOW).failing_since == NOW
    since = NOW - timedelta(seconds=299)
    job = _running(jobStatusCheckFailureStartTime=since.isoformat(), jobStatus="RUNNING")
    decision = outcome.decide(job, NO_ANSWER, BUSY, NOW)
    assert decision.failing_since == since
    assert decision.ending is None
    assert decision.job_state == JobState.RUNNING


@pytest.mark.parametrize("submitter", [BUSY, _finished(60), OUT_OF_MEMORY])
def test_a_dashboard_without_an_answer_fails_a_job_only_by_the_time_limit(
    submitter: Submitter,
) -> None:
    job = _running(jobStatusCheckFailureStartTime=_ago(299), jobStatus="RUNNING")
    assert _end(job, NO_ANSWER, submitter) is None
    job = _running(jobStatusCheckFailureStartTime=_ago(300), jobStatus="RUNNING")
    assert _end(job, NO_ANSWER, submitter) == Ending(
        state=DeploymentState.FAILED,
        reason=FailureReason.STATUS_CHECKS,
        message="Job status checks have been failing since 2026-08-19 09:25:00; "
        "exceeded timeout of 300s",
    )


@pytest.mark.parametrize("answer", [UnknownJob(), NO_ANSWER])
def test_a_recorded_end_needs_no_second_answer(answer: outcome.Answer) -> None:
    job = _running(jobStatus="SUCCEEDED", message="done")
    decision = outcome.decide(job, answer, _finished(60), NOW)
    assert decision.ending == Ending(state=DeploymentState.COMPLETE)
    assert decision.job_state == JobState.SUCCEEDED
    assert decision.message == "done"


@pytest.mark.acceptance("rayjob", 89)
@pytest.mark.parametrize(
    ("state", "end"),
    [("SUCCEEDED", DeploymentState.COMPLETE), ("FAILED", DeploymentState.FAILED)],
)
def test_a_submitter_that_hangs_is_given_up(state: str, end: DeploymentState) -> None:
    info = JobAnswer(state=JobState(state))
    for seconds, expected in ((299, None), (300, end)):
        job = _running(jobStatus=state, rayJobInfo={"endTime": _ago(seconds)})
        ending = _end(job, info, BUSY)
        assert (ending and ending.state) == expected
        assert ending is None or ending.reason == FailureReason.GRACE_PERIOD


def test_a_sidecar_ends_with_its_head() -> None:
    for answer in (UnknownJob(), NO_ANSWER):
        assert _end(_running("SidecarMode", jobStatus="RUNNING"), answer, NO_SUBMITTER) == Ending(
            state=DeploymentState.FAILED,
            reason=FailureReason.APPLICATION,
            message="Ray head pod not found.",
        )


def test_a_state_of_a_newer_ray_counts_as_running() -> None:
    job = _running("HTTPMode", jobStatus="PAUSED")
    assert not outcome.decide(job, UnknownJob(), NO_SUBMITTER, NOW).must_submit
    assert outcome.decide(job, NO_ANSWER, NO_SUBMITTER, NOW).job_state == JobState.RUNNING
