"""What a graceful drain adds to pods, where it is added, and when it is left out."""

import shlex
import subprocess
from typing import Any

import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources import graceful_drain, head_pod, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from common import labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from support.builders.ray_cluster import (
    a_container,
    a_group,
    a_head,
    a_ray_cluster,
    a_template,
    first_group,
)

FOR_A_SERVICE = {labels.ORIGIN_KIND: "RayService", labels.ORIGIN_NAME: "demo"}
ON = {labels.GRACEFUL_DRAIN: "true"}


def a_service_cluster(annotations: dict[str, str] = ON, **fields: Any) -> RayCluster:
    return a_ray_cluster(labels=FOR_A_SERVICE, annotations=annotations, **fields)


def pods(cluster: RayCluster, config: Config) -> list[Body]:
    worker = worker_pod.build(
        cluster, first_group(cluster), config, name="w", replica=ReplicaIndex(0)
    )
    return [head_pod.build(cluster, config, name="h"), worker]


@pytest.mark.parametrize(
    ("why", "cluster", "default", "expected"),
    [
        ("nobody asks", a_service_cluster({}), False, False),
        ("the annotation asks", a_service_cluster(), False, True),
        ("the operator's default asks", a_service_cluster({}), True, True),
        ("the annotation wins", a_service_cluster({labels.GRACEFUL_DRAIN: "false"}), True, False),
        ("no RayService made the cluster", a_ray_cluster(annotations=ON), True, False),
    ],
)
def test_the_deciding_source(why: str, cluster: RayCluster, default: bool, expected: bool) -> None:
    assert graceful_drain.is_on(cluster, Config(drains_gracefully=default)) is expected, why


def test_pods_stay_as_they_are_when_it_is_off() -> None:
    switched_off = a_service_cluster({labels.GRACEFUL_DRAIN: "false"})
    assert pods(switched_off, Config(drains_gracefully=True)) == pods(
        a_service_cluster({}), Config()
    )


def test_head_and_workers_get_the_module_and_their_own_annotations() -> None:
    for pod in pods(a_service_cluster(), Config()):
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        mounts = {
            each["name"]: each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]
        }
        assert volumes["raybus-drain"]["configMap"] == {"name": "c-drain"}
        assert volumes["raybus-pod"]["downwardAPI"]["items"] == [
            {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}
        ]
        assert (mounts["raybus-drain"], mounts["raybus-pod"]) == (
            "/etc/raybus/drain",
            "/etc/raybus/pod",
        )
        assert pod["metadata"]["annotations"][labels.GRACEFUL_DRAIN] == "true"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/etc/raybus/drain raybus_drain.middlewares"),
        ({"PYTHONPATH": "/app"}, "/app:/etc/raybus/drain raybus_drain.middlewares"),
        ({graceful_drain.CALLBACK: "theirs.callback"}, "/etc/raybus/drain theirs.callback"),
    ],
)
def test_what_the_image_sets_is_kept(environ: dict[str, str], expected: str) -> None:
    line: str = pods(a_service_cluster(), Config())[0]["spec"]["containers"][0]["args"][0]
    exports = line.partition("ulimit")[0]
    shown = f'{exports} echo "$PYTHONPATH" "${graceful_drain.CALLBACK}"'
    done = subprocess.run(
        ["/bin/sh", "-c", shown], env=environ, capture_output=True, text=True, check=True
    )
    assert shlex.split(done.stdout) == shlex.split(expected)


def test_the_users_own_command_runs_first() -> None:
    container = a_container("ray-head", command=["echo hello"])
    line = pods(a_service_cluster(head=a_head(template=a_template(container))), Config())[0][
        "spec"
    ]["containers"][0]
    assert line["args"][0].startswith(" echo hello  && export PYTHONPATH=")


def test_the_blocking_reason_is_named() -> None:
    own_callback = a_container(
        "ray-worker", env=[{"name": graceful_drain.CALLBACK, "value": "theirs.callback"}]
    )
    own_start = a_container("ray-head", args=["ray start --head --block"])
    rows = [
        (
            a_service_cluster(groups=[a_group(template=a_template(own_callback))]),
            "worker group g sets RAY_SERVE_",
        ),
        (
            a_service_cluster(head=a_head(template=a_template(own_start))),
            "the head group runs ray start itself",
        ),
        (
            a_service_cluster({**ON, labels.OVERWRITE_CONTAINER_CMD: "true"}),
            "the head group runs ray start itself",
        ),
    ]
    for cluster, problem in rows:
        assert (graceful_drain.find_obstacle(cluster) or "").startswith(problem)
        assert not any(
            labels.GRACEFUL_DRAIN in pod["metadata"]["annotations"]
            for pod in pods(cluster, Config())
        )
