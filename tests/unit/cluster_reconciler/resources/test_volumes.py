"""Shared memory and logs (spec raycluster §11.11; acceptance cases 97, 98)."""

from common.api.opaque import Json
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import containers_of, head_of, ray_container_of, worker_of
from support.tables import cases

SHM = {"name": "shared-mem", "mountPath": "/dev/shm"}
LOGS = {"name": "ray-logs", "mountPath": "/tmp/ray"}
LOGS_VOLUME: Json = {"name": "ray-logs", "emptyDir": {}}


@cases(
    ("resources", "empty_dir"),
    {
        "no limit known": ({}, {"medium": "Memory"}),
        "case 97: as much as the container may use": (
            {"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}},
            {"medium": "Memory", "sizeLimit": "2Gi"},
        ),
        "else as much as it asks for": (
            {"requests": {"memory": "1Gi"}},
            {"medium": "Memory", "sizeLimit": "1Gi"},
        ),
    },
)
def test_case_97_shared_memory(resources: Json, empty_dir: Json) -> None:
    pod = worker_of(
        a_ray_cluster(groups=[a_group(template=a_template(a_container(resources=resources)))])
    )
    assert pod["spec"]["volumes"] == [{"name": "shared-mem", "emptyDir": empty_dir}]
    assert ray_container_of(pod)["volumeMounts"] == [SHM]


def test_case_97_no_shared_memory_with_a_plasma_directory() -> None:
    pod = worker_of(a_ray_cluster(groups=[a_group(ray_start_params={"plasma-directory": ""})]))
    assert "volumes" not in pod["spec"]
    assert "volumeMounts" not in ray_container_of(pod)


def test_what_the_user_mounts_there_is_kept() -> None:
    mount = {"name": "mine", "mountPath": "/dev/shm"}
    volume: Json = {"name": "mine", "emptyDir": {}}
    template = a_template(a_container(volume_mounts=[mount]), volumes=[volume])
    pod = worker_of(a_ray_cluster(groups=[a_group(template=template)]))
    assert pod["spec"]["volumes"] == [volume]
    assert ray_container_of(pod)["volumeMounts"] == [mount]


def test_a_volume_of_our_name_is_used() -> None:
    volume: Json = {"name": "shared-mem", "hostPath": {"path": "/x"}}
    pod = worker_of(a_ray_cluster(groups=[a_group(template=a_template(volumes=[volume]))]))
    assert pod["spec"]["volumes"] == [volume]
    assert ray_container_of(pod)["volumeMounts"] == [SHM]


def test_case_98_logs_are_shared_with_the_autoscaler() -> None:
    pod = head_of(a_ray_cluster(enable_in_tree_autoscaling=True))
    assert pod["spec"]["volumes"] == [
        {"name": "shared-mem", "emptyDir": {"medium": "Memory"}},
        LOGS_VOLUME,
    ]
    assert ray_container_of(pod)["volumeMounts"] == [SHM, LOGS]
    assert containers_of(pod)["autoscaler"]["volumeMounts"] == [LOGS]


def test_logs_that_the_user_mounts_are_shared_by_the_autoscaler_all_the_same() -> None:
    mount = {"name": "mine", "mountPath": "/tmp/ray"}
    template = a_template(
        a_container(volume_mounts=[mount]), volumes=[{"name": "mine", "emptyDir": {}}]
    )
    pod = head_of(a_ray_cluster(head=a_head(template=template), enable_in_tree_autoscaling=True))
    assert ray_container_of(pod)["volumeMounts"] == [mount, SHM]
    assert containers_of(pod)["autoscaler"]["volumeMounts"] == [LOGS]
