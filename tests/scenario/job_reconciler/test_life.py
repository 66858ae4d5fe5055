"""The life of a RayJob from its creation to its clean-up (spec rayjob §6, §11-§14)."""

import pytest

from common import errors, labels
from common.api.opaque import Body, Json
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import JOB, POD, RAY_CLUSTER, RAY_JOB, SERVICE
from common.ray.batch_schedulers import TOPOLOGY_MODE, TOPOLOGY_TIER, VOLCANO_POD_GROUP
from job_reconciler.settings import Config
from scenario.job_reconciler.harness import NAME, SHARED_CLUSTER, Harness, submission_mark
from support.builders.ray_service import NAMESPACE
from support.fakes.kube import Request

MODES = ["K8sJobMode", "HTTPMode"]


async def until_submitted_without_status(harness: Harness) -> None:
    """Submit a job by HTTP, and then leave all questions about it unanswered."""

    def silence(request: Request) -> None:
        if labels.SUBMITTED_TO in str(request.body):
            harness.ray.answers["GET"] = (503, "upstream connect error")

    harness.kube.faults.append(silence)
    await harness.until(lambda: bool(submission_mark(harness)))
    harness.kube.faults.remove(silence)
    assert harness.status.get("jobStatus", "") == ""


@pytest.mark.acceptance("rayjob", 19, 23, 24)
@pytest.mark.parametrize("mode", MODES)
async def test_a_job_runs_and_its_cluster_goes(mode: str) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode, shutdownAfterJobFinishes=True)
    await harness.until_running()
    cluster = harness.status["rayClusterName"]
    assert harness.clusters == [cluster]
    assert cluster.startswith(f"{NAME}-")
    assert len(cluster) == len(NAME) + 6
    url = f"{cluster}-head-svc.{NAMESPACE}.svc.cluster.local:8265"
    assert harness.status["dashboardURL"] == url
    assert harness.job["metadata"]["finalizers"] == [labels.RAYJOB_FINALIZER]
    assert (harness.submitter is not None) == (mode == "K8sJobMode")
    harness.end()
    await harness.until_state("Complete")
    await harness.until(lambda: not harness.clusters)
    assert harness.status["jobStatus"] == "SUCCEEDED"
    assert harness.status["succeeded"] == 1
    assert harness.status["endTime"]
    assert harness.status["rayJobInfo"]["endTime"]
    assert (harness.submitter is not None) == (mode == "K8sJobMode")
    assert harness.states == ["Initializing", "Running", "Complete"]
    assert harness.starts == [harness.job_id]
    assert not harness.failed


@pytest.mark.acceptance("rayjob", 19)
async def test_names_are_recorded_before_the_cluster_is_created() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_state("Running")
    writes = [str(write) for write in harness.kube.writes()]
    created = next(index for index, write in enumerate(writes) if "RayCluster" in write)
    assert any("RayJob" in write for write in writes[:created])


@pytest.mark.acceptance("rayjob", 26)
@pytest.mark.parametrize("mode", MODES)
async def test_a_failed_job_keeps_its_cluster(mode: str) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode)
    await harness.until_running()
    harness.end("FAILED", "ValueError: no data")
    await harness.until_state("Failed")
    await harness.run(30)
    assert harness.status["reason"] == "AppFailed"
    assert harness.status["message"] == "ValueError: no data"
    assert harness.status["failed"] == 1
    assert harness.clusters
    assert harness.notes("RayJobFailed") == ["The job has failed. AppFailed: ValueError: no data"]


@pytest.mark.acceptance("rayjob", 27)
@pytest.mark.parametrize("mode", MODES)
async def test_a_stopped_job_is_complete_and_counts_for_nothing(mode: str) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode)
    await harness.until_running()
    harness.end("STOPPED", "stopped")
    await harness.until_state("Complete")
    assert harness.status.get("reason", "") == ""
    assert (harness.status["succeeded"], harness.status["failed"]) == (0, 0)


@pytest.mark.acceptance("rayjob", 25)
async def test_a_submitter_may_print_the_end_of_the_log() -> None:
    harness = Harness()
    harness.submitters_flush = False
    harness.apply()
    await harness.until_running()
    harness.end()
    await harness.until(lambda: harness.status["jobStatus"] == "SUCCEEDED")
    await harness.run(20)
    assert harness.state == "Running"
    harness.end_submitter("Complete")
    await harness.until_state("Complete", seconds=2)


@pytest.mark.acceptance("rayjob", 92, 94)
@pytest.mark.parametrize("mode", MODES)
async def test_a_failed_attempt_is_retried_on_a_new_cluster(mode: str) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode, backoffLimit=2)
    names = set[str]()
    for _ in range(3):
        await harness.until_running()
        names.add(harness.status["rayClusterName"])
        assert len(harness.clusters) == 1
        harness.end("FAILED", "out of memory")
        await harness.until(lambda: harness.status.get("jobStatus") != "RUNNING")
    await harness.until_state("Failed")
    assert len(names) == 3
    assert harness.status["failed"] == 3
    assert len(set(harness.starts)) == 3
    assert harness.notes("RayJobRetrying") == [
        "Attempt 1 of 3 has failed. AppFailed: out of memory",
        "Attempt 2 of 3 has failed. AppFailed: out of memory",
    ]


@pytest.mark.acceptance("rayjob", 52, 93)
async def test_a_submitter_that_fails_ends_the_attempt() -> None:
    harness = Harness()
    harness.submitter_fails = True
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.until_state("Failed")
    await harness.until(lambda: not harness.clusters)
    assert harness.status["reason"] == "SubmissionFailed"
    assert harness.status.get("jobStatus", "") == ""
    assert "BackoffLimitExceeded" in harness.status["message"]
    assert harness.submitter is not None


@pytest.mark.acceptance("rayjob", 99, 105)
@pytest.mark.parametrize("mode", MODES)
async def test_a_suspended_job_has_no_cluster_and_resumes(mode: str) -> None:
    harness = Harness()
    spec: Json = {"submissionMode": mode, "shutdownAfterJobFinishes": True}
    harness.apply(**spec)
    await harness.until_running()
    harness.apply(**spec, suspend=True)
    await harness.until_state("Suspended")
    assert not harness.clusters
    assert harness.submitter is None
    harness.apply(**spec)
    await harness.until_running()
    assert harness.states == [
        *("Initializing", "Running", "Suspending", "Suspended"),
        *("Initializing", "Running"),
    ]


@pytest.mark.acceptance("rayjob", 100)
async def test_a_job_that_is_created_suspended_gets_no_cluster() -> None:
    harness = Harness()
    harness.apply(suspend=True, shutdownAfterJobFinishes=True)
    await harness.until_state("Suspended")
    assert not [write for write in harness.kube.writes() if "RayCluster" in str(write)]
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")


@pytest.mark.acceptance("rayjob", 104)
async def test_a_waiting_job_can_be_suspended() -> None:
    harness = Harness()
    spec: Json = {"submissionMode": "InteractiveMode", "shutdownAfterJobFinishes": True}
    harness.apply(**spec)
    await harness.until_state("Waiting")
    harness.apply(**spec, suspend=True)
    await harness.until_state("Suspended")


@pytest.mark.acceptance("rayjob", 67)
async def test_an_interactive_job_waits_for_its_id() -> None:
    harness = Harness()
    harness.apply(submissionMode="InteractiveMode")
    await harness.until_state("Waiting")
    assert harness.job_id == ""
    harness.ray.submit("mine")
    harness.apply(submissionMode="InteractiveMode", jobId="mine")
    await harness.until_running()
    assert harness.job_id == "mine"
    harness.end()
    await harness.until_state("Complete")


@pytest.mark.acceptance("rayjob", 81, 82, 83)
async def test_a_deadline_stops_the_ray_job_and_is_not_retried() -> None:
    harness = Harness()
    harness.apply(activeDeadlineSeconds=20, backoffLimit=2)
    await harness.until_running()
    await harness.until_state("Failed", seconds=30)
    assert harness.status["reason"] == "DeadlineExceeded"
    assert harness.status["jobStatus"] == "RUNNING"
    assert harness.ray.stops == [harness.job_id]
    assert harness.status["failed"] == 1
    assert "Retrying" not in harness.states


@pytest.mark.acceptance("rayjob", 84)
async def test_a_cluster_that_does_not_come_up_ends_at_its_deadline() -> None:
    harness = Harness()
    harness.fake_clusters.holds_pods = True
    harness.apply(preRunningDeadlineSeconds=5)
    await harness.until_state("Failed", seconds=10)
    assert harness.status["reason"] == "PreRunningDeadlineExceeded"


@pytest.mark.acceptance("rayjob", 4)
async def test_an_invalid_name_is_refused_without_objects() -> None:
    harness = Harness()
    name = "a" * 48
    harness.apply(name)
    await harness.run(1)
    body = harness.kube.objects[RAY_JOB.kind, NAMESPACE, name]
    assert body["status"]["jobDeploymentStatus"] == "ValidationFailed"
    assert body["status"]["reason"] == "ValidationFailed"
    assert "no more than 47 characters" in body["status"]["message"]
    assert not body["metadata"].get("finalizers")
    assert harness.reasons() == ["InvalidRayJobMetadata"]
    assert not harness.clusters


@pytest.mark.acceptance("rayjob", 15, 16)
async def test_an_invalid_edit_keeps_the_attempt_until_it_is_corrected() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    cluster = harness.status["rayClusterName"]
    harness.apply(backoffLimit=-1)
    await harness.until_state("ValidationFailed")
    await harness.run(5)
    assert harness.clusters == [cluster]
    assert harness.submitter is not None
    harness.apply()
    await harness.until_state("Running")
    harness.end()
    await harness.until_state("Complete")
    assert harness.starts == [harness.job_id]


async def test_an_invalid_edit_after_the_end_keeps_the_outcome() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    harness.apply(backoffLimit=-1)
    await harness.run(5)
    assert harness.state == "Complete"
    assert "InvalidRayJobSpec" in harness.reasons()


@pytest.mark.acceptance("rayjob", 33)
async def test_the_head_service_of_the_job_selects_its_cluster() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    service = harness.kube.objects[SERVICE.kind, NAMESPACE, f"{NAME}-head-svc"]
    assert service["spec"]["selector"][labels.CLUSTER] == harness.status["rayClusterName"]


@pytest.mark.acceptance("rayjob", 34)
async def test_the_head_service_follows_the_next_attempt() -> None:
    harness = Harness()
    harness.apply(backoffLimit=1)
    await harness.until_running()
    harness.end("FAILED")
    await harness.until(lambda: "Retrying" in harness.states)
    await harness.until_running()
    service = harness.kube.objects[SERVICE.kind, NAMESPACE, f"{NAME}-head-svc"]
    assert service["spec"]["selector"][labels.CLUSTER] == harness.status["rayClusterName"]
    assert "UpdatedService" in harness.reasons()


@pytest.mark.acceptance("rayjob", 35)
@pytest.mark.parametrize("undelivered", [set[str](), {f"{NAME}-head-svc"}])
async def test_a_foreign_head_service_is_left_alone(undelivered: set[str]) -> None:
    harness = Harness()
    harness.undelivered = undelivered
    foreign: Body = {
        "metadata": {
            "name": f"{NAME}-head-svc",
            "namespace": NAMESPACE,
            "labels": {labels.CLUSTER: NAME},
            "ownerReferences": [
                {"kind": "RayCluster", "name": NAME, "uid": "other", "controller": True}
            ],
        },
        "spec": {"selector": {labels.CLUSTER: NAME}, "ports": []},
    }
    harness.kube.put(SERVICE, foreign)
    harness.apply()
    await harness.until_running()
    service = harness.kube.objects[SERVICE.kind, NAMESPACE, f"{NAME}-head-svc"]
    assert service["spec"]["selector"] == {labels.CLUSTER: NAME}
    assert "ObjectNotOwned" in harness.reasons()
    assert not harness.failed
    reads = [each for each in harness.kube.requests if each.kind == SERVICE.kind]
    await harness.run(60)
    new = [each for each in harness.kube.requests if each.kind == SERVICE.kind]
    assert len(new) - len(reads) <= 3


@pytest.mark.acceptance("rayjob", 117)
async def test_a_deleted_job_is_stopped_and_let_go() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    ray, job_id = harness.ray, harness.job_id
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(3)
    assert ray.stops == [job_id]
    assert not harness.kube.all(RAY_JOB)
    assert not harness.clusters


@pytest.mark.acceptance("rayjob", 119)
async def test_a_silent_dashboard_does_not_hold_a_deleted_job() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    harness.is_silent = True
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(3)
    assert not harness.kube.all(RAY_JOB)


@pytest.mark.acceptance("rayjob", 118)
async def test_an_ended_job_is_let_go_without_a_stop() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    ray = harness.ray
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(3)
    assert not ray.stops
    assert not harness.kube.all(RAY_JOB)


@pytest.mark.acceptance("rayjob", 120)
async def test_a_job_of_another_controller_is_left_alone() -> None:
    harness = Harness()
    harness.apply(managedBy="kueue.x-k8s.io/multikueue")
    await harness.run(5)
    assert not harness.status
    assert not harness.kube.writes()


@pytest.mark.acceptance("rayjob", 107)
async def test_the_cluster_goes_after_its_time_to_live() -> None:
    harness = Harness()
    harness.apply(shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=60)
    await harness.until_running()
    harness.end("FAILED")
    await harness.until_state("Failed")
    await harness.run(55)
    assert harness.clusters
    await harness.run(10)
    assert not harness.clusters


@pytest.mark.acceptance("rayjob", 111, 116)
async def test_deletion_rules_are_carried_out_once_each_in_order() -> None:
    harness = Harness()
    rules = [
        {"policy": policy, "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": seconds}}
        for policy, seconds in (("DeleteWorkers", 10), ("DeleteCluster", 30), ("DeleteSelf", 50))
    ]
    harness.apply(deletionStrategy={"deletionRules": rules})
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    await harness.run(15)
    groups = harness.kube.all(RAY_CLUSTER)[0]["spec"]["workerGroupSpecs"]
    assert [group["suspend"] for group in groups] == [True]
    await harness.run(20)
    assert not harness.clusters
    assert harness.kube.all(RAY_JOB)
    await harness.run(25)
    assert not harness.kube.all(RAY_JOB)
    assert harness.reasons().count("UpdatedRayCluster") == 1


@pytest.mark.acceptance("rayjob", 57)
@pytest.mark.parametrize("is_known", [True, False], ids=["after a status", "before any status"])
async def test_a_job_is_not_submitted_again_to_a_new_head(is_known: bool) -> None:
    harness = Harness()
    harness.apply(submissionMode="HTTPMode")
    if is_known:
        await harness.until_running()
    else:
        await until_submitted_without_status(harness)
    harness.replace_head()
    harness.ray.answers.clear()
    await harness.until_state("Failed")
    assert harness.status["reason"] == "AppFailed"
    assert "not submitted again" in harness.status["message"]
    assert len(harness.ray.posts) == 1


@pytest.mark.acceptance("rayjob", 62)
@pytest.mark.parametrize("retries", [0, 1])
async def test_a_submitter_does_not_submit_to_a_new_head_what_ran_before(retries: int) -> None:
    harness = Harness()
    harness.apply(backoffLimit=retries)
    await harness.until_running()
    harness.replace_head()
    await harness.until(lambda: harness.status.get("failed") == 1)
    await harness.run(30)
    assert harness.notes("DeletedRayJobSubmitter")
    assert len(harness.starts) == len(set(harness.starts)) == 1 + retries
    if not retries:
        assert (harness.state, harness.status["reason"]) == ("Failed", "AppFailed")
        assert "not submitted again" in harness.status["message"]


async def test_a_submitter_does_not_run_a_job_again_that_has_succeeded() -> None:
    harness = Harness()
    harness.submitters_flush = False
    harness.apply()
    await harness.until_running()
    harness.end()
    await harness.until(lambda: harness.status["jobStatus"] == "SUCCEEDED")
    harness.replace_head()
    await harness.run(30)
    assert (harness.state, harness.status["succeeded"]) == ("Complete", 1)
    assert harness.starts == [harness.job_id]


@pytest.mark.acceptance("rayjob", 81)
async def test_a_late_submitter_does_not_submit_a_job_whose_deadline_is_over() -> None:
    harness = Harness()
    harness.submitters_wait = True
    harness.apply(activeDeadlineSeconds=5)
    await harness.until_state("Failed")
    harness.submitters_wait = False
    await harness.run(10)
    assert harness.status["reason"] == "DeadlineExceeded"
    assert harness.starts == []


async def test_a_lost_answer_to_a_submission_runs_the_job_once() -> None:
    harness = Harness()
    harness.apply(submissionMode="HTTPMode")
    await harness.until_state("Running")
    harness.ray.answers["GET"] = (503, "upstream connect error")
    await harness.run(10)
    harness.ray.answers.clear()
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    assert harness.starts == [harness.job_id]


async def test_a_refusal_is_about_the_spec_that_was_submitted() -> None:
    harness = Harness()
    harness.fake_clusters.holds_pods = True
    harness.apply(submissionMode="HTTPMode", runtimeEnvYAML="typo: 1")
    await harness.until(lambda: bool(harness.clusters))
    harness.ray.refusal = "ValueError: runtime_env: no such field"

    def edit_meanwhile(request: Request) -> errors.RaybusError | None:
        if not harness.ray.posts or request.subresource != "status":
            return None
        harness.kube.faults.remove(edit_meanwhile)
        harness.ray.refusal = None
        harness.apply(submissionMode="HTTPMode")
        return errors.Conflict("the object has been modified")

    harness.kube.faults.append(edit_meanwhile)
    harness.fake_clusters.holds_pods = False
    await harness.until_running()
    assert "Failed" not in harness.states


@pytest.mark.parametrize("container", ["ray-head", "log-shipper"])
async def test_only_another_ray_container_counts_as_another_head(container: str) -> None:
    harness = Harness()
    harness.apply(submissionMode="HTTPMode")
    await until_submitted_without_status(harness)
    head = harness.kube.objects[POD.kind, NAMESPACE, f"{harness.status['rayClusterName']}-head"]
    restarted = {"name": container, "restartCount": 1}
    status = {**head["status"], "containerStatuses": [restarted]}
    harness.kube.set_status(POD, NAMESPACE, head["metadata"]["name"], status)
    harness.ray.forget()
    harness.ray.answers.clear()
    await harness.run(5)
    is_another = container == "ray-head"
    assert harness.state == ("Failed" if is_another else "Running")


async def test_a_refused_submission_fails_with_rays_reason() -> None:
    harness = Harness()
    harness.fake_clusters.holds_pods = True
    harness.apply(submissionMode="HTTPMode")
    await harness.until(lambda: bool(harness.clusters))
    harness.ray.refusal = "ValueError: runtime_env: no such field"
    harness.fake_clusters.holds_pods = False
    await harness.until_state("Failed")
    assert harness.status["reason"] == "SubmissionFailed"
    assert "no such field" in harness.status["message"]


@pytest.mark.acceptance("rayjob", 73, 74)
async def test_a_silent_dashboard_fails_the_job_after_its_timeout() -> None:
    harness = Harness()
    harness.apply(submissionMode="HTTPMode", backoffLimit=2)
    await harness.until_running()
    harness.is_silent = True
    await harness.until(lambda: "jobStatusCheckFailureStartTime" in harness.status, seconds=5)
    harness.is_silent = False
    await harness.until(lambda: "jobStatusCheckFailureStartTime" not in harness.status, seconds=10)
    harness.is_silent = True
    await harness.until_state("Failed", seconds=320)
    assert harness.status["reason"] == "JobStatusCheckTimeoutExceeded"
    assert harness.status["failed"] == 1


@pytest.mark.acceptance("rayjob", 88)
async def test_a_job_that_ended_during_a_pause_of_the_operator_has_succeeded() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    harness.end()
    harness.end_submitter("Complete")
    harness.clock.advance(60)
    harness.restart()
    await harness.until_state("Complete")
    assert harness.status["succeeded"] == 1


@pytest.mark.acceptance("rayjob", 91)
async def test_a_job_without_its_submitter_goes_on() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    await harness.kube.delete(JOB, NAMESPACE, NAME)
    await harness.run(5)
    assert harness.state == "Running"
    harness.end()
    await harness.until_state("Complete")


async def test_a_submitter_that_is_deleted_before_it_submits_is_created_again() -> None:
    harness = Harness()
    harness.apply()
    await harness.until(lambda: harness.submitter is not None)
    await harness.kube.delete(JOB, NAMESPACE, NAME)
    harness.ray.forget()
    harness.starts.clear()
    await harness.until_running()
    assert harness.starts == [harness.job_id]


@pytest.mark.acceptance("rayjob", 41)
async def test_a_deleted_cluster_is_created_again_under_its_name() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_state("Running")
    name = harness.status["rayClusterName"]
    first = harness.kube.all(RAY_CLUSTER)[0]["metadata"]["uid"]
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, name)
    await harness.until(lambda: harness.clusters == [name])
    assert harness.kube.all(RAY_CLUSTER)[0]["metadata"]["uid"] != first


@pytest.mark.acceptance("rayjob", 36, 37, 38)
async def test_a_selected_cluster_runs_the_job_and_stays() -> None:
    harness = Harness()
    spec: Json = {
        "rayClusterSpec": None,
        "clusterSelector": {labels.CLUSTER: SHARED_CLUSTER},
        "shutdownAfterJobFinishes": True,
    }
    harness.apply(**spec)
    await harness.until(lambda: "RayClusterNotFound" in harness.reasons())
    assert harness.state == "Initializing"
    await harness.add_shared_cluster()
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    await harness.run(10)
    assert SHARED_CLUSTER in harness.clusters


@pytest.mark.acceptance("rayjob", 29)
async def test_the_status_of_the_cluster_is_mirrored() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    name = harness.status["rayClusterName"]
    cluster = harness.kube.objects[RAY_CLUSTER.kind, NAMESPACE, name]
    status = {**cluster["status"], "maxWorkerReplicas": 7}
    harness.kube.set_status(RAY_CLUSTER, NAMESPACE, name, status)
    await harness.until(
        lambda: harness.status["rayClusterStatus"].get("maxWorkerReplicas") == 7, seconds=5
    )


@pytest.mark.acceptance("rayjob", 72)
async def test_an_entrypoint_of_several_commands_is_told() -> None:
    harness = Harness()
    harness.apply(entrypoint="echo a && echo b")
    await harness.until_running()
    assert len(harness.notes("EntrypointRunsInShell")) == 1
    assert harness.submitter is not None
    script = harness.submitter["spec"]["template"]["spec"]["containers"][0]["args"][0]
    assert "-- bash -c 'echo a && echo b' ;" in script


@pytest.mark.parametrize(
    "state", ["Initializing", "Running", "Retrying", "Suspending", "Complete", "Failed"]
)
async def test_a_forged_status_reaches_no_cluster_of_another_owner(state: str) -> None:
    harness = Harness()
    harness.apply("victim")
    await harness.until(lambda: bool(harness.clusters))
    await harness.run(3)
    victim = harness.kube.objects[RAY_JOB.kind, NAMESPACE, "victim"]["status"]
    harness.apply(submissionMode="HTTPMode", shutdownAfterJobFinishes=True)
    forged = {**victim, "jobDeploymentStatus": state, "endTime": "2026-01-01T12:00:00Z"}
    harness.kube.set_status(RAY_JOB, NAMESPACE, NAME, forged)
    await harness.run(10)
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(5)
    assert victim["rayClusterName"] in harness.clusters
    ray = harness.dashboards.head(f"{victim['rayClusterName']}-head-svc").jobs
    assert ray.stops == []
    assert [post["submission_id"] for post in ray.posts] == [victim["jobId"]]
    assert (RAY_JOB.kind, NAMESPACE, NAME) not in harness.kube.objects


@pytest.mark.parametrize("state", ["Initializing", "Running", "Retrying", "Suspending", "Complete"])
@pytest.mark.parametrize("name", ["../../secrets/x", "a b", "x" * 253])
async def test_an_impossible_name_in_the_status_holds_no_deleted_job(state: str, name: str) -> None:
    harness = Harness()
    meta = {"finalizers": [labels.RAYJOB_FINALIZER]}
    harness.apply(meta=meta, shutdownAfterJobFinishes=True)
    forged = {"jobDeploymentStatus": state, "rayClusterName": name, "jobId": "../../x"}
    harness.kube.set_status(RAY_JOB, NAMESPACE, NAME, forged)
    await harness.run(3)
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(3)
    assert not harness.kube.all(RAY_JOB)


async def test_a_job_at_rest_writes_nothing() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    await harness.run(5)
    before = len(harness.kube.writes())
    await harness.run(120)
    assert harness.kube.writes()[before:] == []


async def test_a_cron_job_starts_a_job_at_its_time() -> None:
    harness = Harness(config=Config(gates=BETA | {FeatureGate.CRON_JOB}))
    harness.apply_cron_job(schedule="*/1 * * * *")
    await harness.run(130)
    jobs = [body["metadata"]["name"] for body in harness.kube.all(RAY_JOB)]
    assert len(jobs) == 2
    assert all(name.startswith("nightly-") for name in jobs)


@pytest.mark.acceptance("rayjob", 127)
async def test_without_its_gate_a_cron_job_is_ignored() -> None:
    harness = Harness()
    harness.apply_cron_job(schedule="*/1 * * * *")
    await harness.run(70)
    assert not harness.kube.writes()


async def test_the_status_says_why_a_job_does_not_start() -> None:
    harness = Harness()
    harness.fake_clusters.holds_pods = True
    harness.apply()
    await harness.until(lambda: bool(harness.kube.all(POD)))
    head = f"{harness.status['rayClusterName']}-head"
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image ray:typo"}
    state = {"waiting": waiting}
    status = {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": state}]}
    harness.kube.set_status(POD, NAMESPACE, head, status)
    await harness.until(lambda: "cannot be pulled" in harness.status.get("message", ""), seconds=5)
    assert harness.state == "Initializing"
    assert len(harness.notes("RayJobNotStarted")) == 1
    harness.fake_clusters.holds_pods = False
    await harness.until_state("Running")
    assert not harness.status.get("message")


@pytest.mark.acceptance("rayjob", 121, 122)
async def test_volcano_gets_a_pod_group_before_the_cluster_and_frees_it_after() -> None:
    harness = Harness(config=Config(batch_scheduler="volcano"))
    spec: Json = {"shutdownAfterJobFinishes": True}
    harness.apply(**spec)
    await harness.until_running()
    created = [str(write) for write in harness.kube.writes() if str(write).startswith("create")]
    kinds = [line.split()[1] for line in created]
    assert kinds.index("PodGroup") < kinds.index("RayCluster")
    group = harness.kube.all(VOLCANO_POD_GROUP)[0]
    assert group["metadata"]["name"] == f"ray-{NAME}-pg"
    assert group["spec"]["minMember"] > 1
    harness.apply(**spec, suspend=True)
    await harness.until_state("Suspended")
    assert harness.kube.all(VOLCANO_POD_GROUP)[0]["spec"]["minMember"] == 0
    assert harness.reasons().count("BatchSchedulerCleanedUp") == 1
    harness.apply(**spec)
    await harness.until_running()
    assert harness.kube.all(VOLCANO_POD_GROUP)[0]["spec"]["minMember"] > 1


async def test_a_corrected_label_is_noticed_though_the_generation_stays() -> None:
    harness = Harness(config=Config(batch_scheduler="volcano"))
    mode = {TOPOLOGY_MODE: "hard"}
    harness.apply(meta={"labels": {**mode, TOPOLOGY_TIER: "high"}})
    await harness.until_state("ValidationFailed")
    corrected = {**harness.job["metadata"], "labels": {**mode, TOPOLOGY_TIER: "1"}}
    harness.kube.put(RAY_JOB, {**harness.job, "metadata": corrected})
    await harness.until_running()


@pytest.mark.acceptance("rayjob", 124)
async def test_kai_refuses_a_submitter_that_comes_later() -> None:
    harness = Harness(config=Config(batch_scheduler="kai-scheduler"))
    harness.apply()
    await harness.until_state("ValidationFailed")
    assert "set spec.submissionMode" in harness.status["message"]
