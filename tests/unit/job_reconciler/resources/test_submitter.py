"""The Kubernetes Job and the sidecar that submit a job (spec rayjob §8.2, §8.3, §8.5)."""

from typing import Any

import pytest

from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.api.ray_job import RayJob
from common.feature_gates import BETA, FeatureGate
from job_reconciler.resources import submitter
from job_reconciler.settings import Config
from support.builders.ray_cluster import a_container, a_ray_cluster, a_template
from support.builders.ray_job import a_ray_job

ADDRESS = "train-abcde-head-svc.ns.svc.cluster.local:8265"
STATUS: Json = {"dashboardURL": ADDRESS, "jobId": "train-fghjk", "rayClusterName": "train-abcde"}
CLUSTER = a_ray_cluster("train-abcde")
MARKS = {
    "ray.io/originated-from-cr-name": "train",
    "ray.io/originated-from-crd": "RayJob",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
ENVIRONMENT = [
    {"name": "PYTHONUNBUFFERED", "value": "1"},
    {"name": "RAY_DASHBOARD_ADDRESS", "value": ADDRESS},
    {"name": "RAY_JOB_SUBMISSION_ID", "value": "train-fghjk"},
]
TOKEN = [
    {"name": "RAY_AUTH_MODE", "value": "token"},
    {
        "name": "RAY_AUTH_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "train-abcde", "key": "auth_token"}},
    },
]


def _job(**spec: Any) -> RayJob:
    return a_ray_job(status=STATUS, **spec)


def _build(job: RayJob, cluster: RayCluster = CLUSTER, **config: Any) -> Body:
    return submitter.build(job, cluster, Config(**config))


def _container(job: RayJob, cluster: RayCluster = CLUSTER, **config: Any) -> Json:
    return _build(job, cluster, **config)["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.acceptance("rayjob", 46)
def test_without_a_template_the_submitter_has_the_image_of_the_head() -> None:
    pod = _build(_job())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"
    assert pod.keys() == {"containers", "restartPolicy"}
    assert container["name"] == "ray-job-submitter"
    assert container["image"] == "rayproject/ray:2.52.0"
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "200Mi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    assert container["command"] == ["/bin/bash", "-ce", "--"]
    assert len(container["args"]) == 1


def test_the_shell_can_be_a_login_shell() -> None:
    assert _container(_job(), uses_login_shell=True)["command"] == ["/bin/bash", "-cel", "--"]


def _with_template(**container: Any) -> RayJob:
    own = a_container("mine", **container)
    template = a_template(own, a_container("log"), labels={"a": "b"}, restart_policy="OnFailure")
    return _job(submitterPodTemplate=template)


@pytest.mark.acceptance("rayjob", 47)
def test_a_users_command_is_kept() -> None:
    container = _container(_with_template(command=["/submitter"], args=["--x"]))
    assert (container["command"], container["args"]) == (["/submitter"], ["--x"])
    assert (container["name"], container["env"]) == ("mine", ENVIRONMENT)


@pytest.mark.acceptance("rayjob", 47)
@pytest.mark.parametrize("command", [[], None])
def test_arguments_without_a_command_are_replaced(command: list[str] | None) -> None:
    container = _container(_with_template(command=command, args=["--x"]))
    assert container["command"] == ["/bin/bash", "-ce", "--"]
    assert container["args"] == _container(_job())["args"]


def test_the_rest_of_a_template_is_kept_and_the_users_object_is_not_changed() -> None:
    job = _with_template()
    before = job.raw_spec["submitterPodTemplate"]
    pod = _build(job)["spec"]["template"]
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert pod["spec"]["containers"][1] == a_container("log")
    assert pod["metadata"]["labels"] == {"a": "b", **MARKS}
    assert job.spec.submitter_pod_template == before
    assert "env" not in before["spec"]["containers"][0]


@pytest.mark.acceptance("rayjob", 48)
def test_a_missing_restart_policy_is_left_for_the_api_server_to_refuse() -> None:
    job = _job(submitterPodTemplate=a_template(a_container("mine")))
    assert "restartPolicy" not in _build(job)["spec"]["template"]["spec"]


@pytest.mark.acceptance("rayjob", 49)
@pytest.mark.parametrize(
    ("config", "limit"), [(None, 2), ({}, 2), ({"backoffLimit": 1}, 1), ({"backoffLimit": 0}, 0)]
)
def test_retries_of_the_submission(config: Json | None, limit: int) -> None:
    spec = _build(_job(submitterConfig=config))["spec"]
    assert spec["backoffLimit"] == limit
    assert spec.keys() == {"backoffLimit", "template"}


@pytest.mark.acceptance("rayjob", 50)
def test_the_pods_of_the_job_are_labelled_and_know_their_job() -> None:
    template = _build(_job())["spec"]["template"]
    assert template["metadata"]["labels"] == MARKS
    assert template["spec"]["containers"][0]["env"] == ENVIRONMENT


def test_the_job_belongs_to_the_ray_job() -> None:
    assert _build(a_ray_job(status=STATUS, annotations={"a": "b"}))["metadata"] == {
        "name": "train",
        "namespace": "ns",
        "labels": MARKS,
        "ownerReferences": [
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayJob",
                "name": "train",
                "uid": "uid-of-train",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


@pytest.mark.acceptance("rayjob", 51)
def test_metadata_reach_a_selected_cluster_of_any_version() -> None:
    job = _job(clusterSelector={"ray.io/cluster": "chosen"}, metadata={"a": "b"})
    assert '--metadata-json "{\\"a\\":\\"b\\"}" ' in _container(job)["args"][0]


@pytest.mark.acceptance("rayjob", 54)
def test_a_token_of_the_cluster_is_given_to_the_submitter() -> None:
    cluster = a_ray_cluster("train-abcde", auth_options={"mode": "token"})
    assert _container(_job(), cluster)["env"] == ENVIRONMENT + TOKEN
    own = [{"name": "RAY_AUTH_MODE", "value": "disabled"}]
    assert _container(_with_template(env=own), cluster)["env"] == own + ENVIRONMENT + TOKEN[1:]


def test_a_kubernetes_token_comes_in_a_volume() -> None:
    auth = {"mode": "token", "enableK8sTokenAuth": True}
    cluster = a_ray_cluster("chosen", auth_options=auth)
    pod = _build(_job(clusterSelector={"ray.io/cluster": "chosen"}), cluster)["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert {"name": "RAY_ENABLE_K8S_TOKEN_AUTH", "value": "true"} in container["env"]
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["ray-token"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["ray-token"]


@pytest.mark.acceptance("rayjob", 59)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_sidecar_is_restarted_only_behind_its_gate(*, restarts: bool) -> None:
    gates = BETA | {FeatureGate.SIDECAR_SUBMITTER_RESTART} if restarts else BETA
    container = submitter.build_sidecar(
        _job(submissionMode="SidecarMode"), CLUSTER, Config(gates=gates)
    )
    assert container["name"] == "ray-job-submitter"
    assert container.get("restartPolicy") == ("OnFailure" if restarts else None)
    assert ("if ! ray job status" in container["args"][0]) is restarts
    assert container["env"] == ENVIRONMENT
    assert "volumeMounts" not in container
