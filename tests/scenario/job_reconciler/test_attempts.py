"""Retry, suspend and resume: no two attempts overlap (spec rayjob §6.6, §11, §12)."""

from datetime import datetime, timedelta

import pytest

from common import errors
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.kube.resources import POD, RAY_CLUSTER, RAY_JOB
from common.ray.batch_schedulers import VOLCANO_POD_GROUP
from job_reconciler.settings import Config
from scenario.job_reconciler.harness import NAME, Harness
from support.builders.ray_job import SUBMITTING_MODES
from support.builders.ray_service import NAMESPACE
from support.fakes.kube import Request

DURATION = "kuberay_job_execution_duration_seconds"


@pytest.mark.acceptance("rayjob", 42)
@pytest.mark.parametrize("mode", SUBMITTING_MODES)
async def test_no_attempt_runs_before_the_cluster_of_the_last_one_is_gone(mode: str) -> None:
    harness = Harness()
    seen = list[tuple[str, int]]()

    def note(kind: str, _body: Body, _is_gone: bool) -> None:
        if kind in {"RayJob", "RayCluster"}:
            seen.append((harness.state, len(harness.clusters)))

    harness.apply(submissionMode=mode, backoffLimit=1)
    harness.kube.on_change.append(note)
    await harness.until_running()
    first = harness.status["rayClusterName"]
    harness.end("FAILED")
    await harness.until(lambda: "Retrying" in harness.states)
    await harness.until_running()
    assert harness.status["rayClusterName"] != first
    assert max(clusters for _, clusters in seen) == 1
    gone = seen.index(("Retrying", 0))
    assert "Running" not in [state for state, _ in seen[seen.index(("Retrying", 1)) : gone]]


@pytest.mark.acceptance("rayjob", 96)
@pytest.mark.parametrize("mode", SUBMITTING_MODES)
async def test_a_retry_waits_for_a_cluster_that_a_finalizer_holds(mode: str) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode, backoffLimit=1)
    await harness.until_running()
    name = harness.hold_cluster()
    harness.end("FAILED")
    await harness.until_state("Retrying")
    await harness.run(60)
    assert harness.state == "Retrying"
    assert harness.clusters == [name]
    harness.kube.finish_deletion(RAY_CLUSTER, NAMESPACE, name)
    await harness.until_state("Initializing", seconds=5)
    await harness.until_running()
    assert harness.clusters == [harness.status["rayClusterName"]]
    assert name not in harness.clusters


@pytest.mark.acceptance("rayjob", 97)
async def test_a_retry_waits_until_the_scheduler_is_told() -> None:
    harness = Harness(config=Config(batch_scheduler="volcano"))
    harness.apply(backoffLimit=1)
    await harness.until_running()

    def refuse(request: Request) -> errors.RaybusError | None:
        is_group = request.kind == VOLCANO_POD_GROUP.kind and request.verb != "get"
        return errors.Rejected("admission webhook denied the request") if is_group else None

    harness.kube.faults.append(refuse)
    harness.end("FAILED")
    await harness.until_state("Retrying")
    await harness.run(10)
    assert harness.state == "Retrying"
    assert harness.failed
    (note,) = set(harness.notes("FailedToCleanupBatchScheduler"))
    assert note == (
        f"Failed to cleanup batch scheduler resources for RayJob {NAMESPACE}/{NAME}: "
        "admission webhook denied the request"
    )
    harness.kube.faults.remove(refuse)
    await harness.until_state("Initializing", seconds=5)


@pytest.mark.acceptance("rayjob", 98)
async def test_the_next_attempt_waits_for_the_pods_of_the_last_one() -> None:
    harness = Harness()
    harness.apply(backoffLimit=1)
    await harness.until_running()
    name = harness.status["rayClusterName"]
    worker = harness.kube.objects[POD.kind, NAMESPACE, f"{name}-worker"]
    ends_at = rfc3339(harness.clock.now() + timedelta(seconds=30))
    kept = {field: worker["metadata"][field] for field in ("name", "namespace", "labels")}
    harness.kube.put(POD, {**worker, "metadata": {**kept, "deletionTimestamp": ends_at}})
    harness.end("FAILED", "out of memory")
    await harness.until(lambda: not harness.clusters)
    await harness.run(20)
    assert harness.state == "Retrying"
    assert not harness.clusters
    harness.kube.finish_deletion(POD, NAMESPACE, f"{name}-worker")
    await harness.until_running()
    assert harness.notes("RayJobRetrying") == [
        "Attempt 1 of 2 has failed. AppFailed: out of memory"
    ]


@pytest.mark.acceptance("rayjob", 101)
async def test_a_suspension_that_has_begun_is_completed() -> None:
    harness = Harness()
    spec: Json = {"shutdownAfterJobFinishes": True}
    harness.apply(**spec)
    await harness.until_running()
    name = harness.hold_cluster()
    harness.apply(**spec, suspend=True)
    await harness.until_state("Suspending")
    for suspend in (False, True):
        await harness.run(10)
        assert harness.state == "Suspending"
        harness.apply(**spec, suspend=suspend)
    await harness.run(10)
    assert harness.state == "Suspending"
    harness.kube.finish_deletion(RAY_CLUSTER, NAMESPACE, name)
    await harness.until_state("Suspended", seconds=5)
    await harness.run(10)
    assert harness.state == "Suspended"
    assert not harness.clusters


@pytest.mark.acceptance("rayjob", 102)
async def test_a_suspended_job_rests_until_it_is_resumed() -> None:
    harness = Harness()
    spec: Json = {"shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode"}
    harness.apply(**spec)
    await harness.until_running()
    harness.apply(**spec, suspend=True)
    await harness.until_state("Suspended")
    await harness.run(5)
    before = len(harness.kube.requests)
    await harness.run(600)
    assert len(harness.kube.requests) == before
    states = list[tuple[str, str]]()

    def note(kind: str, body: Body, _is_gone: bool) -> None:
        if kind == "RayJob":
            status = body["status"]
            written = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
            states.append(written)

    harness.kube.on_change.append(note)
    harness.apply(**spec)
    await harness.until_running()
    assert list(dict.fromkeys(states)) == [
        ("Suspended", ""),
        ("", ""),
        ("Initializing", ""),
        ("Running", ""),
        ("Running", "PENDING"),
        ("Running", "RUNNING"),
    ]


@pytest.mark.acceptance("rayjob", 103)
async def test_a_job_that_has_ended_is_not_suspended() -> None:
    harness = Harness()
    spec: Json = {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 600}
    harness.apply(**spec)
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    before = harness.status
    harness.apply(**spec, suspend=True)
    await harness.run(60)
    assert harness.status == before
    assert harness.clusters


@pytest.mark.parametrize("mode", SUBMITTING_MODES)
async def test_each_attempt_runs_under_an_id_of_the_user(mode: str) -> None:
    harness = Harness()
    spec: Json = {
        "submissionMode": mode,
        "backoffLimit": 1,
        "jobId": "mine",
        "shutdownAfterJobFinishes": True,
    }
    harness.apply(**spec)
    await harness.until_running()
    harness.end("FAILED")
    await harness.until(lambda: harness.status["failed"] == 1)
    await harness.until_running()
    harness.apply(**spec, suspend=True)
    await harness.until_state("Suspended")
    harness.apply(**spec)
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    assert harness.starts == ["mine"] * 3
    assert harness.status["failed"] == 1


@pytest.mark.acceptance("rayjob", 125)
async def test_each_attempt_has_its_duration() -> None:
    harness = Harness()
    harness.apply(backoffLimit=2)
    lasted = list[float]()
    for end in ("FAILED", "FAILED", "SUCCEEDED"):
        await harness.until_running()
        start = harness.status["startTime"]
        await harness.run(20)
        harness.end(end)
        await harness.until(lambda: harness.status.get("jobStatus") != "RUNNING")
        lasted.append((harness.clock.now() - _parse(start)) / timedelta(seconds=1))
    await harness.until_state("Complete")

    def sample(name: str, **more: str) -> float | None:
        identity = {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": harness.job["metadata"]["uid"],
        }
        return harness.metrics.get_sample_value(name, {**identity, **more})

    ends = (("Retrying", "0"), ("Retrying", "1"), ("Complete", "2"))
    for (state, retries), seconds in zip(ends, lasted, strict=True):
        measured = sample(DURATION, job_deployment_status=state, retry_count=retries)
        assert measured == pytest.approx(seconds, abs=1)
    assert sample("kuberay_job_info") == 1
    assert sample("kuberay_job_deployment_status", deployment_status="Complete") == 1
    assert len(_series(harness)) == 5
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(3)
    assert not _series(harness)


def _series(harness: Harness) -> list[str]:
    """Return the name of each series about RayJobs."""
    return [sample.name for family in harness.metrics.collect() for sample in family.samples]


def _parse(text: str) -> datetime:
    return datetime.fromisoformat(text)
