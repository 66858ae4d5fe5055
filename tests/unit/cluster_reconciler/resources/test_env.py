"""The environment of Ray containers, whole and in order (spec raycluster §11.9; acceptance cases 91, 96, 103)."""

import pytest

from cluster_reconciler.config import Config
from common import labels
from common.api.opaque import Json
from common.version import OPERATOR_VERSION
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import env_of, head_of, ray_container_of, ray_start_of, worker_of

FQDN = "c-head-svc.ns.svc.cluster.local"


def literal(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


IDENTITY = [
    from_field("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
    from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
    from_field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
    from_field("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
]


def test_head_in_order() -> None:
    template = a_template(a_container(env=[literal("MINE", "1")]))
    cluster = a_ray_cluster(head=a_head(template=template))
    pod = head_of(cluster, Config(default_container_envs=(literal("OURS", "2"),)))
    assert ray_container_of(pod)["env"] == [
        literal("MINE", "1"),
        literal("OURS", "2"),
        *IDENTITY,
        literal("KUBERAY_GEN_RAY_START_CMD", ray_start_of(pod)),
        literal("RAY_PORT", "6379"),
        literal("RAY_ADDRESS", "127.0.0.1:6379"),
        literal("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
        literal(
            "RAY_USAGE_STATS_EXTRA_TAGS",
            f"kuberay_version={OPERATOR_VERSION};kuberay_crd=RayCluster",
        ),
        literal("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"),
    ]


def test_worker_of_a_service_in_order() -> None:
    pod = worker_of(a_ray_cluster(labels={labels.ORIGIN_KIND: "RayService"}))
    assert ray_container_of(pod)["env"] == [
        literal("FQ_RAY_IP", FQDN),
        literal("RAY_IP", "c-head-svc"),
        *IDENTITY,
        literal("KUBERAY_GEN_RAY_START_CMD", ray_start_of(pod)),
        literal("RAY_PORT", "6379"),
        literal("RAY_timeout_ms_task_wait_for_death_info", "0"),
        literal("RAY_gcs_server_request_timeout_seconds", "5"),
        literal("RAY_SERVE_KV_TIMEOUT_S", "5"),
        literal("RAY_ADDRESS", f"{FQDN}:6379"),
        literal("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
        literal("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "RAY_PORT",
        "RAY_ADDRESS",
        "RAY_USAGE_STATS_KUBERAY_IN_USE",
        "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE",
        "RAY_timeout_ms_task_wait_for_death_info",
        "RAY_gcs_server_request_timeout_seconds",
        "RAY_SERVE_KV_TIMEOUT_S",
        "OURS",
    ],
)
def test_case_103_what_the_template_names_is_not_added(name: str) -> None:
    template = a_template(
        a_container(
            env=[{"name": name, "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]
        )
    )
    cluster = a_ray_cluster(
        head=a_head(template=template), labels={labels.ORIGIN_KIND: "RayService"}
    )
    env = ray_container_of(
        head_of(cluster, Config(default_container_envs=(literal("OURS", "2"),)))
    )["env"]
    assert [entry["name"] for entry in env].count(name) == 1


@pytest.mark.parametrize(
    "name", ["RAY_CLUSTER_NAME", "KUBERAY_GEN_RAY_START_CMD", "RAY_USAGE_STATS_EXTRA_TAGS"]
)
def test_what_is_ours_is_added_again_and_wins(name: str) -> None:
    template = a_template(a_container(env=[literal(name, "theirs")]))
    env = ray_container_of(head_of(a_ray_cluster(head=a_head(template=template))))["env"]
    assert [entry["name"] for entry in env].count(name) == 2
    assert env_of({"env": env})[name] != "theirs"


@pytest.mark.parametrize(
    ("creator", "kind"),
    [
        ("RayJob", "RayJob"),
        ("RayService", "RayService"),
        ("Deployment", "RayCluster"),
        ("", "RayCluster"),
    ],
)
def test_usage_tags_name_the_creator(creator: str, kind: str) -> None:
    pod = head_of(a_ray_cluster(labels={labels.ORIGIN_KIND: creator}), Config(version="x"))
    tags = env_of(ray_container_of(pod))["RAY_USAGE_STATS_EXTRA_TAGS"]
    assert tags == f"kuberay_version=x;kuberay_crd={kind}"


@pytest.mark.parametrize("is_head", [True, False])
def test_init_containers_learn_the_head_without_a_duplicate_check(*, is_head: bool) -> None:
    init = a_container("init", env=[literal("RAY_IP", "theirs")])
    template = a_template(a_container(), init_containers=[init])
    cluster = a_ray_cluster(head=a_head(template=template), groups=[a_group(template=template)])
    pod = head_of(cluster) if is_head else worker_of(cluster)
    assert pod["spec"]["initContainers"][0]["env"] == [
        literal("RAY_IP", "theirs"),
        literal("FQ_RAY_IP", FQDN),
        literal("RAY_IP", "c-head-svc"),
    ]
