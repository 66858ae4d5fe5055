"""A RayJob before its job runs: names, the cluster, foreign objects (spec rayjob §3, §6.2)."""

import pytest

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.resources import JOB, POD, RAY_CLUSTER, SERVICE, Resource
from scenario.job_reconciler.harness import NAME, SHARED_CLUSTER, Harness
from support.builders.ray_job import a_cluster_spec
from support.builders.ray_service import NAMESPACE
from support.fakes.kube import Request

FOREIGN_OWNER: Json = {"kind": "Other", "name": "x", "uid": "other", "controller": True}
NO_RESTART_POLICY = (
    'Job.batch "train" is invalid: spec.template.spec.restartPolicy: Required value: valid values: '
    '"OnFailure", "Never"'
)


@pytest.mark.acceptance("rayjob", 6)
async def test_the_longest_legal_name_gets_its_objects() -> None:
    harness, name = Harness(), "a" * 47
    harness.apply(name)
    place = (SERVICE.kind, NAMESPACE, f"{name}-head-svc")
    await harness.until(lambda: place in harness.kube.objects)
    (cluster,) = harness.clusters
    assert cluster.startswith(f"{name}-")
    assert len(cluster) == 53
    assert not harness.failed


@pytest.mark.acceptance("rayjob", 14)
async def test_a_waiting_job_needs_its_mode() -> None:
    harness = Harness()
    harness.apply(submissionMode="InteractiveMode")
    await harness.until_state("Waiting")
    harness.apply(submissionMode="HTTPMode")
    await harness.until_state("ValidationFailed", seconds=2)
    assert harness.notes("InvalidRayJobStatus") == [
        f"{NAMESPACE}/{NAME}: The RayJob status is invalid: JobDeploymentStatus cannot be "
        "`Waiting` when SubmissionMode is not InteractiveMode"
    ]
    await harness.run(10)
    assert harness.state == "ValidationFailed"
    harness.apply(submissionMode="InteractiveMode")
    await harness.until_state("Waiting", seconds=2)


@pytest.mark.acceptance("rayjob", 17)
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"submissionMode": "Foo"}, ["spec.submissionMode", "'Foo'", "expected one of"]),
        ({"entrypointResources": "2"}, ["spec.entrypointResources", 'such as {"R1": 2}']),
        (
            {"rayClusterSpec": a_cluster_spec(upgradeStrategy={"type": "Recreate"})},
            ["spec.rayClusterSpec.upgradeStrategy"],
        ),
    ],
)
async def test_a_job_that_could_never_run_is_refused(spec: Json, words: list[str]) -> None:
    harness = Harness()
    harness.apply(**spec)
    await harness.until_state("ValidationFailed", seconds=2)
    assert all(word in harness.status["message"] for word in words)
    assert not harness.clusters


@pytest.mark.acceptance("rayjob", 48)
async def test_an_event_says_why_the_api_server_refuses_a_submitter() -> None:
    harness = Harness()

    def refuse(request: Request) -> errors.RaybusError | None:
        is_create = (request.verb, request.kind) == ("create", JOB.kind)
        return errors.Rejected(NO_RESTART_POLICY) if is_create else None

    harness.kube.faults.append(refuse)
    template = {"spec": {"containers": [{"name": "submitter", "image": "ray"}]}}
    harness.apply(submitterPodTemplate=template, preRunningDeadlineSeconds=30)
    await harness.run(10)
    (note,) = set(harness.notes("FailedToCreateRayJobSubmitter"))
    assert f"Failed to create new Kubernetes Job {NAMESPACE}/{NAME}" in note
    assert "spec.template.spec.restartPolicy" in note
    assert "OnFailure" in note
    assert harness.state == "Initializing"


@pytest.mark.acceptance("rayjob", 22)
async def test_the_status_of_a_cluster_that_is_not_ready_is_mirrored() -> None:
    harness = Harness()
    harness.fake_clusters.holds_pods = True
    harness.apply()
    await harness.until(lambda: bool(harness.clusters))
    conditions = [
        {
            "type": "HeadPodReady",
            "status": "False",
            "reason": "ContainersNotReady",
            "message": "containers with unready status: [ray-head]",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    name = harness.status["rayClusterName"]
    harness.kube.set_status(RAY_CLUSTER, NAMESPACE, name, {"conditions": conditions})
    await harness.run(3)
    assert harness.state == "Initializing"
    assert harness.status["rayClusterStatus"]["conditions"] == conditions


@pytest.mark.acceptance("rayjob", 31)
@pytest.mark.parametrize("resource", [RAY_CLUSTER, JOB])
async def test_an_object_that_exists_already_is_no_failure(resource: Resource) -> None:
    """Another pass, whose write has not arrived in this cache, has created the object."""
    harness = Harness()
    taken = list[str]()

    def create_first(request: Request) -> None:
        if (request.verb, request.kind) == ("create", resource.kind) and not taken:
            taken.append(request.name)
            harness.kube.put(resource, request.body)

    harness.kube.faults.append(create_first)
    harness.apply()
    await harness.until_running()
    assert len(taken) == 1
    assert not [reason for reason in harness.reasons() if reason.startswith("FailedTo")]
    assert not harness.failed
    assert harness.starts == [harness.job_id]


@pytest.mark.acceptance("rayjob", 32)
async def test_a_foreign_job_with_the_name_of_the_submitter_is_told_once() -> None:
    harness = Harness()
    meta = {"name": NAME, "namespace": NAMESPACE, "ownerReferences": [FOREIGN_OWNER]}
    foreign: Body = {"metadata": meta, "spec": {"template": {}}, "status": {"active": 1}}
    harness.kube.put(JOB, foreign)
    harness.apply(preRunningDeadlineSeconds=30)
    await harness.until_state("Failed", seconds=40)
    assert harness.status["reason"] == "PreRunningDeadlineExceeded"
    assert harness.notes("ObjectNotOwned") == [
        f"Job {NAMESPACE}/{NAME} does not belong to RayJob {NAME} and is left alone; "
        "delete or rename it"
    ]
    assert harness.submitter is not None
    assert harness.submitter["metadata"]["ownerReferences"] == [FOREIGN_OWNER]
    assert harness.starts == []


@pytest.mark.acceptance("rayjob", 39)
@pytest.mark.parametrize("mode", ["HTTPMode", "K8sJobMode"])
async def test_the_result_of_an_earlier_job_is_not_adopted(mode: str) -> None:
    harness = Harness()
    await harness.add_shared_cluster()
    await harness.run(5)
    ray = harness.dashboards.head("shared-head-svc").jobs
    ray.submit("mine")
    ray.end("mine")
    await harness.run(5)
    harness.apply(
        rayClusterSpec=None,
        clusterSelector={labels.CLUSTER: SHARED_CLUSTER},
        submissionMode=mode,
        jobId="mine",
    )
    await harness.until_state("Failed")
    assert harness.status["reason"] == "SubmissionFailed"
    assert "has run a job with the ID mine before" in harness.status["message"]
    assert "set another spec.jobId" in harness.status["message"]
    assert harness.status["succeeded"] == 0
    assert SHARED_CLUSTER in harness.clusters


@pytest.mark.acceptance("rayjob", 65)
@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [("SUCCEEDED", "Complete", ""), ("FAILED", "Failed", "AppFailed")],
)
async def test_a_sidecars_job_may_end_before_the_workers_are_ready(
    end: str, state: str, reason: str
) -> None:
    harness = Harness()
    harness.fake_clusters.holds_pods = True
    harness.apply(submissionMode="SidecarMode")
    await harness.until(lambda: bool(harness.kube.all(POD)))
    head = f"{harness.status['rayClusterName']}-head"
    status = {"phase": "Running", "podIP": f"ip-{head}"}
    harness.kube.set_status(POD, NAMESPACE, head, status)
    await harness.run(2)
    assert harness.starts == [harness.job_id]
    assert harness.state == "Initializing"
    harness.end(end)
    await harness.until_state(state, seconds=10)
    assert harness.status["jobStatus"] == end
    assert harness.status.get("reason", "") == reason
    assert harness.starts == [harness.job_id]


@pytest.mark.acceptance("rayjob", 75)
async def test_a_submission_that_gets_through_ends_a_series_of_failed_checks() -> None:
    harness = Harness()
    harness.is_silent = True
    harness.apply(submissionMode="HTTPMode")
    await harness.until(lambda: "jobStatusCheckFailureStartTime" in harness.status)
    assert harness.ray.posts == []
    harness.is_silent = False
    await harness.until_running()
    assert "jobStatusCheckFailureStartTime" not in harness.status
    assert harness.state == "Running"
    assert len(harness.ray.posts) == 1


@pytest.mark.acceptance("rayjob", 68)
async def test_the_status_names_an_interactive_job_that_ray_does_not_know() -> None:
    harness = Harness()
    spec: Json = {"submissionMode": "InteractiveMode", "jobId": "mine"}
    harness.apply(**spec)
    await harness.until_state("Running")
    await harness.run(3)
    cluster = harness.status["rayClusterName"]
    assert harness.status["message"] == (
        "Ray does not know job mine of spec.jobId; submit a job with this ID to "
        f"RayCluster {cluster}"
    )
    before = len(harness.kube.writes())
    await harness.run(400)
    assert harness.kube.writes()[before:] == []
    assert harness.state == "Running"
    harness.apply(**spec, activeDeadlineSeconds=410)
    await harness.until_state("Failed")
    assert harness.status["reason"] == "DeadlineExceeded"


@pytest.mark.acceptance("rayjob", 68)
async def test_the_job_may_be_submitted_after_it_is_named() -> None:
    harness = Harness()
    harness.apply(submissionMode="InteractiveMode", jobId="mine")
    await harness.until_state("Running")
    await harness.run(30)
    harness.ray.submit("mine")
    await harness.until_running()
    assert "does not know" not in harness.status["message"]
    harness.end()
    await harness.until_state("Complete")


async def test_a_selected_cluster_without_a_named_head_is_polled_at_rays_pace() -> None:
    harness = Harness()
    await harness.add_shared_cluster()
    harness.apply(
        rayClusterSpec=None,
        clusterSelector={labels.CLUSTER: SHARED_CLUSTER},
        submissionMode="HTTPMode",
    )
    await harness.until_state("Running")
    assert "podName" not in harness.status["rayClusterStatus"]["head"]
    await harness.run(5)
    assert harness.ray.posts == []
    status = harness.kube.objects[RAY_CLUSTER.kind, NAMESPACE, SHARED_CLUSTER]["status"]
    head = {**status["head"], "podName": "shared-head"}
    harness.kube.set_status(RAY_CLUSTER, NAMESPACE, SHARED_CLUSTER, {**status, "head": head})
    await harness.until_running()
    assert len(harness.ray.posts) == 1


async def test_a_head_that_accepts_a_job_and_does_not_know_it_is_not_stormed() -> None:
    harness = Harness()
    harness.apply(submissionMode="HTTPMode")
    await harness.until_state("Initializing")
    harness.ray.answers = {
        "GET": (404, f"Job {harness.job_id} does not exist"),
        "POST": (200, "{}"),
    }
    await harness.until_state("Running")
    before = len(harness.dashboards.calls)
    await harness.run(20)
    assert harness.state == "Running"
    assert 20 <= len(harness.dashboards.calls) - before <= 2 * 20 / 0.5 + 2
