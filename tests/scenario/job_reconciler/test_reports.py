"""What a RayJob reports: one write and one Event for each change (spec rayjob §5.4, §17)."""

from datetime import UTC, datetime

import pytest

from common.kube.resources import RAY_JOB
from scenario.job_reconciler.harness import NAME, Harness
from support.builders.ray_service import NAMESPACE


@pytest.mark.acceptance("rayjob", 28)
async def test_a_change_of_rays_message_alone_is_not_written() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    await harness.run(5)
    before = len(harness.kube.writes())
    requests = len(harness.dashboards.calls)
    harness.ray.jobs[harness.job_id].message = "Job is doing something else."
    await harness.run(30)
    assert harness.kube.writes()[before:] == []
    assert len(harness.dashboards.calls) > requests
    harness.end("SUCCEEDED", "Job finished successfully.")
    await harness.until_state("Complete")
    assert harness.status["message"] == "Job finished successfully."


@pytest.mark.acceptance("rayjob", 126)
async def test_the_events_of_a_whole_run_have_kuberays_notes_and_one_for_each_change() -> None:
    harness = Harness()
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.until_running()
    cluster, job_id = harness.status["rayClusterName"], harness.job_id
    harness.end()
    await harness.until_state("Complete")
    await harness.run(10)
    of_kuberay = [
        ("Normal", "CreatedRayCluster", f"Created RayCluster {NAMESPACE}/{cluster}"),
        ("Normal", "CreatedRayJobSubmitter", f"Created Kubernetes Job {NAMESPACE}/{NAME}"),
        ("Normal", "CreatedService", f"Created the service {NAMESPACE}/{NAME}-head-svc"),
        ("Normal", "DeletedRayCluster", f"Deleted cluster {NAMESPACE}/{cluster}"),
    ]
    of_changes = [
        ("Normal", "RayJobRunning", f"The job runs on RayCluster {NAMESPACE}/{cluster}"),
        ("Normal", "RayJobSucceeded", f"Job {job_id} has succeeded"),
    ]
    events = harness.kube.events()
    assert [event for event in events if event not in of_changes] == of_kuberay
    assert [event for event in events if event in of_changes] == of_changes
    kinds = {
        request.body["regarding"]["kind"]
        for request in harness.kube.requests
        if request.kind == "Event"
    }
    assert kinds == {RAY_JOB.kind}


@pytest.mark.parametrize("end", ["FAILED", "silence"])
async def test_the_times_of_a_status_are_whole_seconds_as_kubernetes_writes_them(end: str) -> None:
    harness = Harness()
    harness.clock.advance(0.3)
    harness.apply(submissionMode="HTTPMode")
    await harness.until_running()
    if end == "silence":
        harness.is_silent = True
    else:
        harness.end(end)
    await harness.until_state("Failed", seconds=400)
    times = [harness.status[name] for name in ("startTime", "endTime")]
    if end == "silence":
        times.append(harness.status["jobStatusCheckFailureStartTime"])
    for time in times:
        assert datetime.strptime(time, "%Y-%m-%dT%H:%M:%S%z").tzinfo is UTC


async def test_the_requests_of_a_whole_run_over_http() -> None:
    """Each request is listed, since a thousand jobs multiply a needless one."""
    harness = Harness()
    harness.apply(submissionMode="HTTPMode", shutdownAfterJobFinishes=True)
    await harness.until_running()
    await harness.run(2)
    harness.end()
    await harness.until_state("Complete")
    await harness.run(10)
    of_job = [
        f"{request.verb} {request.kind}{'/status' if request.subresource else ''}"
        for request in harness.kube.requests
    ]
    assert of_job == [
        "patch RayJob",
        "update RayJob/status",
        "create RayCluster",
        "create Event",
        "update RayJob/status",
        "create Event",
        "create Service",
        "create Event",
        "patch RayJob",
        "update RayJob/status",
        "update RayJob/status",
        "update RayJob/status",
        "create Event",
        "delete RayCluster",
        "create Event",
    ]
    assert [method for method, _ in harness.dashboards.calls[:2]] == ["POST", "GET"]
