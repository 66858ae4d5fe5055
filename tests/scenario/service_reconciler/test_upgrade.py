"""Changes to a running service; spec rayservice §6, §7.2, §7.3, acceptance 18-38."""

from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from common.ray import spec_hash
from common.version import OPERATOR_VERSION
from scenario.service_reconciler.harness import Harness, a_running_harness, trace_of
from scenario.upgrade.harness import GATEWAY_API, Pair
from service_reconciler.settings import Config
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config, a_strategy
from support.golden import Golden

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")


def cluster(harness: Harness, name: str) -> Json:
    return harness.kube.objects[(RAY_CLUSTER.kind, "default", name)]


def goal(harness: Harness) -> str:
    """Return the hash of what the RayService asks for."""
    return spec_hash.service_goal_hash(harness.service["spec"]["rayClusterConfig"])


def a_template(name: str = "ray-worker", **spec: Any) -> Json:
    """Return the pod template of the builders, with more fields in its spec."""
    return {"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.52.0"}], **spec}}


@pytest.mark.acceptance("rayservice", 16)
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(a_cluster_config(a_group(replicas=5)), id="replicas"),
        pytest.param(a_cluster_config(a_group(minReplicas=0)), id="minReplicas"),
        pytest.param(a_cluster_config(a_group(maxReplicas=9)), id="maxReplicas"),
        pytest.param(
            a_cluster_config(a_group(replicas=5, scaleStrategy={"workersToDelete": ["a"]})),
            id="workersToDelete",
        ),
        pytest.param(
            a_cluster_config(a_group(template=a_template(tolerations=[{"key": "gpu"}]))),
            id="tolerations",
        ),
        pytest.param(
            a_cluster_config(
                headGroupSpec={
                    "rayStartParams": {},
                    "template": a_template("ray-head", tolerations=[{"key": "gpu"}]),
                }
            ),
            id="tolerations of the head",
        ),
        pytest.param(
            a_cluster_config(a_group(template=a_template(schedulingGates=[{"name": "kueue"}]))),
            id="schedulingGates",
        ),
        pytest.param(a_cluster_config(suspend=True), id="suspend"),
    ],
)
async def test_16_what_the_hash_passes_over_needs_no_cluster(config: Json) -> None:
    harness = await a_running_harness()
    before, done = cluster(harness, harness.active), len(harness.kube.writes())
    harness.apply(config=config)
    await harness.run(30)
    assert (harness.pending, cluster(harness, harness.active)) == ("", before)
    assert harness.kube.writes()[done:] == [
        "update RayService/status demo"
    ]  # its observedGeneration


@pytest.mark.acceptance("rayservice", 18)
async def test_18_an_appended_group_is_added_to_the_active_cluster() -> None:
    harness = await a_running_harness()
    active = harness.active
    harness.apply(config=a_cluster_config(a_group(), a_group("large")))
    await harness.run(5)
    assert (harness.active, harness.pending) == (active, "")
    assert [each["groupName"] for each in cluster(harness, active)["spec"]["workerGroupSpecs"]] == [
        "small",
        "large",
    ]
    annotations: Json = cluster(harness, active)["metadata"]["annotations"]
    assert (annotations[labels.NUM_WORKER_GROUPS], annotations[labels.SPEC_HASH]) == (
        "2",
        goal(harness),
    )
    assert "UpdatedRayCluster" in harness.reasons()


@pytest.mark.acceptance("rayservice", 18)
async def test_18_the_autoscalers_replicas_survive_an_appended_group() -> None:
    harness = await a_running_harness(config=a_cluster_config(enableInTreeAutoscaling=True))
    stored = cluster(harness, harness.active)
    scaled = {**stored["spec"], "workerGroupSpecs": [a_group(replicas=4)]}
    harness.kube.put(RAY_CLUSTER, {**stored, "spec": scaled})
    harness.apply(
        config=a_cluster_config(a_group(), a_group("large"), enableInTreeAutoscaling=True)
    )
    await harness.run(5)
    assert [
        each["replicas"] for each in cluster(harness, harness.active)["spec"]["workerGroupSpecs"]
    ] == [4, 1]


@pytest.mark.acceptance("rayservice", 19)
async def test_19_swapped_groups_need_a_new_cluster() -> None:
    harness = await a_running_harness(config=a_cluster_config(a_group("a"), a_group("b")))
    harness.apply(config=a_cluster_config(a_group("b"), a_group("a")))
    await harness.reconcile()
    assert harness.pending in harness.clusters
    assert harness.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")


@pytest.mark.acceptance("rayservice", 20)
async def test_20_another_versions_annotations_are_renewed_and_nothing_else() -> None:
    config = a_cluster_config(enableInTreeAutoscaling=True)
    harness = await a_running_harness(config=config)
    scaled = {**config, "workerGroupSpecs": [a_group(replicas=4)]}
    stored = {**cluster(harness, harness.active), "spec": scaled}
    old = {
        labels.KUBERAY_VERSION: "v1.5.1",
        labels.SPEC_HASH: "other algorithm",
        labels.NUM_WORKER_GROUPS: "1",
    }
    harness.kube.put(
        RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": old}}
    )
    await harness.run(5)
    assert harness.pending == ""
    assert cluster(harness, harness.active)["spec"] == scaled
    assert not [each for each in harness.kube.writes() if each.startswith("delete")]
    renewed = cluster(harness, harness.active)["metadata"]["annotations"]
    assert renewed[labels.KUBERAY_VERSION] == OPERATOR_VERSION
    assert renewed[labels.SPEC_HASH] == goal(harness)


@pytest.mark.acceptance("rayservice", 21)
async def test_21_a_change_that_comes_with_another_version_is_an_upgrade() -> None:
    harness = await a_running_harness()
    stored = cluster(harness, harness.active)
    annotations = {**stored["metadata"]["annotations"], labels.KUBERAY_VERSION: "v1.5.1"}
    harness.kube.put(
        RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": annotations}}
    )
    harness.apply(config=GREEN)
    await harness.reconcile()
    assert harness.pending
    assert cluster(harness, harness.active)["spec"] == stored["spec"]


@pytest.mark.acceptance("rayservice", 22)
async def test_22_a_group_appended_in_mid_upgrade_goes_to_the_pending_cluster() -> None:
    harness = await a_running_harness()
    harness.holds_pods = True
    harness.apply(config=GREEN)
    await harness.run(1)
    pending = harness.pending
    harness.apply(
        config=a_cluster_config(a_group(), a_group("large"), image="rayproject/ray:2.53.0")
    )
    await harness.run(1)
    assert harness.pending == pending
    assert len(cluster(harness, pending)["spec"]["workerGroupSpecs"]) == 2
    assert "Updated the pending RayCluster default/" + pending in [
        note for _, _, note in harness.kube.events()
    ]
    harness.holds_pods = False
    await harness.until(lambda: harness.is_complete() and harness.active == pending)


@pytest.mark.acceptance("rayservice", 23)
async def test_23_a_queues_suspend_survives_an_update_in_place() -> None:
    harness = await a_running_harness()
    stored = cluster(harness, harness.active)
    harness.kube.put(RAY_CLUSTER, {**stored, "spec": {**stored["spec"], "suspend": True}})
    harness.apply(config=a_cluster_config(a_group(), a_group("large")))
    await harness.run(1)
    assert cluster(harness, harness.active)["spec"]["suspend"] is True


@pytest.mark.acceptance("rayservice", 24)
async def test_24_the_trace_of_an_upgrade(golden: Golden) -> None:
    harness = await a_running_harness(rayClusterDeletionDelaySeconds=5)
    harness.apply(
        config=GREEN, serve=a_serve_config(message="v2"), rayClusterDeletionDelaySeconds=5
    )
    await harness.run(20)
    golden.check("service_reconciler/upgrade.txt", trace_of(harness))


@pytest.mark.acceptance("rayservice", 25)
async def test_25_the_active_cluster_keeps_its_serve_config_and_its_applications_are_still_shown() -> (
    None
):
    harness = await a_running_harness()
    blue = harness.active
    harness.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await harness.until(lambda: bool(harness.pending))
    while harness.pending:
        assert (
            harness.status["activeServiceStatus"]["applicationStatuses"]["app"]["status"]
            == "RUNNING"
        )
        await harness.run(0.25)
    assert len(harness.serve.head(f"{blue}-head-svc").puts) == 1
    green = harness.serve.head(f"{harness.active}-head-svc").puts
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in green] == ["v2"]


@pytest.mark.acceptance("rayservice", 25)
async def test_25_a_restart_in_mid_upgrade_does_not_push_the_new_config_onto_the_old_cluster() -> (
    None
):
    harness = await a_running_harness()
    blue = harness.serve.head(f"{harness.active}-head-svc")
    harness.holds_pods = True
    harness.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await harness.run(2)
    harness.restart()
    blue.restart()  # its head lost all, so it must be given its own config again
    await harness.run(10)
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in blue.puts] == [
        "v1",
        "v1",
    ]


@pytest.mark.acceptance("rayservice", 26)
async def test_26_a_second_change_replaces_the_pending_cluster() -> None:
    harness = await a_running_harness(rayClusterDeletionDelaySeconds=3)
    harness.holds_pods = True
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=3)
    await harness.run(1)
    first = harness.pending
    harness.apply(config=RED, rayClusterDeletionDelaySeconds=3)
    await harness.run(1)
    assert harness.pending not in {"", first}
    assert first in harness.clusters
    await harness.run(6)
    assert first not in harness.clusters
    assert set(harness.clusters) == {harness.active, harness.pending}


@pytest.mark.acceptance("rayservice", 27)
async def test_27_a_revert_gives_the_pending_cluster_up() -> None:
    harness = await a_running_harness(rayClusterDeletionDelaySeconds=1)
    active = harness.active
    harness.holds_pods = True
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=1)
    await harness.run(1)
    harness.apply(rayClusterDeletionDelaySeconds=1)
    await harness.run(5)
    assert (harness.active, harness.pending, harness.selected(), harness.clusters) == (
        active,
        "",
        active,
        [active],
    )
    assert harness.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    assert "UpgradeCancelled" in harness.reasons()


@pytest.mark.acceptance("rayservice", 28)
async def test_28_a_pending_cluster_that_never_serves_changes_nothing_for_users() -> None:
    harness = await a_running_harness()
    active = harness.active
    harness.holds_pods = True
    harness.apply(config=GREEN)
    await harness.run(600)
    assert (harness.active, harness.is_ready(), harness.status["serviceStatus"]) == (
        active,
        True,
        "Running",
    )
    assert harness.selected() == harness.selected("demo-head-svc") == active
    assert harness.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")


@pytest.mark.acceptance("rayservice", 29, 30)
@pytest.mark.parametrize(
    ("delay", "lives", "gone"),
    [pytest.param(10, 10, 15, id="29: ten seconds"), pytest.param(0, 0, 4, id="30: at once")],
)
async def test_29_30_the_old_cluster_lives_for_its_delay(
    delay: int, lives: float, gone: float
) -> None:
    harness = await a_running_harness(rayClusterDeletionDelaySeconds=delay)
    blue = harness.active
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=delay)
    await harness.until(lambda: harness.active != blue)
    await harness.run(lives)
    assert blue in harness.clusters
    await harness.run(gone - lives)
    assert blue not in harness.clusters


@pytest.mark.acceptance("rayservice", 29)
async def test_29_a_restart_does_not_start_the_delay_again() -> None:
    harness = await a_running_harness(rayClusterDeletionDelaySeconds=10)
    blue = harness.active
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=10)
    await harness.until(lambda: harness.active != blue)
    await harness.run(8)
    harness.restart()
    await harness.run(6)
    assert blue not in harness.clusters


@pytest.mark.acceptance("rayservice", 31)
async def test_31_without_the_gateway_api_a_whole_life_fails_no_pass_of_either_service() -> None:
    harness = Pair()
    harness.unknown_kinds |= GATEWAY_API
    plain: Json = {"upgradeStrategy": {"type": "NewCluster"}, "rayClusterDeletionDelaySeconds": 1}
    harness.apply(**plain)
    await harness.until(harness.is_complete)
    harness.apply(config=GREEN, **plain)
    await harness.until(lambda: harness.is_complete() and len(harness.clusters) == 1)
    harness.restart()
    harness.apply(config=GREEN, suspend=True, **plain)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True")
    harness.apply(config=GREEN, **plain)
    await harness.until(harness.is_complete)
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.until(lambda: not harness.kube.all(RAY_SERVICE))
    assert harness.failed == []
    assert [
        each for each in harness.kube.writes() if any(kind in each for kind in GATEWAY_API)
    ] == []
    assert "GatewayAPIMissing" not in harness.reasons()


@pytest.mark.acceptance("rayservice", 32)
async def test_32_the_users_serve_service_is_the_base() -> None:
    template: Json = {
        "metadata": {"name": "custom", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "x", "port": 12345}]},
    }
    harness = await a_running_harness(serveService=template)
    stored = harness.kube.objects[(SERVICE.kind, "default", "custom")]
    assert stored["spec"] == {
        "type": "LoadBalancer",
        "ports": [{"name": "serve", "port": 8000}],
        "selector": {"ray.io/cluster": harness.active, "ray.io/serve": "true"},
    }
    assert stored["metadata"]["annotations"] == {"c": "d"}
    assert stored["metadata"]["labels"] == {
        "a": "b",
        "ray.io/originated-from-cr-name": "demo",
        "ray.io/originated-from-crd": "RayService",
        "ray.io/serve": "demo-serve",
    }
    assert (SERVICE.kind, "default", "demo-serve-svc") not in harness.kube.objects
    assert harness.status["numServeEndpoints"] == 2


def head_with_ports(*ports: Json) -> Json:
    container = {"name": "ray-head", "image": "rayproject/ray:2.52.0", "ports": list(ports)}
    return a_cluster_config(
        headGroupSpec={"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    )


@pytest.mark.acceptance("rayservice", 33)
async def test_33_a_missing_serve_port_is_reported() -> None:
    harness = Harness()
    harness.apply(config=head_with_ports({"name": "gcs-server", "containerPort": 6379}))
    await harness.run(60)
    assert (
        harness.status["pendingServiceStatus"]["applicationStatuses"]["app"]["status"] == "RUNNING"
    )
    text = (
        "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head "
        "container; otherwise, the Kubernetes service for Ray Serve will not be created."
    )
    assert harness.message("Ready") == f"RayService is initializing: {text}"
    assert [each for each in harness.kube.events() if each[1] == "NoServePort"] == [
        ("Warning", "NoServePort", text)
    ]
    assert [
        each
        for each in harness.kube.writes()
        if "Service demo" in each and "RayService" not in each
    ] == []


@pytest.mark.acceptance("rayservice", 34)
async def test_34_the_serve_port_is_the_head_containers() -> None:
    harness = await a_running_harness(
        config=head_with_ports({"name": "serve", "containerPort": 9000})
    )
    assert harness.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"]["ports"] == [
        {"name": "serve", "port": 9000}
    ]
    await harness.run(1)
    assert {each.port for each in harness.serve.checked} == {9000}


@pytest.mark.acceptance("rayservice", 35)
async def test_35_a_drifted_service_of_the_same_cluster_is_left_alone() -> None:
    harness = await a_running_harness()
    stored = harness.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]
    drifted = {**stored["spec"], "ports": [{"name": "mine", "port": 1}], "type": "NodePort"}
    harness.kube.put(SERVICE, {**stored, "spec": drifted})
    done = len(harness.kube.requests)
    await harness.run(30)
    assert harness.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"] == drifted
    assert len(harness.kube.requests) == done


@pytest.mark.acceptance("rayservice", 36)
async def test_36_zero_downtime_off_holds_only_for_an_absent_strategy() -> None:
    harness = await a_running_harness(switches=Config(zero_downtime=False))
    before = cluster(harness, harness.active)
    harness.apply(config=GREEN)
    await harness.run(30)
    assert (harness.pending, cluster(harness, harness.active)) == ("", before)
    harness.apply(config=GREEN, upgradeStrategy={"type": "NewCluster"})
    await harness.reconcile()
    assert harness.pending


@pytest.mark.acceptance("rayservice", 37)
async def test_37_none_leaves_the_cluster_and_updates_the_serve_config() -> None:
    harness = await a_running_harness(upgradeStrategy={"type": "None"})
    before = cluster(harness, harness.active)
    harness.apply(
        config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy={"type": "None"}
    )
    await harness.run(30)
    assert (cluster(harness, harness.active), harness.pending, harness.is_ready()) == (
        before,
        "",
        True,
    )
    sent = harness.serve.head(f"{harness.active}-head-svc").puts
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in sent] == [
        "v1",
        "v2",
    ]


def ignored_events(harness: Harness) -> list[str]:
    return [note for _, reason, note in harness.kube.events() if reason == "ClusterSpecIgnored"]


async def test_a_cluster_spec_that_none_ignores_is_reported_with_its_fields_and_the_remedy() -> (
    None
):
    none: Json = {"upgradeStrategy": {"type": "None"}}
    harness = await a_running_harness(config=a_cluster_config(a_group(), a_group("gpu")), **none)
    changed = a_cluster_config(
        a_group(), a_group("gpu", rayStartParams={"a": "b"}), image="rayproject/ray:2.53.0"
    )
    harness.apply(config=changed, **none)
    await harness.run(30)
    kind = "ClusterSpecIgnored"
    assert harness.condition(kind) == ("True", "UpgradeStrategyNone")
    text = (
        "The change of spec.rayClusterConfig (headGroupSpec, workerGroupSpecs[1] (gpu)) is not "
        f"applied to RayCluster default/{harness.active}, because spec.upgradeStrategy.type is "
        "None. To apply it, set spec.upgradeStrategy.type to NewCluster; to drop it, revert it."
    )
    assert (harness.message(kind), ignored_events(harness)) == (text, [text])
    active = harness.active
    harness.apply(config=changed, upgradeStrategy={"type": "NewCluster"})
    await harness.until(lambda: harness.is_complete() and harness.active != active)
    assert harness.condition(kind) == ("", "")


async def test_a_cluster_spec_that_the_operators_default_ignores_is_reported_until_it_is_reverted() -> (
    None
):
    harness = await a_running_harness(switches=Config(zero_downtime=False))
    harness.apply(config=a_cluster_config(a_group(replicas=3)))  # this needs no new cluster
    await harness.run(5)
    assert harness.condition("ClusterSpecIgnored") == ("", "")
    harness.apply(config=GREEN)
    await harness.run(5)
    assert "ENABLE_ZERO_DOWNTIME is false" in harness.message("ClusterSpecIgnored")
    harness.apply()
    await harness.run(5)
    assert harness.condition("ClusterSpecIgnored") == ("", "")
    assert len(ignored_events(harness)) == 1


@pytest.mark.acceptance("rayservice", 38)
async def test_38_none_creates_a_cluster_when_there_is_none() -> None:
    harness = await a_running_harness(upgradeStrategy={"type": "None"})
    gone = harness.active
    await harness.kube.delete(RAY_CLUSTER, "default", gone)
    await harness.until(lambda: harness.is_complete() and harness.active != gone)


@pytest.mark.acceptance("rayservice", 56)
async def test_56_without_its_gate_the_incremental_type_falls_back_to_one_switch_and_reports_that() -> (
    None
):
    strategy = a_strategy()
    harness = await a_running_harness(
        switches=Config(gates=frozenset()),
        config=a_cluster_config(enableInTreeAutoscaling=True),
        upgradeStrategy=strategy,
    )
    blue = harness.active
    harness.apply(
        config=a_cluster_config(image="rayproject/ray:2.53.0", enableInTreeAutoscaling=True),
        upgradeStrategy=strategy,
    )
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    assert "IncrementalUpgradeDisabled" in harness.reasons()


@pytest.mark.acceptance("rayservice", 92)
async def test_92_a_service_of_another_owner_is_refused() -> None:
    harness = Harness()
    owner = [{"kind": "RayService", "name": "other", "uid": "u", "controller": True}]
    foreign = {
        "metadata": {"name": "demo-serve-svc", "ownerReferences": owner},
        "spec": {"selector": {"ray.io/cluster": "x"}},
    }
    harness.kube.put(SERVICE, foreign)
    harness.apply()
    await harness.run(10)
    assert "belongs to RayService other" in harness.message("Ready")
    assert harness.selected() == "x"
    assert not [each for each in harness.kube.writes() if "demo-serve-svc" in each]


@pytest.mark.acceptance("rayservice", 92)
async def test_92_of_two_that_name_one_serve_service_the_second_is_refused_until_it_is_free() -> (
    None
):
    shared: Json = {"metadata": {"name": "shared"}}
    harness = await a_running_harness(serveService=shared)
    harness.apply(name="second", serveService=shared)
    writes = [each for each in harness.kube.writes() if each.endswith("Service shared")]
    await harness.run(60)
    assert [each for each in harness.kube.writes() if each.endswith("Service shared")] == writes
    assert (harness.selected("shared"), harness.is_ready()) == (harness.active, True)
    text = "Service shared belongs to RayService demo; choose another name or delete it"
    refused = harness.status_of("second")
    (ready,) = [each for each in refused["conditions"] if each["type"] == "Ready"]
    assert (ready["status"], ready["message"]) == ("False", f"RayService is initializing: {text}")
    assert harness.kube.events().count(("Warning", "ServiceNotOwned", text)) == 1
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.until(lambda: harness.status_of("second").get("serviceStatus") == "Running")


@pytest.mark.acceptance("rayservice", 93)
async def test_93_a_wiped_status_is_rebuilt_without_an_outage() -> None:
    harness = await a_running_harness()
    active = harness.active
    harness.kube.set_status(RAY_SERVICE, "default", "demo", {})
    await harness.run(5)
    assert (harness.active, harness.pending, harness.selected(), harness.clusters) == (
        active,
        "",
        active,
        [active],
    )
    assert harness.is_complete()


@pytest.mark.acceptance("rayservice", 93)
async def test_93_wiped_in_mid_upgrade_both_clusters_are_found_again() -> None:
    harness = await a_running_harness(rayClusterDeletionDelaySeconds=600)
    oldest = harness.active
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=600)
    await harness.until(
        lambda: harness.is_complete() and harness.active != oldest
    )  # one is left, waiting for its end
    active = harness.active
    harness.holds_pods = True
    harness.apply(config=RED, rayClusterDeletionDelaySeconds=600)
    await harness.run(2)
    pending = harness.pending
    harness.kube.set_status(RAY_SERVICE, "default", "demo", {})
    harness.restart()
    await harness.run(2)
    assert (harness.active, harness.pending, harness.selected()) == (active, pending, active)
    harness.holds_pods = False
    await harness.until(lambda: harness.is_complete() and harness.active == pending)
    assert sorted(harness.clusters) == sorted([oldest, active, pending])
