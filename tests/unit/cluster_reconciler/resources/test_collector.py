"""The collector of the history server (spec raycluster §11.16); pods as a whole are compared with KubeRay's in an integration test."""

import pytest

from cluster_reconciler.config import Config
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from support.builders.ray_cluster import a_container, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import containers_of, env_of, head_of, ray_container_of, worker_of

ON = Config(gates=BETA | {FeatureGate.HISTORY_SERVER})
NAME = "ray-history-collector"
STORE: Json = {"name": "STORAGE_BACKEND", "value": "X"}
LOGS: Json = {"name": "ray-logs", "mountPath": "/tmp/ray"}


def collected(
    *, env: list[Json] | None = None, labels: dict[str, str] | None = None, **options: object
) -> RayCluster:
    given = {"image": "collector:1", "env": env or [STORE], **options}
    return a_ray_cluster(labels=labels, history_server_options={"collectorOptions": given})


def collector_of(cluster: RayCluster) -> Json:
    return containers_of(head_of(cluster, ON))[NAME]


def test_head_and_workers_have_it_with_their_role() -> None:
    cluster = collected()
    found = {
        env_of(containers_of(pod)[NAME])["RAY_ROLE"]: env_of(containers_of(pod)[NAME])
        for pod in (head_of(cluster, ON), worker_of(cluster, ON))
    }
    fqdn = "c-head-svc.ns.svc.cluster.local"
    assert {role: each["FQ_RAY_IP"] for role, each in found.items()} == {
        "Head": fqdn,
        "Worker": fqdn,
    }
    assert "RAY_DASHBOARD_ADDRESS" in found["Head"]
    assert "RAY_DASHBOARD_ADDRESS" not in found["Worker"]


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({}, "imagePullPolicy", "IfNotPresent"),
        ({"imagePullPolicy": "Always"}, "imagePullPolicy", "Always"),
        ({}, "image", "collector:1"),
        ({"resources": {}}, "resources", {}),
        (
            {},
            "resources",
            {
                "limits": {"cpu": "200m", "memory": "256Mi"},
                "requests": {"cpu": "50m", "memory": "64Mi"},
            },
        ),
    ],
)
def test_its_options(options: Json, field: str, value: object) -> None:
    assert collector_of(collected(**options))[field] == value


def test_the_users_environment_comes_after_ours_and_may_name_the_dashboard() -> None:
    own: Json = {"name": "RAY_DASHBOARD_ADDRESS", "value": "http://other"}
    names = [each["name"] for each in collector_of(collected(env=[STORE, own]))["env"]]
    assert names[-2:] == ["STORAGE_BACKEND", "RAY_DASHBOARD_ADDRESS"]
    assert names.count("RAY_DASHBOARD_ADDRESS") == 1


def test_the_owner_is_that_of_the_labels() -> None:
    labels = {"ray.io/originated-from-crd": "RayService", "ray.io/originated-from-cr-name": "s"}
    found = env_of(collector_of(collected(labels=labels)))
    assert (found["OWNER_KIND"], found["OWNER_NAME"]) == ("RayService", "s")
    assert {"OWNER_KIND", "OWNER_NAME"}.isdisjoint(env_of(collector_of(collected())))


def test_ray_shares_its_logs_and_writes_its_events_to_it() -> None:
    head = head_of(collected(), ON)
    assert all(LOGS in each["volumeMounts"] for each in containers_of(head).values())
    found = env_of(ray_container_of(head))
    assert found["RAY_enable_ray_event"] == "true"
    assert (
        found["RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR"]
        == "http://localhost:8084/v1/events"
    )
    types = found["RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES"]
    assert (
        found["RAY_DASHBOARD_AGGREGATOR_AGENT_PUBLISHER_HTTP_ENDPOINT_EXPOSABLE_EVENT_TYPES"]
        == types
    )
    assert len(types.split(",")) == 10


def test_a_setting_of_the_users_own_stays() -> None:
    own: Json = {"name": "RAY_enable_ray_event", "value": "false"}
    options = {"collectorOptions": {"image": "i", "env": [STORE]}}
    cluster = a_ray_cluster(
        head=a_head(template=a_template(a_container(env=[own]))), history_server_options=options
    )
    entries = [
        each
        for each in ray_container_of(head_of(cluster, ON))["env"]
        if each["name"] == own["name"]
    ]
    assert entries == [own]


def test_while_the_gate_is_off_there_is_none_and_a_container_of_its_name_is_like_any_other() -> (
    None
):
    template = a_template(a_container(), a_container(NAME))
    for cluster in (collected(), a_ray_cluster(head=a_head(template=template))):
        head = head_of(cluster)
        assert "RAY_enable_ray_event" not in env_of(ray_container_of(head))
        assert not any(each["name"] == "ray-logs" for each in head["spec"]["volumes"])
    assert NAME not in containers_of(head_of(collected()))
