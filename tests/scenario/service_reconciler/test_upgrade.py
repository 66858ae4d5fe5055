"""Changes to a running service; spec rayservice §6, §7.2, §7.3, acceptance 18-38."""

from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from common.ray import spec_hash
from common.version import OPERATOR_VERSION
from service_reconciler.settings import Config
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config, a_strategy
from support.golden import Golden
from support.simulator.services import GATEWAY_API
from support.simulator.simulator import Simulator, a_pair, a_running_simulator, trace_of_writes
from support.tables import cases

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")


def cluster(sim: Simulator, name: str) -> Json:
    return sim.kube.objects[(RAY_CLUSTER.kind, "default", name)]


def goal(sim: Simulator) -> str:
    """Return the hash of the spec that the RayService asks for."""
    return spec_hash.service_goal_hash(sim.service["spec"]["rayClusterConfig"])


def a_template(name: str = "ray-worker", **spec: Any) -> Json:
    """Return the pod template of the builders, with more fields in its spec."""
    return {"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.52.0"}], **spec}}


@pytest.mark.acceptance("rayservice", 16)
@cases(
    "config",
    {
        "replicas": a_cluster_config(a_group(replicas=5)),
        "minReplicas": a_cluster_config(a_group(minReplicas=0)),
        "maxReplicas": a_cluster_config(a_group(maxReplicas=9)),
        "workersToDelete": a_cluster_config(
            a_group(replicas=5, scaleStrategy={"workersToDelete": ["a"]})
        ),
        "tolerations": a_cluster_config(a_group(template=a_template(tolerations=[{"key": "gpu"}]))),
        "tolerations of the head": a_cluster_config(
            headGroupSpec={
                "rayStartParams": {},
                "template": a_template("ray-head", tolerations=[{"key": "gpu"}]),
            }
        ),
        "schedulingGates": a_cluster_config(
            a_group(template=a_template(schedulingGates=[{"name": "kueue"}]))
        ),
        "suspend": a_cluster_config(suspend=True),
    },
)
async def test_16_what_the_hash_passes_over_needs_no_cluster(config: Json) -> None:
    sim = await a_running_simulator()
    before, done = cluster(sim, sim.active), len(sim.kube.writes())
    sim.apply(config=config)
    await sim.run(30)
    assert (sim.pending, cluster(sim, sim.active)) == ("", before)
    assert sim.kube.writes()[done:] == ["update RayService/status demo"]  # its observedGeneration


@pytest.mark.acceptance("rayservice", 18)
async def test_18_an_appended_group_is_added_to_the_active_cluster() -> None:
    sim = await a_running_simulator()
    active = sim.active
    sim.apply(config=a_cluster_config(a_group(), a_group("large")))
    await sim.run(5)
    assert (sim.active, sim.pending) == (active, "")
    assert [each["groupName"] for each in cluster(sim, active)["spec"]["workerGroupSpecs"]] == [
        "small",
        "large",
    ]
    annotations: Json = cluster(sim, active)["metadata"]["annotations"]
    assert (annotations[labels.NUM_WORKER_GROUPS], annotations[labels.SPEC_HASH]) == (
        "2",
        goal(sim),
    )
    assert "UpdatedRayCluster" in sim.reasons()


@pytest.mark.acceptance("rayservice", 18)
async def test_18_the_autoscalers_replicas_survive_an_appended_group() -> None:
    sim = await a_running_simulator(config=a_cluster_config(enableInTreeAutoscaling=True))
    stored = cluster(sim, sim.active)
    scaled = {**stored["spec"], "workerGroupSpecs": [a_group(replicas=4)]}
    sim.kube.put(RAY_CLUSTER, {**stored, "spec": scaled})
    sim.apply(config=a_cluster_config(a_group(), a_group("large"), enableInTreeAutoscaling=True))
    await sim.run(5)
    assert [each["replicas"] for each in cluster(sim, sim.active)["spec"]["workerGroupSpecs"]] == [
        4,
        1,
    ]


@pytest.mark.acceptance("rayservice", 19)
async def test_19_swapped_groups_need_a_new_cluster() -> None:
    sim = await a_running_simulator(config=a_cluster_config(a_group("a"), a_group("b")))
    sim.apply(config=a_cluster_config(a_group("b"), a_group("a")))
    await sim.reconcile()
    assert sim.pending in sim.clusters
    assert sim.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")


@pytest.mark.acceptance("rayservice", 20)
async def test_20_another_versions_annotations_are_renewed_and_nothing_else() -> None:
    config = a_cluster_config(enableInTreeAutoscaling=True)
    sim = await a_running_simulator(config=config)
    scaled = {**config, "workerGroupSpecs": [a_group(replicas=4)]}
    stored = {**cluster(sim, sim.active), "spec": scaled}
    old = {
        labels.KUBERAY_VERSION: "v1.5.1",
        labels.SPEC_HASH: "other algorithm",
        labels.NUM_WORKER_GROUPS: "1",
    }
    sim.kube.put(RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": old}})
    await sim.run(5)
    assert sim.pending == ""
    assert cluster(sim, sim.active)["spec"] == scaled
    assert not [each for each in sim.kube.writes() if each.startswith("delete")]
    renewed = cluster(sim, sim.active)["metadata"]["annotations"]
    assert renewed[labels.KUBERAY_VERSION] == OPERATOR_VERSION
    assert renewed[labels.SPEC_HASH] == goal(sim)


@pytest.mark.acceptance("rayservice", 21)
async def test_21_a_change_that_comes_with_another_version_is_an_upgrade() -> None:
    sim = await a_running_simulator()
    stored = cluster(sim, sim.active)
    annotations = {**stored["metadata"]["annotations"], labels.KUBERAY_VERSION: "v1.5.1"}
    sim.kube.put(
        RAY_CLUSTER, {**stored, "metadata": {**stored["metadata"], "annotations": annotations}}
    )
    sim.apply(config=GREEN)
    await sim.reconcile()
    assert sim.pending
    assert cluster(sim, sim.active)["spec"] == stored["spec"]


@pytest.mark.acceptance("rayservice", 22)
async def test_22_a_group_appended_in_mid_upgrade_goes_to_the_pending_cluster() -> None:
    sim = await a_running_simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN)
    await sim.run(1)
    pending = sim.pending
    sim.apply(config=a_cluster_config(a_group(), a_group("large"), image="rayproject/ray:2.53.0"))
    await sim.run(1)
    assert sim.pending == pending
    assert len(cluster(sim, pending)["spec"]["workerGroupSpecs"]) == 2
    assert "Updated the pending RayCluster default/" + pending in [
        note for _, _, note in sim.kube.events()
    ]
    sim.ray_clusters.holds_pods = False
    await sim.until(lambda: sim.is_complete() and sim.active == pending)


@pytest.mark.acceptance("rayservice", 23)
async def test_23_a_queues_suspend_survives_an_update_in_place() -> None:
    sim = await a_running_simulator()
    stored = cluster(sim, sim.active)
    sim.kube.put(RAY_CLUSTER, {**stored, "spec": {**stored["spec"], "suspend": True}})
    sim.apply(config=a_cluster_config(a_group(), a_group("large")))
    await sim.run(1)
    assert cluster(sim, sim.active)["spec"]["suspend"] is True


@pytest.mark.acceptance("rayservice", 24)
async def test_24_the_trace_of_an_upgrade(golden: Golden) -> None:
    sim = await a_running_simulator(rayClusterDeletionDelaySeconds=5)
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"), rayClusterDeletionDelaySeconds=5)
    await sim.run(20)
    golden.check("service_reconciler/upgrade.txt", trace_of_writes(sim, sim.writes.lines))


@pytest.mark.acceptance("rayservice", 25)
async def test_25_the_active_cluster_keeps_its_serve_config_and_its_applications_are_still_shown() -> (
    None
):
    sim = await a_running_simulator()
    blue = sim.active
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await sim.until(lambda: bool(sim.pending))
    while sim.pending:
        assert (
            sim.status["activeServiceStatus"]["applicationStatuses"]["app"]["status"] == "RUNNING"
        )
        await sim.run(0.25)
    assert len(sim.serve.head(f"{blue}-head-svc").puts) == 1
    green = sim.serve.head(f"{sim.active}-head-svc").puts
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in green] == ["v2"]


@pytest.mark.acceptance("rayservice", 25)
async def test_25_a_restart_in_mid_upgrade_does_not_push_the_new_config_onto_the_old_cluster() -> (
    None
):
    sim = await a_running_simulator()
    blue = sim.serve.head(f"{sim.active}-head-svc")
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await sim.run(2)
    sim.restart()
    blue.restart()  # its head lost all, so it must be given its own config again
    await sim.run(10)
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in blue.puts] == [
        "v1",
        "v1",
    ]


@pytest.mark.acceptance("rayservice", 26)
async def test_26_a_second_change_replaces_the_pending_cluster() -> None:
    sim = await a_running_simulator(rayClusterDeletionDelaySeconds=3)
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=3)
    await sim.run(1)
    first = sim.pending
    sim.apply(config=RED, rayClusterDeletionDelaySeconds=3)
    await sim.run(1)
    assert sim.pending not in {"", first}
    assert first in sim.clusters
    await sim.run(6)
    assert first not in sim.clusters
    assert set(sim.clusters) == {sim.active, sim.pending}


@pytest.mark.acceptance("rayservice", 27)
async def test_27_a_revert_gives_the_pending_cluster_up() -> None:
    sim = await a_running_simulator(rayClusterDeletionDelaySeconds=1)
    active = sim.active
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=1)
    await sim.run(1)
    sim.apply(rayClusterDeletionDelaySeconds=1)
    await sim.run(5)
    assert (sim.active, sim.pending, sim.selected(), sim.clusters) == (active, "", active, [active])
    assert sim.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    assert "UpgradeCancelled" in sim.reasons()


@pytest.mark.acceptance("rayservice", 28)
async def test_28_a_pending_cluster_that_never_serves_changes_nothing_for_users() -> None:
    sim = await a_running_simulator()
    active = sim.active
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN)
    await sim.run(600)
    assert (sim.active, sim.is_ready(), sim.status["serviceStatus"]) == (active, True, "Running")
    assert sim.selected() == sim.selected("demo-head-svc") == active
    assert sim.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")


@pytest.mark.acceptance("rayservice", 29, 30)
@pytest.mark.parametrize(
    ("delay", "lives", "gone"),
    [pytest.param(10, 10, 15, id="29: ten seconds"), pytest.param(0, 0, 4, id="30: at once")],
)
async def test_29_30_the_old_cluster_lives_for_its_delay(
    delay: int, lives: float, gone: float
) -> None:
    sim = await a_running_simulator(rayClusterDeletionDelaySeconds=delay)
    blue = sim.active
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=delay)
    await sim.until(lambda: sim.active != blue)
    await sim.run(lives)
    assert blue in sim.clusters
    await sim.run(gone - lives)
    assert blue not in sim.clusters


@pytest.mark.acceptance("rayservice", 29)
async def test_29_a_restart_does_not_start_the_delay_again() -> None:
    sim = await a_running_simulator(rayClusterDeletionDelaySeconds=10)
    blue = sim.active
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=10)
    await sim.until(lambda: sim.active != blue)
    await sim.run(8)
    sim.restart()
    await sim.run(6)
    assert blue not in sim.clusters


@pytest.mark.acceptance("rayservice", 31)
async def test_31_without_the_gateway_api_a_whole_life_fails_no_pass_of_either_service() -> None:
    sim = a_pair()
    sim.unknown_kinds |= GATEWAY_API
    plain: Json = {"upgradeStrategy": {"type": "NewCluster"}, "rayClusterDeletionDelaySeconds": 1}
    sim.apply(**plain)
    await sim.until(sim.is_complete)
    sim.apply(config=GREEN, **plain)
    await sim.until(lambda: sim.is_complete() and len(sim.clusters) == 1)
    sim.restart()
    sim.apply(config=GREEN, suspend=True, **plain)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    sim.apply(config=GREEN, **plain)
    await sim.until(sim.is_complete)
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.until(lambda: not sim.kube.all(RAY_SERVICE))
    assert sim.failed == []
    assert [each for each in sim.kube.writes() if any(kind in each for kind in GATEWAY_API)] == []
    assert "GatewayAPIMissing" not in sim.reasons()


@pytest.mark.acceptance("rayservice", 32)
async def test_32_the_users_serve_service_is_the_base() -> None:
    template: Json = {
        "metadata": {"name": "custom", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "x", "port": 12345}]},
    }
    sim = await a_running_simulator(serveService=template)
    stored = sim.kube.objects[(SERVICE.kind, "default", "custom")]
    assert stored["spec"] == {
        "type": "LoadBalancer",
        "ports": [{"name": "serve", "port": 8000}],
        "selector": {"ray.io/cluster": sim.active, "ray.io/serve": "true"},
    }
    assert stored["metadata"]["annotations"] == {"c": "d"}
    assert stored["metadata"]["labels"] == {
        "a": "b",
        "ray.io/originated-from-cr-name": "demo",
        "ray.io/originated-from-crd": "RayService",
        "ray.io/serve": "demo-serve",
    }
    assert (SERVICE.kind, "default", "demo-serve-svc") not in sim.kube.objects
    assert sim.status["numServeEndpoints"] == 2


def head_with_ports(*ports: Json) -> Json:
    container = {"name": "ray-head", "image": "rayproject/ray:2.52.0", "ports": list(ports)}
    return a_cluster_config(
        headGroupSpec={"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    )


@pytest.mark.acceptance("rayservice", 33)
async def test_33_a_missing_serve_port_is_reported() -> None:
    sim = Simulator()
    sim.apply(config=head_with_ports({"name": "gcs-server", "containerPort": 6379}))
    await sim.run(60)
    assert sim.status["pendingServiceStatus"]["applicationStatuses"]["app"]["status"] == "RUNNING"
    text = (
        "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head "
        "container; otherwise, the Kubernetes service for Ray Serve will not be created."
    )
    assert sim.message("Ready") == f"RayService is initializing: {text}"
    assert [each for each in sim.kube.events() if each[1] == "NoServePort"] == [
        ("Warning", "NoServePort", text)
    ]
    assert [
        each for each in sim.kube.writes() if "Service demo" in each and "RayService" not in each
    ] == []


@pytest.mark.acceptance("rayservice", 34)
async def test_34_the_serve_port_is_the_head_containers() -> None:
    sim = await a_running_simulator(
        config=head_with_ports({"name": "serve", "containerPort": 9000})
    )
    assert sim.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"]["ports"] == [
        {"name": "serve", "port": 9000}
    ]
    await sim.run(1)
    assert {each.port for each in sim.serve.checked} == {9000}


@pytest.mark.acceptance("rayservice", 35)
async def test_35_a_drifted_service_of_the_same_cluster_is_left_alone() -> None:
    sim = await a_running_simulator()
    stored = sim.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]
    drifted = {**stored["spec"], "ports": [{"name": "mine", "port": 1}], "type": "NodePort"}
    sim.kube.put(SERVICE, {**stored, "spec": drifted})
    done = len(sim.kube.requests)
    await sim.run(30)
    assert sim.kube.objects[(SERVICE.kind, "default", "demo-serve-svc")]["spec"] == drifted
    assert len(sim.kube.requests) == done


@pytest.mark.acceptance("rayservice", 36)
async def test_36_zero_downtime_off_holds_only_for_an_absent_strategy() -> None:
    sim = await a_running_simulator(settings=Config(zero_downtime=False))
    before = cluster(sim, sim.active)
    sim.apply(config=GREEN)
    await sim.run(30)
    assert (sim.pending, cluster(sim, sim.active)) == ("", before)
    sim.apply(config=GREEN, upgradeStrategy={"type": "NewCluster"})
    await sim.reconcile()
    assert sim.pending


@pytest.mark.acceptance("rayservice", 37)
async def test_37_none_leaves_the_cluster_and_updates_the_serve_config() -> None:
    sim = await a_running_simulator(upgradeStrategy={"type": "None"})
    before = cluster(sim, sim.active)
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy={"type": "None"})
    await sim.run(30)
    assert (cluster(sim, sim.active), sim.pending, sim.is_ready()) == (before, "", True)
    sent = sim.serve.head(f"{sim.active}-head-svc").puts
    assert [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in sent] == [
        "v1",
        "v2",
    ]


def ignored_events(sim: Simulator) -> list[str]:
    return [note for _, reason, note in sim.kube.events() if reason == "ClusterSpecIgnored"]


async def test_a_cluster_spec_that_none_ignores_is_reported_with_its_fields_and_the_remedy() -> (
    None
):
    none: Json = {"upgradeStrategy": {"type": "None"}}
    sim = await a_running_simulator(config=a_cluster_config(a_group(), a_group("gpu")), **none)
    changed = a_cluster_config(
        a_group(), a_group("gpu", rayStartParams={"a": "b"}), image="rayproject/ray:2.53.0"
    )
    sim.apply(config=changed, **none)
    await sim.run(30)
    kind = "ClusterSpecIgnored"
    assert sim.condition(kind) == ("True", "UpgradeStrategyNone")
    text = (
        "The change of spec.rayClusterConfig (headGroupSpec, workerGroupSpecs[1] (gpu)) is not "
        f"applied to RayCluster default/{sim.active}, because spec.upgradeStrategy.type is "
        "None. To apply it, set spec.upgradeStrategy.type to NewCluster; to drop it, revert it."
    )
    assert (sim.message(kind), ignored_events(sim)) == (text, [text])
    active = sim.active
    sim.apply(config=changed, upgradeStrategy={"type": "NewCluster"})
    await sim.until(lambda: sim.is_complete() and sim.active != active)
    assert sim.condition(kind) == ("", "")


async def test_a_cluster_spec_that_the_operators_default_ignores_is_reported_until_it_is_reverted() -> (
    None
):
    sim = await a_running_simulator(settings=Config(zero_downtime=False))
    sim.apply(config=a_cluster_config(a_group(replicas=3)))  # this needs no new cluster
    await sim.run(5)
    assert sim.condition("ClusterSpecIgnored") == ("", "")
    sim.apply(config=GREEN)
    await sim.run(5)
    assert "ENABLE_ZERO_DOWNTIME is false" in sim.message("ClusterSpecIgnored")
    sim.apply()
    await sim.run(5)
    assert sim.condition("ClusterSpecIgnored") == ("", "")
    assert len(ignored_events(sim)) == 1


@pytest.mark.acceptance("rayservice", 38)
async def test_38_none_creates_a_cluster_when_there_is_none() -> None:
    sim = await a_running_simulator(upgradeStrategy={"type": "None"})
    gone = sim.active
    await sim.kube.delete(RAY_CLUSTER, "default", gone)
    await sim.until(lambda: sim.is_complete() and sim.active != gone)


@pytest.mark.acceptance("rayservice", 56)
async def test_56_without_its_gate_the_incremental_type_falls_back_to_one_switch_and_reports_that() -> (
    None
):
    strategy = a_strategy()
    sim = await a_running_simulator(
        settings=Config(gates=frozenset()),
        config=a_cluster_config(enableInTreeAutoscaling=True),
        upgradeStrategy=strategy,
    )
    blue = sim.active
    sim.apply(
        config=a_cluster_config(image="rayproject/ray:2.53.0", enableInTreeAutoscaling=True),
        upgradeStrategy=strategy,
    )
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    assert "IncrementalUpgradeDisabled" in sim.reasons()


@pytest.mark.acceptance("rayservice", 92)
async def test_92_a_service_of_another_owner_is_refused() -> None:
    sim = Simulator()
    owner = [{"kind": "RayService", "name": "other", "uid": "u", "controller": True}]
    foreign = {
        "metadata": {"name": "demo-serve-svc", "ownerReferences": owner},
        "spec": {"selector": {"ray.io/cluster": "x"}},
    }
    sim.kube.put(SERVICE, foreign)
    sim.apply()
    await sim.run(10)
    assert "belongs to RayService other" in sim.message("Ready")
    assert sim.selected() == "x"
    assert not [each for each in sim.kube.writes() if "demo-serve-svc" in each]


@pytest.mark.acceptance("rayservice", 92)
async def test_92_of_two_that_name_one_serve_service_the_second_is_refused_until_it_is_free() -> (
    None
):
    shared: Json = {"metadata": {"name": "shared"}}
    sim = await a_running_simulator(serveService=shared)
    sim.apply(name="second", serveService=shared)
    writes = [each for each in sim.kube.writes() if each.endswith("Service shared")]
    await sim.run(60)
    assert [each for each in sim.kube.writes() if each.endswith("Service shared")] == writes
    assert (sim.selected("shared"), sim.is_ready()) == (sim.active, True)
    text = "Service shared belongs to RayService demo; choose another name or delete it"
    refused = sim.status_of("second")
    (ready,) = [each for each in refused["conditions"] if each["type"] == "Ready"]
    assert (ready["status"], ready["message"]) == ("False", f"RayService is initializing: {text}")
    assert sim.kube.events().count(("Warning", "ServiceNotOwned", text)) == 1
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.until(lambda: sim.status_of("second").get("serviceStatus") == "Running")


@pytest.mark.acceptance("rayservice", 93)
async def test_93_a_wiped_status_is_rebuilt_without_an_outage() -> None:
    sim = await a_running_simulator()
    active = sim.active
    sim.kube.set_status(RAY_SERVICE, "default", "demo", {})
    await sim.run(5)
    assert (sim.active, sim.pending, sim.selected(), sim.clusters) == (active, "", active, [active])
    assert sim.is_complete()


@pytest.mark.acceptance("rayservice", 93)
async def test_93_wiped_in_mid_upgrade_both_clusters_are_found_again() -> None:
    sim = await a_running_simulator(rayClusterDeletionDelaySeconds=600)
    oldest = sim.active
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=600)
    await sim.until(
        lambda: sim.is_complete() and sim.active != oldest
    )  # one is left, waiting for its end
    active = sim.active
    sim.ray_clusters.holds_pods = True
    sim.apply(config=RED, rayClusterDeletionDelaySeconds=600)
    await sim.run(2)
    pending = sim.pending
    sim.kube.set_status(RAY_SERVICE, "default", "demo", {})
    sim.restart()
    await sim.run(2)
    assert (sim.active, sim.pending, sim.selected()) == (active, pending, active)
    sim.ray_clusters.holds_pods = False
    await sim.until(lambda: sim.is_complete() and sim.active == pending)
    assert sorted(sim.clusters) == sorted([oldest, active, pending])
