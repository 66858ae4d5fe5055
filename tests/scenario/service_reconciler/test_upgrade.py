"""Changes to a running service; spec rayservice §6, §7.2, §7.3, acceptance 18-38."""

from typing import Any

import pytest

from common import labels, spec_hash
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from scenario.service_reconciler.world import World, a_running_world, story
from scenario.upgrade.world import GATEWAY_API, Pair
from service_reconciler.config import Config
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config, a_strategy
from support.golden import Golden

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")


def cluster(world: World, name: str) -> Json:
    return world.kube.objects[(RAY_CLUSTER.kind, "default", name)]


def goal(world: World) -> str:
    """Return the hash of what the RayService asks for."""
    return spec_hash.service_goal_hash(world.service["spec"]["rayClusterConfig"])


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
            a_cluster_config(a_group(replicas=5, scaleStrategy={"workersToDelete": ["a"]})), id="workersToDelete"
        ),
        pytest.param(a_cluster_config(a_group(template=a_template(tolerations=[{"key": "gpu"}]))), id="tolerations"),
        pytest.param(
            a_cluster_config(
                headGroupSpec={"rayStartParams": {}, "template": a_template("ray-head", tolerations=[{"key": "gpu"}])}
            ),
            id="tolerations of the head",
        ),
        pytest.param(
            a_cluster_config(a_group(template=a_template(schedulingGates=[{"name": "kueue"}]))), id="schedulingGates"
        ),
        pytest.param(a_cluster_config(suspend=True), id="suspend"),
    ],
)
async def test_16_what_the_hash_passes_over_needs_no_cluster(config: Json) -> None:
    world = await a_running_world()
    before, done = cluster(world, world.active), len(world.kube.writes())
    world.apply(config=config)
    await world.run(30)
    assert (world.pending, cluster(world, world.active)) == ("", before)
    assert world.kube.writes()[done:] == ["update RayService/status demo"]  # its observedGeneration


@pytest.mark.acceptance("rayservice", 18)
async def test_18_an_appended_group_is_added_to_the_active_cluster() -> None:
    world = await a_running_world()
    active = world.active
    world.apply(config=a_cluster_config(a_group(), a_group("large")))
    await world.run(5)
    assert (world.active, world.pending) == (active, "")
    assert [each["groupName"] for each in cluster(world, active)["spec"]["workerGroupSpecs"]] == ["small", "large"]
    annotations: Json = cluster(world, active)["metadata"]["annotations"]
    assert (annotations[labels.NUM_WORKER_GROUPS], annotations[labels.SPEC_HASH]) == ("2", goal(world))
    assert "UpdatedRayCluster" in world.reasons()


@pytest.mark.acceptance("rayservice", 18)
async def test_18_the_autoscalers_replicas_survive_an_appended_group() -> None:
    world = await a_running_world(config=a_cluster_config(enableInTreeAutoscaling=True))
    stored = cluster(world, world.active)
    scaled = {**stored["spec"], "workerGroupSpecs": [a_group(replicas=4)]}
    world.kube.put(RAY_CLUSTER, {**stored, "spec": scaled})
    world.apply(config=a_cluster_config(a_group(), a_group("large"), enableInTreeAutoscaling=True))
    await world.run(5)
    assert [each["replicas"] for each in cluster(world, world.active)["spec"]["workerGroupSpecs"]] == [4, 1]


@pytest.mark.acceptance("rayservice", 19)
async def test_19_swapped_groups_need_a_new_cluster() -> None:
    world = await a_running_world(config=a_cluster_config(a_group("a"), a_group("b")))
    world.apply(config=a_cluster_config(a_group("b"), a_group("a")))
    await world.look()
    assert world.pending in world.clusters
    assert world.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")


@pytest.mark.acceptance("rayservice", 20)
async def test_20_another_versions_annotations_are_renewed_and_nothing_else() -> None:
    config = a_cluster_config(enableInTreeAutoscaling=True)
    world = await a_running_world(config=config)
    scaled = {**config, "workerGroupSpecs": [a_group(replicas=4)]}
    stored = {**cluster(world, world.active), "spec": scaled}
    old = {labels.KUBERAY_VERSION: "v1.5.1", labels.SPEC_HASH: "other algorithm", labels.NUM_WORKER_GROUPS: "1"}
    world.kube.put(RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": old}})
    await world.run(5)
    assert world.pending == ""
    assert cluster(world, world.active)["spec"] == scaled
    assert not [each for each in world.kube.writes() if each.startswith("delete")]
    renewed = cluster(world, world.active)["metadata"]["annotations"]
    assert renewed[labels.KUBERAY_VERSION] == Config().version
    assert renewed[labels.SPEC_HASH] == goal(world)


@pytest.mark.acceptance("rayservice", 21)
async def test_21_a_change_that_comes_with_another_version_is_an_upgrade() -> None:
    world = await a_running_world()
    stored = cluster(world, world.active)
    annotations = {**stored["metadata"]["annotations"], labels.KUBERAY_VERSION: "v1.5.1"}
    world.kube.put(RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": annotations}})
    world.apply(config=GREEN)
    await world.look()
    assert world.pending
    assert cluster(world, world.active)["spec"] == stored["spec"]


@pytest.mark.acceptance("rayservice", 22)
async def test_22_a_group_appended_in_mid_upgrade_goes_to_the_pending_cluster() -> None:
    world = await a_running_world()
    world.holds_pods = True
    world.apply(config=GREEN)
    await world.run(1)
    pending = world.pending
    world.apply(config=a_cluster_config(a_group(), a_group("large"), image="rayproject/ray:2.53.0"))
    await world.run(1)
    assert world.pending == pending
    assert len(cluster(world, pending)["spec"]["workerGroupSpecs"]) == 2
    assert "Updated the pending RayCluster default/" + pending in [note for _, _, note in world.kube.events()]
    world.holds_pods = False
    await world.until(lambda: world.is_settled() and world.active == pending)


@pytest.mark.acceptance("rayservice", 23)
async def test_23_a_queues_suspend_survives_an_update_in_place() -> None:
    world = await a_running_world()
    stored = cluster(world, world.active)
    world.kube.put(RAY_CLUSTER, {**stored, "spec": {**stored["spec"], "suspend": True}})
    world.apply(config=a_cluster_config(a_group(), a_group("large")))
    await world.run(1)
    assert cluster(world, world.active)["spec"]["suspend"] is True


@pytest.mark.acceptance("rayservice", 24)
async def test_24_the_story_of_an_upgrade(golden: Golden) -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=5)
    world.apply(config=GREEN, serve=a_serve_config(message="v2"), rayClusterDeletionDelaySeconds=5)
    await world.run(20)
    golden.check("service_reconciler/upgrade.txt", story(world))


@pytest.mark.acceptance("rayservice", 25)
async def test_25_the_active_cluster_keeps_its_serve_config_and_its_applications_are_still_shown() -> None:
    world = await a_running_world()
    blue = world.active
    world.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await world.until(lambda: bool(world.pending))
    while world.pending:
        assert world.status["activeServiceStatus"]["applicationStatuses"]["app"]["status"] == "RUNNING"
        await world.run(0.25)
    assert len(world.serve.head(f"{blue}-head-svc").puts) == 1
    green = world.serve.head(f"{world.active}-head-svc").puts
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in green] == ["v2"]


@pytest.mark.acceptance("rayservice", 25)
async def test_25_a_restart_in_mid_upgrade_does_not_push_the_new_config_onto_the_old_cluster() -> None:
    world = await a_running_world()
    blue = world.serve.head(f"{world.active}-head-svc")
    world.holds_pods = True
    world.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await world.run(2)
    world.restart()
    blue.restart()  # its head lost all, so it must be given its own config again
    await world.run(10)
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in blue.puts] == ["v1", "v1"]


@pytest.mark.acceptance("rayservice", 26)
async def test_26_a_second_change_replaces_the_pending_cluster() -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=3)
    world.holds_pods = True
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=3)
    await world.run(1)
    first = world.pending
    world.apply(config=RED, rayClusterDeletionDelaySeconds=3)
    await world.run(1)
    assert world.pending not in {"", first}
    assert first in world.clusters
    await world.run(6)
    assert first not in world.clusters
    assert set(world.clusters) == {world.active, world.pending}


@pytest.mark.acceptance("rayservice", 27)
async def test_27_a_revert_gives_the_pending_cluster_up() -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=1)
    active = world.active
    world.holds_pods = True
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=1)
    await world.run(1)
    world.apply(rayClusterDeletionDelaySeconds=1)
    await world.run(5)
    assert (world.active, world.pending, world.selected(), world.clusters) == (active, "", active, [active])
    assert world.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    assert "UpgradeCancelled" in world.reasons()


@pytest.mark.acceptance("rayservice", 28)
async def test_28_a_pending_cluster_that_never_serves_changes_nothing_for_users() -> None:
    world = await a_running_world()
    active = world.active
    world.holds_pods = True
    world.apply(config=GREEN)
    await world.run(600)
    assert (world.active, world.is_ready(), world.status["serviceStatus"]) == (active, True, "Running")
    assert world.selected() == world.selected("demo-head-svc") == active
    assert world.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")


@pytest.mark.acceptance("rayservice", 29, 30)
@pytest.mark.parametrize(
    ("delay", "lives", "gone"),
    [pytest.param(10, 10, 15, id="29: ten seconds"), pytest.param(0, 0, 4, id="30: at once")],
)
async def test_29_30_the_old_cluster_lives_for_its_delay(delay: int, lives: float, gone: float) -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=delay)
    blue = world.active
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=delay)
    await world.until(lambda: world.active != blue)
    await world.run(lives)
    assert blue in world.clusters
    await world.run(gone - lives)
    assert blue not in world.clusters


@pytest.mark.acceptance("rayservice", 29)
async def test_29_a_restart_does_not_start_the_delay_again() -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=10)
    blue = world.active
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=10)
    await world.until(lambda: world.active != blue)
    await world.run(8)
    world.restart()
    await world.run(6)
    assert blue not in world.clusters


@pytest.mark.acceptance("rayservice", 31)
async def test_31_without_the_gateway_api_a_whole_life_fails_no_pass_of_either_service() -> None:
    world = Pair()
    world.unknown_kinds |= GATEWAY_API
    plain: Json = {"upgradeStrategy": {"type": "NewCluster"}, "rayClusterDeletionDelaySeconds": 1}
    world.apply(**plain)
    await world.until(world.is_settled)
    world.apply(config=GREEN, **plain)
    await world.until(lambda: world.is_settled() and len(world.clusters) == 1)
    world.restart()
    world.apply(config=GREEN, suspend=True, **plain)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    world.apply(config=GREEN, **plain)
    await world.until(world.is_settled)
    await world.kube.delete(RAY_SERVICE, "default", "demo")
    await world.until(lambda: not world.kube.all(RAY_SERVICE))
    assert world.failed == []
    assert [each for each in world.kube.writes() if any(kind in each for kind in GATEWAY_API)] == []
    assert "GatewayAPIMissing" not in world.reasons()


@pytest.mark.acceptance("rayservice", 32)
async def test_32_the_users_serve_service_is_the_base() -> None:
    template: Json = {
        "metadata": {"name": "custom", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "x", "port": 12345}]},
    }
    world = await a_running_world(serveService=template)
    stored = world.kube.objects[(SERVICE.kind, "default", "custom")]
    assert stored["spec"] == {
        "type": "LoadBalancer",
        "ports": [{"name": "serve", "port": 8000}],
        "selector": {"ray.io/cluster": world.active, "ray.io/serve": "true"},
    }
    assert stored["metadata"]["annotations"] == {"c": "d"}
    assert stored["metadata"]["labels"] == {
        "a": "b",
        "ray.io/originated-from-cr-name": "demo",
        "ray.io/originated-from-crd": "RayService",
        "ray.io/serve": "demo-serve",
    }
    assert (SERVICE.kind, "default", "demo-serve-svc") not in world.kube.objects
    assert world.status["numServeEndpoints"] == 2


def head_with_ports(*ports: Json) -> Json:
    container = {"name": "ray-head", "image": "rayproject/ray:2.52.0", "ports": list(ports)}
    return a_cluster_config(headGroupSpec={"rayStartParams": {}, "template": {"spec": {"containers": [container]}}})


@pytest.mark.acceptance("rayservice", 33)
async def test_33_without_a_serve_port_the_user_is_told() -> None:
    world = World()
    world.apply(config=head_with_ports({"name": "gcs-server", "containerPort": 6379}))
    await world.run(60)
    assert world.status["pendingServiceStatus"]["applicationStatuses"]["app"]["status"] == "RUNNING"
    text = (
        "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head "
        "container; otherwise, the Kubernetes service for Ray Serve will not be created."
    )
    assert world.message("Ready") == f"RayService is initializing: {text}"
    assert [told for told in world.kube.events() if told[1] == "NoServePort"] == [("Warning", "NoServePort", text)]
    assert [each for each in world.kube.writes() if "Service demo" in each and "RayService" not in each] == []


@pytest.mark.acceptance("rayservice", 34)
async def test_34_the_serve_port_is_the_head_containers() -> None:
    world = await a_running_world(config=head_with_ports({"name": "serve", "containerPort": 9000}))
    assert world.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"]["ports"] == [
        {"name": "serve", "port": 9000}
    ]
    await world.run(1)
    assert {each.port for each in world.serve.checked} == {9000}


@pytest.mark.acceptance("rayservice", 35)
async def test_35_a_drifted_service_of_the_same_cluster_is_left_alone() -> None:
    world = await a_running_world()
    stored = world.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]
    drifted = {**stored["spec"], "ports": [{"name": "mine", "port": 1}], "type": "NodePort"}
    world.kube.put(SERVICE, {**stored, "spec": drifted})
    done = len(world.kube.requests)
    await world.run(30)
    assert world.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"] == drifted
    assert len(world.kube.requests) == done


@pytest.mark.acceptance("rayservice", 36)
async def test_36_zero_downtime_off_holds_only_for_an_absent_strategy() -> None:
    world = await a_running_world(switches=Config(zero_downtime=False))
    before = cluster(world, world.active)
    world.apply(config=GREEN)
    await world.run(30)
    assert (world.pending, cluster(world, world.active)) == ("", before)
    world.apply(config=GREEN, upgradeStrategy={"type": "NewCluster"})
    await world.look()
    assert world.pending


@pytest.mark.acceptance("rayservice", 37)
async def test_37_none_leaves_the_cluster_and_updates_the_serve_config() -> None:
    world = await a_running_world(upgradeStrategy={"type": "None"})
    before = cluster(world, world.active)
    world.apply(config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy={"type": "None"})
    await world.run(30)
    assert (cluster(world, world.active), world.pending, world.is_ready()) == (before, "", True)
    sent = world.serve.head(f"{world.active}-head-svc").puts
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in sent] == ["v1", "v2"]


@pytest.mark.acceptance("rayservice", 38)
async def test_38_none_creates_a_cluster_when_there_is_none() -> None:
    world = await a_running_world(upgradeStrategy={"type": "None"})
    gone = world.active
    await world.kube.delete(RAY_CLUSTER, "default", gone)
    await world.until(lambda: world.is_settled() and world.active != gone)


@pytest.mark.acceptance("rayservice", 56)
async def test_56_without_its_gate_the_incremental_type_falls_back_to_one_switch_and_says_so() -> None:
    strategy = a_strategy()
    world = await a_running_world(
        switches=Config(gates=frozenset()),
        config=a_cluster_config(enableInTreeAutoscaling=True),
        upgradeStrategy=strategy,
    )
    blue = world.active
    world.apply(
        config=a_cluster_config(image="rayproject/ray:2.53.0", enableInTreeAutoscaling=True), upgradeStrategy=strategy
    )
    await world.until(lambda: world.is_settled() and world.active != blue)
    assert "IncrementalUpgradeDisabled" in world.reasons()


@pytest.mark.acceptance("rayservice", 92)
async def test_92_a_service_of_another_owner_is_refused() -> None:
    world = World()
    owner = [{"kind": "RayService", "name": "other", "uid": "u", "controller": True}]
    foreign = {
        "metadata": {"name": "demo-serve-svc", "ownerReferences": owner},
        "spec": {"selector": {"ray.io/cluster": "x"}},
    }
    world.kube.put(SERVICE, foreign)
    world.apply()
    await world.run(10)
    assert "belongs to RayService other" in world.message("Ready")
    assert world.selected() == "x"
    assert not [each for each in world.kube.writes() if "demo-serve-svc" in each]


@pytest.mark.acceptance("rayservice", 92)
async def test_92_of_two_that_name_one_serve_service_the_second_is_refused_until_it_is_free() -> None:
    shared: Json = {"metadata": {"name": "shared"}}
    world = await a_running_world(serveService=shared)
    world.apply(name="second", serveService=shared)
    writes = [each for each in world.kube.writes() if each.endswith("Service shared")]
    await world.run(60)
    assert [each for each in world.kube.writes() if each.endswith("Service shared")] == writes
    assert (world.selected("shared"), world.is_ready()) == (world.active, True)
    text = "Service shared belongs to RayService demo; choose another name or delete it"
    refused = world.status_of("second")
    (ready,) = [each for each in refused["conditions"] if each["type"] == "Ready"]
    assert (ready["status"], ready["message"]) == ("False", f"RayService is initializing: {text}")
    assert world.kube.events().count(("Warning", "ServiceNotOwned", text)) == 1
    await world.kube.delete(RAY_SERVICE, "default", "demo")
    await world.until(lambda: world.status_of("second").get("serviceStatus") == "Running")


@pytest.mark.acceptance("rayservice", 93)
async def test_93_a_wiped_status_is_rebuilt_without_an_outage() -> None:
    world = await a_running_world()
    active = world.active
    world.kube.set_status(RAY_SERVICE, "default", "demo", {})
    await world.run(5)
    assert (world.active, world.pending, world.selected(), world.clusters) == (active, "", active, [active])
    assert world.is_settled()


@pytest.mark.acceptance("rayservice", 93)
async def test_93_wiped_in_mid_upgrade_both_clusters_are_found_again() -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=600)
    oldest = world.active
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=600)
    await world.until(lambda: world.is_settled() and world.active != oldest)  # one is left, waiting for its end
    active = world.active
    world.holds_pods = True
    world.apply(config=RED, rayClusterDeletionDelaySeconds=600)
    await world.run(2)
    pending = world.pending
    world.kube.set_status(RAY_SERVICE, "default", "demo", {})
    world.restart()
    await world.run(2)
    assert (world.active, world.pending, world.selected()) == (active, pending, active)
    world.holds_pods = False
    await world.until(lambda: world.is_settled() and world.active == pending)
    assert sorted(world.clusters) == sorted([oldest, active, pending])
