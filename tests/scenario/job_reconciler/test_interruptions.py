"""Deadlines, suspensions and invalid edits of an attempt that has ended or is ending."""

from typing import Any

import pytest

from common.api.opaque import Json
from common.kube.resources import JOB, RAY_CLUSTER
from scenario.job_reconciler.harness import Harness
from support.builders.ray_job import SUBMITTING_MODES
from support.builders.ray_service import NAMESPACE


@pytest.mark.parametrize("mode", SUBMITTING_MODES)
@pytest.mark.parametrize(
    ("end", "state", "reason"), [("SUCCEEDED", "Complete", ""), ("FAILED", "Failed", "AppFailed")]
)
async def test_a_job_that_ended_before_its_deadline_did_not_miss_it(
    mode: str, end: str, state: str, reason: str
) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode, activeDeadlineSeconds=20)
    await harness.until_running()
    harness.submitters_flush = False
    harness.end(end)
    harness.clock.advance(60)  # raybus is away
    harness.restart()
    await harness.run(5)
    assert (harness.state, harness.status["jobStatus"]) == (state, end)
    assert harness.status.get("reason", "") == reason


async def test_a_job_whose_first_status_was_not_read_is_stopped_at_its_deadline() -> None:
    harness = Harness()
    harness.submitters_wait = True
    harness.apply(activeDeadlineSeconds=20)
    await harness.until_state("Running")
    await harness.run(1)
    harness.ray.submit(harness.job_id)
    job = harness.ray.jobs[harness.job_id]
    harness.clock.advance(20)
    await harness.reconcile()
    assert harness.status["reason"] == "DeadlineExceeded"
    assert job.status == "STOPPED"


async def test_a_job_that_ended_after_its_deadline_missed_it() -> None:
    harness = Harness()
    harness.apply(activeDeadlineSeconds=20)
    await harness.until_running()
    harness.clock.advance(60)
    harness.end()
    harness.restart()
    await harness.run(5)
    assert (harness.state, harness.status["reason"]) == ("Failed", "DeadlineExceeded")


async def test_a_job_that_has_ended_is_not_suspended_while_its_log_is_printed() -> None:
    harness = Harness()
    spec: Json = {"shutdownAfterJobFinishes": True}
    harness.apply(**spec)
    await harness.until_running()
    harness.submitters_flush = False
    harness.end()
    await harness.until(lambda: harness.status["jobStatus"] == "SUCCEEDED")
    harness.apply(**spec, suspend=True)
    await harness.run(5)
    assert harness.state == "Complete"
    assert len(harness.starts) == 1


async def test_a_job_whose_submitter_ended_too_early_is_stopped() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    harness.end_submitter("Complete")
    await harness.until_state("Failed")
    reason = "JobDeploymentStatusTransitionGracePeriodExceeded"
    assert (harness.status["reason"], harness.status["jobStatus"]) == (reason, "FAILED")
    assert harness.ray.jobs[harness.job_id].status == "STOPPED"


@pytest.mark.parametrize("mode", SUBMITTING_MODES)
async def test_an_invalid_edit_between_two_attempts_counts_no_attempt_twice(mode: str) -> None:
    harness = Harness()
    spec: Json = {"submissionMode": mode, "backoffLimit": 2}
    harness.apply(**spec)
    await harness.until_running()
    await _edit_while_a_cluster_goes(harness, "Retrying", spec, lambda: harness.end("FAILED"))
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    assert (harness.status["failed"], len(harness.starts)) == (1, 2)


@pytest.mark.parametrize("mode", SUBMITTING_MODES)
async def test_an_invalid_edit_during_a_suspension_does_not_revive_the_attempt(mode: str) -> None:
    harness = Harness()
    spec: Json = {"submissionMode": mode, "shutdownAfterJobFinishes": True}
    harness.apply(**spec)
    await harness.until_running()
    await _edit_while_a_cluster_goes(
        harness, "Suspending", spec, lambda: harness.apply(**spec, suspend=True)
    )
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    assert (harness.status["failed"], len(harness.starts)) == (0, 2)


async def _edit_while_a_cluster_goes(
    harness: Harness, state: str, spec: Json, end_attempt: Any
) -> None:
    """End an attempt, make the RayJob invalid until its cluster is gone, and then valid again."""
    name = harness.hold_cluster()
    end_attempt()
    await harness.until_state(state)
    edited: Json = {**spec, "backoffLimit": -1}
    harness.apply(**edited)
    await harness.run(5)
    assert harness.state == state
    harness.kube.finish_deletion(RAY_CLUSTER, NAMESPACE, name)
    await harness.until_state("ValidationFailed")
    harness.apply(**spec)


async def test_a_submitter_of_a_former_mode_ends_with_its_attempt() -> None:
    harness = Harness()
    spec: Json = {"shutdownAfterJobFinishes": True}
    harness.apply(**spec)
    await harness.until_running()
    harness.apply(**spec, submissionMode="HTTPMode", suspend=True)
    await harness.until_state("Suspended")
    assert not harness.kube.all(JOB)
