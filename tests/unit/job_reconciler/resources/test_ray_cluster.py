"""The RayCluster of a RayJob (spec rayjob §4, §7.1, §8.5)."""

from typing import Any

import msgspec
import pytest

from common.api.opaque import Body
from common.api.ray_job import SUBMITTER_CONTAINER, RayJob
from job_reconciler.resources import ray_cluster
from job_reconciler.settings import Config
from support.builders.ray_cluster import a_container, a_head, a_template
from support.builders.ray_job import a_cluster_spec, a_ray_job

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
STATUS = {"rayClusterName": "train-abcde", "jobId": "train-fghjk"}


def _job(**spec: Any) -> RayJob:
    job = a_ray_job(status=STATUS, annotations={"foo": "bar", LAST_APPLIED: "{}"}, **spec)
    metadata = msgspec.structs.replace(
        job.metadata, labels={"a": "b", "ray.io/originated-from-crd": "RayCluster"}
    )
    return msgspec.structs.replace(job, metadata=metadata)


def _build(job: RayJob) -> Body:
    return ray_cluster.build(job, Config())


@pytest.mark.acceptance("rayjob", 21)
@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode", "InteractiveMode"])
def test_the_cluster_has_the_labels_and_annotations_of_its_job(mode: str) -> None:
    body = _build(_job(submissionMode=mode))
    assert (body["apiVersion"], body["kind"]) == ("ray.io/v1", "RayCluster")
    assert body["metadata"] == {
        "name": "train-abcde",
        "namespace": "ns",
        "labels": {
            "a": "b",
            "ray.io/originated-from-cr-name": "train",
            "ray.io/originated-from-crd": "RayJob",
            "ray.io/job-submission-mode": mode,
        },
        "annotations": {"foo": "bar", LAST_APPLIED: "{}"},
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


@pytest.mark.acceptance("rayjob", 40)
def test_the_spec_is_that_of_the_job_now() -> None:
    spec = a_cluster_spec(rayVersion="2.53.0", unknown={"field": [1]})
    assert _build(_job(rayClusterSpec=spec))["spec"] == spec


@pytest.mark.acceptance("rayjob", 59)
def test_the_submitter_is_the_last_container_of_the_head() -> None:
    template = a_template(a_container("ray-head"), a_container("log"), node_name="n1")
    spec = a_cluster_spec(headGroupSpec=a_head(template=template))
    job = _job(submissionMode="SidecarMode", rayClusterSpec=spec)
    body = _build(job)
    assert body["metadata"]["labels"]["ray.io/job-submission-mode"] == "SidecarMode"
    assert body["metadata"]["annotations"] == {
        "foo": "bar",
        LAST_APPLIED: "{}",
        "ray.io/disable-provisioned-head-restart": "true",
    }
    pod = body["spec"]["headGroupSpec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["nodeName"] == "n1"
    assert [each["name"] for each in pod["containers"]] == ["ray-head", "log", "ray-job-submitter"]
    assert job.raw_cluster_spec == spec  # the job itself is not changed


@pytest.mark.acceptance("rayjob", 54)
def test_a_sidecar_gets_the_token_of_its_cluster() -> None:
    spec = a_cluster_spec(authOptions={"mode": "token"})
    body = _build(_job(submissionMode="SidecarMode", rayClusterSpec=spec))
    sidecar = body["spec"]["headGroupSpec"]["template"]["spec"]["containers"][-1]
    assert sidecar["name"] == SUBMITTER_CONTAINER
    secret = {"secretKeyRef": {"name": "train-abcde", "key": "auth_token"}}
    assert {"name": "RAY_AUTH_TOKEN", "valueFrom": secret} in sidecar["env"]
