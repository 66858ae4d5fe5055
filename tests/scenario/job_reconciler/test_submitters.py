"""Submitters whose pods fail or are deleted, and submitters of the user (spec rayjob §8, §10.3)."""

import pytest

from common import labels
from common.api.opaque import Json
from common.api.ray_job import SUBMITTER_CONTAINER
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import POD, RAY_CLUSTER
from job_reconciler.settings import Config
from scenario.job_reconciler.harness import NAME, Harness
from support.builders.ray_service import NAMESPACE

RESTARTS = Config(gates=BETA | {FeatureGate.SIDECAR_SUBMITTER_RESTART})
LIGHTWEIGHT: Json = {
    "name": "submitter",
    "image": "kuberay/submitter:v1.7.0",
    "command": ["/submitter"],
    "args": ["--entrypoint-num-cpus", "1", "--", "python", "counter.py"],
}
TEMPLATE: Json = {"spec": {"restartPolicy": "Never", "containers": [LIGHTWEIGHT]}}


def a_submitter_pod(harness: Harness, name: str) -> Json:
    """Return a pod of the submitter's Kubernetes Job, as the Job controller creates it."""
    assert harness.submitter is not None
    uid = harness.submitter["metadata"]["uid"]
    owner = {"kind": "Job", "name": NAME, "uid": uid, "controller": True}
    marks = {**harness.submitter["spec"]["template"]["metadata"]["labels"], "job-name": NAME}
    meta = {"name": name, "namespace": NAMESPACE, "labels": marks, "ownerReferences": [owner]}
    return {"metadata": meta, "status": {"phase": "Running", "podIP": f"ip-{name}"}}


@pytest.mark.acceptance("rayjob", 53)
async def test_a_submitter_whose_pod_is_replaced_follows_the_same_job() -> None:
    harness = Harness()
    harness.apply()
    harness.submitters_flush = False
    await harness.until_running()
    harness.kube.put(POD, a_submitter_pod(harness, "train-1"))
    before = len(harness.kube.writes())
    await harness.kube.delete(POD, NAMESPACE, "train-1")
    await harness.run(5)
    harness.kube.put(POD, a_submitter_pod(harness, "train-2"))
    await harness.run(5)
    assert harness.kube.writes()[before + 1 :] == []
    assert harness.state == "Running"
    harness.end()
    harness.submitters_flush = True
    await harness.until_state("Complete")
    assert harness.status["jobStatus"] == "SUCCEEDED"
    assert harness.starts == [harness.job_id]


@pytest.mark.acceptance("rayjob", 56)
async def test_a_job_that_fails_without_a_submitter_has_no_kubernetes_job() -> None:
    harness = Harness()
    harness.apply(submissionMode="HTTPMode")
    await harness.until_running()
    harness.end("FAILED", "Job entrypoint command failed with exit code 1")
    await harness.until_state("Failed")
    assert harness.status["reason"] == "AppFailed"
    assert harness.status["jobStatus"] == "FAILED"
    assert not [write for write in harness.kube.writes() if "create Job" in write]


@pytest.mark.acceptance("rayjob", 60)
@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [("SUCCEEDED", "Complete", ""), ("FAILED", "Failed", "AppFailed")],
)
async def test_a_sidecar_submits_the_job(end: str, state: str, reason: str) -> None:
    harness = Harness()
    harness.apply(submissionMode="SidecarMode", entrypointNumCpus=1, shutdownAfterJobFinishes=True)
    await harness.until_running()
    head = harness.kube.objects[POD.kind, NAMESPACE, f"{harness.status['rayClusterName']}-head"]
    sidecar = head["spec"]["containers"][-1]
    assert sidecar["name"] == SUBMITTER_CONTAINER
    assert " --entrypoint-num-cpus 1.000000 " in sidecar["args"][-1]
    harness.end(end)
    await harness.until_state(state)
    assert harness.status["jobStatus"] == end
    assert harness.status.get("reason", "") == reason
    assert harness.submitter is None
    assert harness.starts == [harness.job_id]
    await harness.run(1)
    assert not harness.clusters


@pytest.mark.acceptance("rayjob", 61)
async def test_a_sidecars_job_ends_with_its_head() -> None:
    harness = Harness()
    harness.apply(submissionMode="SidecarMode")
    await harness.until_running()
    head = f"{harness.status['rayClusterName']}-head"
    ran = harness.job_id
    await harness.kube.delete(POD, NAMESPACE, head)
    harness.ray.forget()
    await harness.until_state("Failed", seconds=10)
    assert harness.status["reason"] == "AppFailed"
    assert harness.status["message"] == "Ray head pod not found."
    await harness.run(30)
    assert (POD.kind, NAMESPACE, head) not in harness.kube.objects
    assert harness.starts == [ran]


@pytest.mark.acceptance("rayjob", 62)
@pytest.mark.parametrize("condition", ["Failed", "Complete"])
async def test_a_job_with_a_submitter_fails_with_its_head(condition: str) -> None:
    """The log stream of the submitter breaks off, with an error or as if the job had ended."""
    harness = Harness()
    harness.submitters_flush = False
    harness.apply(submitterConfig={"backoffLimit": 0})
    await harness.until_running()
    ran = harness.job_id
    head = f"{harness.status['rayClusterName']}-head"
    old = harness.kube.objects[POD.kind, NAMESPACE, head]["metadata"]["uid"]
    harness.end_submitter(condition)
    harness.replace_head()
    assert harness.kube.objects[POD.kind, NAMESPACE, head]["metadata"]["uid"] != old
    await harness.until_state("Failed", seconds=40)
    assert harness.status["reason"] == "AppFailed"
    annotations = harness.kube.all(RAY_CLUSTER)[0]["metadata"]["annotations"]
    assert labels.DISABLE_PROVISIONED_HEAD_RESTART not in annotations
    assert harness.submitter is not None
    assert harness.submitter["spec"]["backoffLimit"] == 0
    assert harness.starts == [ran]


@pytest.mark.acceptance("rayjob", 63)
async def test_a_sidecar_that_is_restarted_follows_the_same_job() -> None:
    harness = Harness(config=RESTARTS)
    harness.apply(submissionMode="SidecarMode")
    await harness.until_running()
    job_id = harness.job_id
    harness.end_sidecar(exit_code=137)
    await harness.run(5)
    assert harness.state == "Running"
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    running: Json = {"state": {"running": {}}, "restartCount": 1, "lastState": killed}
    harness.end_sidecar(exit_code=0, **running)
    await harness.run(60)
    assert harness.state == "Running"
    harness.end()
    harness.end_sidecar(exit_code=0, restartCount=1, lastState=killed)
    await harness.until_state("Complete")
    assert harness.job_id == job_id
    assert harness.starts == [job_id]
    assert "Failed" not in harness.states


@pytest.mark.acceptance("rayjob", 69)
async def test_a_submitter_of_the_user_gets_the_address_and_the_id() -> None:
    harness = Harness()
    harness.apply(submitterPodTemplate=TEMPLATE)
    await harness.until_running()
    assert harness.submitter is not None
    (container,) = harness.submitter["spec"]["template"]["spec"]["containers"]
    assert {field: container[field] for field in LIGHTWEIGHT} == LIGHTWEIGHT
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["RAY_JOB_SUBMISSION_ID"] == harness.job_id
    assert environment["RAY_DASHBOARD_ADDRESS"] == harness.status["dashboardURL"]
    assert "://" not in environment["RAY_DASHBOARD_ADDRESS"]
    harness.end()
    await harness.until_state("Complete")
    assert harness.status["jobStatus"] == "SUCCEEDED"


@pytest.mark.acceptance("rayjob", 70)
async def test_a_submitter_of_the_user_that_fails_ends_the_attempt() -> None:
    harness = Harness()
    harness.submitter_fails = True
    harness.apply(submitterPodTemplate=TEMPLATE, submitterConfig={"backoffLimit": 2})
    await harness.until_state("Failed")
    assert harness.status["reason"] == "SubmissionFailed"
    assert harness.status.get("jobStatus", "") == ""
    assert harness.submitter is not None
    # Kubernetes starts 3 pods: the first one and as many as the limit allows.
    assert harness.submitter["spec"]["backoffLimit"] == 2
    assert len([write for write in harness.kube.writes() if "create Job" in write]) == 1
    assert harness.starts == []


@pytest.mark.acceptance("rayjob", 71)
async def test_a_second_pod_of_a_users_submitter_is_refused_by_ray_and_follows_the_job() -> None:
    harness = Harness()
    harness.submitters_flush = False
    harness.apply(submitterPodTemplate=TEMPLATE)
    await harness.until_running()
    harness.kube.put(POD, a_submitter_pod(harness, "train-1"))
    await harness.kube.delete(POD, NAMESPACE, "train-1")
    harness.kube.put(POD, a_submitter_pod(harness, "train-2"))
    job_id = harness.job_id
    code, text = harness.ray.submit(job_id)
    assert (code, "Please use a different submission_id" in text) == (500, True)
    await harness.run(30)
    assert harness.state == "Running"
    assert harness.status["jobStatus"] == "RUNNING"
    harness.end()
    harness.end_submitter("Complete")
    await harness.until_state("Complete")
    assert harness.starts == [job_id]
