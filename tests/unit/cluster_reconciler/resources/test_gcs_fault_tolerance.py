"""GCS fault tolerance on pods, its volume and its cleanup (acceptance cases 35, 37, 39, 42, 105)."""

from typing import Any

import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources import gcs_fault_tolerance, head_pod, owner
from common import labels
from common.api.opaque import Json
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import (
    containers_of,
    env_of,
    head_of,
    ray_container_of,
    ray_start_of,
    worker_of,
)
from support.tables import cases

FROM_SECRET: Json = {"secretKeyRef": {"name": "s", "key": "k"}}
ROCKSDB: Json = {"backend": "rocksdb"}
TIMEOUT = "RAY_gcs_rpc_server_reconnect_timeout_s"


def redis_env(cluster: Any) -> list[Json]:
    """Return the head's variables that fault tolerance adds, in order."""
    env = ray_container_of(head_of(cluster))["env"]
    return [entry for entry in env if "REDIS" in entry["name"] or "storage" in entry["name"]]


@cases(
    ("cluster", "annotations"),
    {
        "off": (a_ray_cluster(), {labels.FT_ENABLED: "false"}),
        "case 42: no namespace given, so the uid": (
            a_ray_cluster(gcs_fault_tolerance_options={}),
            {labels.FT_ENABLED: "true", labels.EXTERNAL_STORAGE_NAMESPACE: "uid-of-c"},
        ),
        "a namespace in the options": (
            a_ray_cluster(gcs_fault_tolerance_options={"externalStorageNamespace": "n"}),
            {labels.FT_ENABLED: "true", labels.EXTERNAL_STORAGE_NAMESPACE: "n"},
        ),
        "an annotation, even an empty one": (
            a_ray_cluster(
                annotations={labels.FT_ENABLED: "True", labels.EXTERNAL_STORAGE_NAMESPACE: ""}
            ),
            {labels.FT_ENABLED: "true", labels.EXTERNAL_STORAGE_NAMESPACE: ""},
        ),
        "case 35: no namespace": (
            a_ray_cluster(gcs_fault_tolerance_options=ROCKSDB),
            {labels.FT_ENABLED: "true"},
        ),
    },
)
def test_head_annotations(cluster: Any, annotations: dict[str, str]) -> None:
    assert head_of(cluster)["metadata"]["annotations"] == annotations
    assert worker_of(cluster)["metadata"]["annotations"] == {}


@cases(
    ("options", "env", "flags"),
    {
        "even an empty address is set": ({}, [{"name": "RAY_REDIS_ADDRESS", "value": ""}], []),
        "case 42: credentials stay in the environment": (
            {
                "redisAddress": "r:1",
                "redisUsername": {"value": "u"},
                "redisPassword": {"valueFrom": FROM_SECRET},
            },
            [
                {"name": "RAY_REDIS_ADDRESS", "value": "r:1"},
                {"name": "REDIS_USERNAME", "value": "u"},
                {"name": "REDIS_PASSWORD", "valueFrom": FROM_SECRET},
            ],
            ["--redis-password=$REDIS_PASSWORD", "--redis-username=$REDIS_USERNAME"],
        ),
    },
)
def test_case_42_options(options: Json, env: list[Json], flags: list[str]) -> None:
    cluster = a_ray_cluster(gcs_fault_tolerance_options=options)
    assert redis_env(cluster) == [
        {"name": "RAY_external_storage_namespace", "value": "uid-of-c"},
        *env,
    ]
    assert [part for part in ray_start_of(head_of(cluster)).split() if "redis" in part] == flags


def test_case_105_annotation_and_a_password_as_param() -> None:
    cluster = a_ray_cluster(
        head=a_head(ray_start_params={"redis-password": "p"}),
        annotations={labels.FT_ENABLED: "true"},
    )
    assert redis_env(cluster) == [
        {"name": "RAY_external_storage_namespace", "value": "uid-of-c"},
        {"name": "REDIS_PASSWORD", "value": "p"},
    ]
    assert env_of(ray_container_of(worker_of(cluster)))[TIMEOUT] == "600"
    assert TIMEOUT not in env_of(ray_container_of(head_of(cluster)))


def test_case_105_a_timeout_of_the_template_is_kept() -> None:
    template = a_template(a_container(env=[{"name": TIMEOUT, "value": "9"}]))
    cluster = a_ray_cluster(groups=[a_group(template=template)], gcs_fault_tolerance_options={})
    assert env_of(ray_container_of(worker_of(cluster)))[TIMEOUT] == "9"


@cases(
    ("storage", "mount", "claim"),
    {
        "case 35: our claim": (None, {}, "c-gcs-pvc"),
        "the user's claim": ({"claimName": "mine", "subPath": "p"}, {"subPath": "p"}, "mine"),
    },
)
def test_case_35_rocksdb(storage: Json | None, mount: Json, claim: str) -> None:
    options = ROCKSDB | ({"storage": storage} if storage else {})
    pod = head_of(a_ray_cluster(gcs_fault_tolerance_options=options))
    assert ray_container_of(pod)["volumeMounts"][0] == {
        "name": "gcs-storage",
        "mountPath": "/data/gcs",
        **mount,
    }
    assert pod["spec"]["volumes"][0] == {
        "name": "gcs-storage",
        "persistentVolumeClaim": {"claimName": claim},
    }
    assert ray_container_of(pod)["env"][:2] == [
        {"name": "RAY_gcs_storage", "value": "rocksdb"},
        {"name": "RAY_gcs_storage_path", "value": "/data/gcs"},
    ]


@cases(
    ("storage", "spec", "is_owned"),
    {
        "case 35: the default": (
            {},
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            True,
        ),
        "case 39: retained, so without an owner": (
            {
                "size": "2Gi",
                "storageClassName": "",
                "accessModes": ["ReadWriteMany"],
                "deletionPolicy": "Retain",
            },
            {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "2Gi"}},
                "storageClassName": "",
            },
            False,
        ),
    },
)
def test_case_35_claim(storage: Json, spec: Json, *, is_owned: bool) -> None:
    cluster = a_ray_cluster(gcs_fault_tolerance_options={**ROCKSDB, "storage": storage})
    owners: Json = {"ownerReferences": owner.build_references(cluster)} if is_owned else {}
    assert gcs_fault_tolerance.build_claim(cluster) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "c-gcs-pvc",
            "namespace": "ns",
            "labels": {"ray.io/cluster": "c"},
            **owners,
        },
        "spec": spec,
    }


def a_cleanup_job(options: Json | None = None) -> Json:
    template = a_template(
        a_container("ray-head", ports=[{"name": "gcs-server", "containerPort": 6379}]),
        a_container("user"),
        init_containers=[a_container("init")],
        restart_policy="Always",
    )
    cluster = a_ray_cluster(
        head=a_head(template=template),
        enable_in_tree_autoscaling=True,
        gcs_fault_tolerance_options=options or {},
    )
    return head_pod.build_cleanup_job(cluster, Config())


def test_case_37_job() -> None:
    job = a_cleanup_job()
    size = {"cpu": "200m", "memory": "256Mi"}
    container = ray_container_of(job["spec"]["template"])
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == (
        "batch/v1",
        "Job",
        "c-redis-cleanup",
    )
    assert job["metadata"]["ownerReferences"] == owner.build_references(a_ray_cluster())
    assert job["metadata"]["labels"]["ray.io/node-type"] == "redis-cleanup"
    assert job["spec"]["template"]["metadata"]["labels"] == job["metadata"]["labels"]
    assert job["spec"] | {"template": {}} == {
        "backoffLimit": 0,
        "activeDeadlineSeconds": 300,
        "template": {},
    }
    assert list(containers_of(job["spec"]["template"])) == ["ray-head"]
    assert list(containers_of(job["spec"]["template"], "initContainers")) == ["init"]
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert container["resources"] == {"limits": size, "requests": size}
    assert container.keys().isdisjoint({"livenessProbe", "readinessProbe"})
    assert container["env"][-2:] == [
        {"name": "RAY_redis_db_connect_retries", "value": "120"},
        {"name": "RAY_redis_db_connect_wait_milliseconds", "value": "500"},
    ]


@pytest.mark.parametrize(
    ("template_name", "is_fixed", "name"),
    [
        pytest.param(None, False, None, id="a drawn name"),
        pytest.param("mine", False, "mine", id="a name of the user"),
        pytest.param("mine", True, "c-head", id="a fixed name"),
    ],
)
def test_the_template_of_the_job_keeps_the_name_of_the_head(
    template_name: str | None, is_fixed: bool, name: str | None
) -> None:
    template = a_template(a_container("ray-head")) | (
        {"metadata": {"name": template_name}} if template_name else {}
    )
    cluster = a_ray_cluster(head=a_head(template=template), gcs_fault_tolerance_options={})
    job = head_pod.build_cleanup_job(cluster, Config(head_pod_name_is_fixed=is_fixed))
    assert job["spec"]["template"]["metadata"].get("name") == name


@pytest.mark.parametrize(
    ("options", "takes_username"),
    [
        pytest.param({}, False, id="an old Ray knows no user names"),
        pytest.param({"redisUsername": {"value": "u"}}, True, id="a user name is passed on"),
    ],
)
def test_case_37_program(options: Json, *, takes_username: bool) -> None:
    container = ray_container_of(a_cleanup_job(options)["spec"]["template"])
    (text,) = container["args"]
    assert container["command"] == ["/bin/bash", "-c", "--"]
    assert ("username=os.environ.get('REDIS_USERNAME', url.username)" in text) == takes_username
    program = text.partition('python -c "')[2].removesuffix('"')
    compile(program, "<cleanup>", "exec")


def test_a_long_cluster_name_still_names_a_job() -> None:
    assert (
        head_pod.build_cleanup_job(a_ray_cluster("a" + "b" * 52), Config())["metadata"]["name"]
        == "b" * 49 + "-redis-cleanup"
    )
