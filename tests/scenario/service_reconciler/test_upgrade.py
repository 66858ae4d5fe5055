"""Changes to a running service; spec rayservice §6, §7.2, §7.3, acceptance 18-38."""

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from scenario.service_reconciler.world import World, a_running_world, story
from service_reconciler.config import Config
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config
from support.golden import Golden

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")


def cluster(world: World, name: str) -> Json:
    return world.kube.objects[(RAY_CLUSTER.kind, "default", name)]


async def test_16_what_the_hash_passes_over_needs_no_cluster() -> None:
    world = await a_running_world()
    before = cluster(world, world.active)
    world.apply(config=a_cluster_config(a_group(replicas=3, minReplicas=2, maxReplicas=9)))
    await world.run(5)
    assert (world.pending, cluster(world, world.active)) == ("", before)


async def test_18_an_appended_group_is_added_to_the_active_cluster() -> None:
    world = await a_running_world()
    active = world.active
    world.apply(config=a_cluster_config(a_group(), a_group("large")))
    await world.run(5)
    assert (world.active, world.pending) == (active, "")
    assert [each["groupName"] for each in cluster(world, active)["spec"]["workerGroupSpecs"]] == ["small", "large"]
    assert cluster(world, active)["metadata"]["annotations"][labels.NUM_WORKER_GROUPS] == "2"
    assert "UpdatedRayCluster" in world.reasons()


async def test_18_the_autoscalers_replicas_survive_an_appended_group() -> None:
    world = await a_running_world(config=a_cluster_config(enableInTreeAutoscaling=True))
    stored = cluster(world, world.active)
    scaled = {**stored["spec"], "workerGroupSpecs": [a_group(replicas=4)]}
    world.kube.put(RAY_CLUSTER, {**stored, "spec": scaled})
    world.apply(config=a_cluster_config(a_group(), a_group("large"), enableInTreeAutoscaling=True))
    await world.run(5)
    assert [each["replicas"] for each in cluster(world, world.active)["spec"]["workerGroupSpecs"]] == [4, 1]


async def test_19_swapped_groups_need_a_new_cluster() -> None:
    world = await a_running_world(config=a_cluster_config(a_group("a"), a_group("b")))
    world.apply(config=a_cluster_config(a_group("b"), a_group("a")))
    await world.look()
    assert world.pending


async def test_20_another_versions_annotations_are_renewed_and_nothing_else() -> None:
    world = await a_running_world()
    stored = cluster(world, world.active)
    old = {labels.KUBERAY_VERSION: "v1.5.1", labels.SPEC_HASH: "other algorithm", labels.NUM_WORKER_GROUPS: "1"}
    world.kube.put(RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": old}})
    await world.run(5)
    assert world.pending == ""
    assert cluster(world, world.active)["spec"] == stored["spec"]
    renewed = cluster(world, world.active)["metadata"]["annotations"]
    assert renewed[labels.KUBERAY_VERSION] == Config().version
    assert renewed[labels.SPEC_HASH] == stored["metadata"]["annotations"][labels.SPEC_HASH]


async def test_21_a_change_that_comes_with_another_version_is_an_upgrade() -> None:
    world = await a_running_world()
    stored = cluster(world, world.active)
    annotations = {**stored["metadata"]["annotations"], labels.KUBERAY_VERSION: "v1.5.1"}
    world.kube.put(RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": annotations}})
    world.apply(config=GREEN)
    await world.look()
    assert world.pending
    assert cluster(world, world.active)["spec"] == stored["spec"]


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


async def test_23_a_queues_suspend_survives_an_update_in_place() -> None:
    world = await a_running_world()
    stored = cluster(world, world.active)
    world.kube.put(RAY_CLUSTER, {**stored, "spec": {**stored["spec"], "suspend": True}})
    world.apply(config=a_cluster_config(a_group(), a_group("large")))
    await world.run(1)
    assert cluster(world, world.active)["spec"]["suspend"] is True


async def test_24_the_story_of_an_upgrade(golden: Golden) -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=5)
    world.apply(config=GREEN, serve=a_serve_config(message="v2"), rayClusterDeletionDelaySeconds=5)
    await world.run(20)
    golden.check("service_reconciler/upgrade.txt", story(world))


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
    assert set(world.clusters) == {world.active, world.pending}


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


async def test_28_a_pending_cluster_that_never_serves_changes_nothing_for_users() -> None:
    world = await a_running_world()
    active = world.active
    world.holds_pods = True
    world.apply(config=GREEN)
    await world.run(600)
    assert (world.active, world.selected(), world.is_ready()) == (active, active, True)
    assert world.condition("UpgradeInProgress")[0] == "True"


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


async def test_29_a_restart_does_not_start_the_delay_again() -> None:
    world = await a_running_world(rayClusterDeletionDelaySeconds=10)
    blue = world.active
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=10)
    await world.until(lambda: world.active != blue)
    await world.run(8)
    world.restart()
    await world.run(6)
    assert blue not in world.clusters


async def test_31_no_gateway_is_ever_asked_for() -> None:
    world = await a_running_world()
    world.apply(config=GREEN)
    await world.run(10)
    assert not [each for each in world.kube.requests if each.kind in {"Gateway", "HTTPRoute", "GRPCRoute"}]


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
    assert stored["metadata"]["labels"]["a"] == "b"


def head_with_ports(*ports: Json) -> Json:
    container = {"name": "ray-head", "image": "rayproject/ray:2.52.0", "ports": list(ports)}
    return a_cluster_config(headGroupSpec={"rayStartParams": {}, "template": {"spec": {"containers": [container]}}})


async def test_33_without_a_serve_port_the_user_is_told() -> None:
    world = World()
    world.apply(config=head_with_ports({"name": "gcs-server", "containerPort": 6379}))
    await world.run(10)
    assert "Please specify a port named 'serve'" in world.message("Ready")
    assert world.reasons().count("NoServePort") == 1
    assert world.selected() == ""


async def test_34_the_serve_port_is_the_head_containers() -> None:
    world = await a_running_world(config=head_with_ports({"name": "serve", "containerPort": 9000}))
    assert world.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"]["ports"] == [
        {"name": "serve", "port": 9000}
    ]


async def test_35_a_drifted_service_of_the_same_cluster_is_left_alone() -> None:
    world = await a_running_world()
    stored = world.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]
    drifted = {**stored, "spec": {**stored["spec"], "ports": [{"name": "mine", "port": 1}]}}
    world.kube.put(SERVICE, drifted)
    await world.run(5)
    assert world.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"]["ports"] == [
        {"name": "mine", "port": 1}
    ]


async def test_36_zero_downtime_off_holds_only_for_an_absent_strategy() -> None:
    world = await a_running_world(switches=Config(zero_downtime=False))
    world.apply(config=GREEN)
    await world.run(5)
    assert world.pending == ""
    world.apply(config=GREEN, upgradeStrategy={"type": "NewCluster"})
    await world.look()
    assert world.pending


async def test_37_none_leaves_the_cluster_and_updates_the_serve_config() -> None:
    world = await a_running_world(upgradeStrategy={"type": "None"})
    before = cluster(world, world.active)
    world.apply(config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy={"type": "None"})
    await world.run(5)
    assert (cluster(world, world.active), world.pending) == (before, "")
    sent = world.serve.head(f"{world.active}-head-svc").puts
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in sent] == ["v1", "v2"]


async def test_38_none_creates_a_cluster_when_there_is_none() -> None:
    world = await a_running_world(upgradeStrategy={"type": "None"})
    gone = world.active
    await world.kube.delete(RAY_CLUSTER, "default", gone)
    await world.until(lambda: world.is_settled() and world.active != gone)


async def test_56_without_its_gate_the_incremental_type_falls_back_to_one_switch_and_says_so() -> None:
    options = {"maxSurgePercent": 20, "stepSizePercent": 5, "intervalSeconds": 10, "gatewayClassName": "eg"}
    strategy = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options}
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


async def test_93_a_wiped_status_is_rebuilt_without_an_outage() -> None:
    world = await a_running_world()
    active = world.active
    world.kube.set_status(RAY_SERVICE, "default", "demo", {})
    await world.run(5)
    assert (world.active, world.pending, world.selected(), world.clusters) == (active, "", active, [active])
