"""A RayService's cluster that is to drain gracefully: its ConfigMap comes before its pods."""

from common import labels
from common.kube.resources import CONFIG_MAP
from scenario.cluster_reconciler.harness import Harness
from support.builders.ray_cluster import a_container, a_head, a_ray_cluster, a_template

FOR_A_SERVICE = {labels.ORIGIN_KIND: "RayService", labels.ORIGIN_NAME: "demo"}
ON = {labels.GRACEFUL_DRAIN: "true"}


async def test_the_config_map_stands_before_any_pod() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(labels=FOR_A_SERVICE, annotations=ON))
    await harness.settle()
    kinds = [each.kind for each in harness.kube.requests if each.verb == "create"]
    assert kinds.index("ConfigMap") < kinds.index("Pod")
    (found,) = harness.kube.all(CONFIG_MAP, "ns")
    assert (found["metadata"]["name"], list(found["data"])) == ("c-drain", ["raybus_drain.py"])
    assert found["metadata"]["ownerReferences"][0]["name"] == "c"


async def test_a_config_map_of_another_is_not_taken_for_ours() -> None:
    harness = Harness()
    theirs = harness.kube.put(
        CONFIG_MAP, {"metadata": {"name": "c-drain", "namespace": "ns"}, "data": {"a": "b"}}
    )
    harness.apply(a_ray_cluster(labels=FOR_A_SERVICE, annotations=ON))
    await harness.settle()
    assert harness.names() == []
    assert harness.conditions()["ReplicaFailure"] == ("True", "GracefulDrainUnavailable")
    (note,) = [
        note for _, reason, note in harness.kube.events() if reason == "GracefulDrainUnavailable"
    ]
    assert (
        "ConfigMap ns/c-drain already exists and is not owned by this RayCluster; rename it, or set"
        in note
    )
    assert harness.kube.all(CONFIG_MAP, "ns") == [theirs]
    harness.apply(a_ray_cluster(labels=FOR_A_SERVICE, annotations={labels.GRACEFUL_DRAIN: "false"}))
    await harness.settle()
    assert len(harness.names()) == 4
    assert "ReplicaFailure" not in harness.conditions()


async def test_a_users_own_callback_wins_and_is_reported() -> None:
    callback = {"name": "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "value": "theirs.callback"}
    head = a_head(template=a_template(a_container("ray-head", env=[callback])))
    harness = Harness()
    harness.apply(a_ray_cluster(head=head, labels=FOR_A_SERVICE, annotations=ON))
    await harness.settle()
    assert harness.kube.all(CONFIG_MAP, "ns") == []
    assert len(harness.pods()) > 1
    assert "GracefulDrainUnavailable" in [reason for _, reason, _ in harness.kube.events()]
