"""The head Service of a RayJob (spec rayjob §4, §7.4)."""

from typing import Any

import msgspec
import pytest

from common.api.core import Service
from common.api.opaque import Body, Json
from job_reconciler.resources import head_service
from job_reconciler.settings import Config
from support.builders.ray_cluster import a_head, a_ray_cluster
from support.builders.ray_job import a_ray_job

JOB = a_ray_job()
FIRST, SECOND = a_ray_cluster("train-first"), a_ray_cluster("train-second")
LABELS = {
    "ray.io/originated-from-cr-name": "train",
    "ray.io/originated-from-crd": "RayJob",
    "ray.io/node-type": "head",
    "ray.io/identifier": "train-head",
}
OWNER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "name": "train",
    "uid": "uid-of-train",
    "controller": True,
    "blockOwnerDeletion": True,
}
FOREIGN = {**OWNER, "kind": "RayCluster", "uid": "uid-of-another"}


def _selector(cluster: str) -> Json:
    return {
        "ray.io/cluster": cluster,
        "ray.io/node-type": "head",
        "ray.io/identifier": f"{cluster}-head",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }


def _service(body: Body, **metadata: Any) -> Service:
    """Return a Service as the API server stores it."""
    own = {**body["metadata"], "resourceVersion": "7", **metadata}
    return msgspec.convert({**body, "metadata": own}, Service)


@pytest.mark.acceptance("rayjob", 33)
def test_the_service_selects_the_head_of_the_cluster() -> None:
    body = head_service.build(JOB, FIRST, Config())
    assert body["metadata"] == {
        "name": "train-head-svc",
        "namespace": "ns",
        "labels": LABELS,
        "annotations": {},
        "ownerReferences": [OWNER],
    }
    assert body["spec"]["selector"] == _selector("train-first")
    assert body["spec"]["clusterIP"] == "None"


def test_a_custom_service_gives_its_annotations_and_spec() -> None:
    own = {
        "metadata": {"name": "mine", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"type": "LoadBalancer"},
    }
    body = head_service.build(JOB, a_ray_cluster("c", head=a_head(head_service=own)), Config())
    assert body["metadata"]["name"] == "train-head-svc"
    assert (body["metadata"]["labels"], body["metadata"]["annotations"]) == (LABELS, {"c": "d"})
    assert body["spec"]["type"] == "LoadBalancer"


@pytest.mark.parametrize("has_cluster_ip", [False, True])
def test_a_cluster_ip_can_be_configured(*, has_cluster_ip: bool) -> None:
    spec = head_service.build(JOB, FIRST, Config(head_service_has_cluster_ip=has_cluster_ip))[
        "spec"
    ]
    assert ("clusterIP" in spec) is not has_cluster_ip


@pytest.mark.acceptance("rayjob", 34)
def test_the_next_attempt_gets_the_service() -> None:
    have = _service(head_service.build(JOB, FIRST, Config()))
    assert head_service.repointed(have, JOB, FIRST, Config()) is None
    patch = head_service.repointed(have, JOB, SECOND, Config())
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["spec"]["selector"] == _selector("train-second")
    assert patch["spec"]["ports"]
    assert "clusterIP" not in patch["spec"]


@pytest.mark.acceptance("rayjob", 34)
def test_labels_that_the_next_head_lacks_are_removed_from_the_selector() -> None:
    body = head_service.build(JOB, FIRST, Config())
    body["spec"]["selector"]["team"] = "a"
    patch = head_service.repointed(_service(body), JOB, SECOND, Config())
    assert patch is not None
    assert patch["spec"]["selector"] == {**_selector("train-second"), "team": None}


@pytest.mark.acceptance("rayjob", 35)
@pytest.mark.parametrize(
    ("metadata", "is_ours"),
    [
        pytest.param({"ownerReferences": [FOREIGN]}, False, id="a cluster's own head Service"),
        pytest.param({"ownerReferences": [{**OWNER, "uid": "x"}]}, False, id="an earlier RayJob's"),
        pytest.param({"ownerReferences": [], "labels": {}}, False, id="a user's own"),
        pytest.param({"ownerReferences": []}, True, id="left by orphaning"),
        pytest.param({"labels": {}}, True, id="ours without its labels"),
    ],
)
def test_a_service_of_another_owner_is_left_alone(metadata: Json, *, is_ours: bool) -> None:
    have = _service(head_service.build(JOB, FIRST, Config()), **metadata)
    assert head_service.belongs_to(have, JOB) is is_ours
    assert (head_service.repointed(have, JOB, SECOND, Config()) is not None) is is_ours
