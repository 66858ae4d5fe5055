"""The RayJob of options or of a manifest."""

import pytest

from common import errors
from raybus_cli import manifests
from raybus_cli.jobs import manifest
from raybus_cli.jobs.manifest import ClusterOptions

MANIFEST = """apiVersion: ray.io/v1
kind: RayJob
metadata: {name: train, labels: {team: a}}
spec: {entrypoint: python a.py, clusterSelector: {ray.io/cluster: shared}}
"""


def test_the_options_describe_a_cluster_that_raybus_accepts() -> None:
    options = ClusterOptions(image="r:1", workers=2, cpus="4", memory="8Gi", gpus=1)
    body = manifest.build("train", "python a.py", options, "pip: [torch]")
    manifest.check(body)
    spec = body["spec"]
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    (head,) = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert (spec["entrypoint"], spec["runtimeEnvYAML"]) == ("python a.py", "pip: [torch]")
    assert [group[field] for field in ("replicas", "minReplicas", "maxReplicas")] == [2, 2, 2]
    assert worker["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
    assert head["resources"]["limits"] == {"cpu": "4", "memory": "8Gi"}
    assert {worker["image"], head["image"]} == {"r:1"}


def test_without_workers_the_head_has_the_gpus() -> None:
    body = manifest.build("train", "python a.py", ClusterOptions(workers=0, gpus=2))
    cluster = body["spec"]["rayClusterSpec"]
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert "workerGroupSpecs" not in cluster
    assert head["resources"]["requests"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize(
    ("words", "entrypoint"),
    [
        (["python", "a.py", "--name", "two words"], "python a.py --name 'two words'"),
        (["python a.py && python b.py"], "python a.py && python b.py"),
    ],
)
def test_the_job_gets_its_arguments_as_they_were_typed(words: list[str], entrypoint: str) -> None:
    assert manifest.format_entrypoint(words) == entrypoint


def test_a_manifest_keeps_what_no_argument_replaces() -> None:
    documents = manifests.parse(MANIFEST, "job.yaml")
    assert manifest.adopt(documents, None, "") == documents[0].body
    changed = manifest.adopt(documents, "other", "python b.py")
    assert changed["metadata"] == {"name": "other", "labels": {"team": "a"}}
    assert changed["spec"] == {**documents[0].body["spec"], "entrypoint": "python b.py"}


@pytest.mark.parametrize(
    "text", ["kind: RayCluster\nmetadata: {name: a}", f"{MANIFEST}---\n{MANIFEST}", ""]
)
def test_another_manifest_than_one_rayjob_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidSpec, match="has to contain one RayJob"):
        manifest.adopt(manifests.parse(text, "job.yaml"), None, "")


@pytest.mark.parametrize("name", ["Train", "t" * 48, ""])
def test_a_name_that_raybus_refuses_is_refused_before_the_creation(name: str) -> None:
    with pytest.raises(errors.InvalidSpec, match="name should be"):
        manifest.check(manifest.build(name, "python a.py", ClusterOptions()))


def test_a_runtime_environment_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(errors.InvalidSpec, match="RuntimeEnvYAML"):
        manifest.check(manifest.build("train", "python a.py", ClusterOptions(), "[a, b"))
